"""ONNX Runtime as a peer, told what to do line by line on stdin; each answer is one line of JSON on stdout.

    engine_peer.py THREADS
    load MODEL INPUTS.npz     a session with default settings but for the threads
    outputs FILE.npz          what one run gives
    run N                     the seconds of N runs
    memory                    MiB: [largest resident set after the imports, the same now]
"""
import json
import sys
import time

import numpy as np
import onnxruntime as ort


def peak_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def main():
    startup = peak_mb()
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(sys.argv[1])
    options.log_severity_level = 4
    session, feeds = None, {}
    for line in sys.stdin:
        word, *rest = line.rstrip("\n").split("\t")
        answer = None
        if word == "load":
            session = ort.InferenceSession(rest[0], options, providers=["CPUExecutionProvider"])
            with np.load(rest[1]) as arrays:
                feeds = dict(arrays)
        elif word == "outputs":
            names = [value.name for value in session.get_outputs()]
            np.savez(rest[0], **dict(zip(names, session.run(None, feeds))))
        elif word == "run":
            answer = []
            for _ in range(int(rest[0])):
                start = time.perf_counter()
                session.run(None, feeds)
                answer.append(time.perf_counter() - start)
        elif word == "memory":
            answer = [startup, peak_mb()]
        else:
            sys.exit(f"unknown command {line!r}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
