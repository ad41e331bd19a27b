"""Hugging Face's tokenizers on one thread: tokenizer_peer.py TOKENIZER_JSON TEXT LINES

LINES is 1 where each line is a text of its own. The first line on stdout is the number of tokens and a checksum; then,
for each count on stdin, the seconds of that many runs.
"""
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402


def main():
    path, text, lines = sys.argv[1:]
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with open(text, encoding="utf-8", newline="") as file:
        texts = file.read()
    texts = texts.split("\n") if lines == "1" else [texts]
    ids = [i for one in tokenizer.encode_batch(texts, add_special_tokens=False) for i in one.ids]
    print(len(ids), sum(i * n for i, n in enumerate(ids, 1)), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
