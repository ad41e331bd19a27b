"""ONNX Runtime's own quantizer, from JPEG files: quantize_peer.py MODEL FOLDER COUNT METHOD OUT

Prints one line of JSON: the seconds after the imports, and the largest resident set in MiB.
"""
import contextlib
import json
import os
import sys
import time

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from PIL import Image

METHODS = {"min_max": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile,
           "entropy": CalibrationMethod.Entropy}


class Images(CalibrationDataReader):
    def __init__(self, folder, count):
        self.paths = iter(sorted(os.path.join(folder, name) for name in os.listdir(folder))[:count])

    def get_next(self):
        path = next(self.paths, None)
        if path is None:
            return None
        image = np.asarray(Image.open(path).convert("RGB"), np.float32)
        top, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
        return {"input": ((image[top:top + 224, left:left + 224] - 127.5) / 127.5).transpose(2, 0, 1)[None]}


def main():
    model, folder, count, method, out = sys.argv[1:]
    start = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        quantize_static(model, out, Images(folder, int(count)), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, calibrate_method=METHODS[method])
    seconds = time.perf_counter() - start
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))


if __name__ == "__main__":
    main()
