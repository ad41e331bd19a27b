"""encoder.py KAON FOLDER...: `kaon run` of a sentence encoder's folder (all-MiniLM-L6-v2) gives the hidden states that
ONNX Runtime gives for the same weights in an ONNX file, which is written here after BERT's description, and their mean.
Only tokens that count are compared: at the others float32 itself is 1e-4 from the truth, ONNX Runtime's as well."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from models import session
from onnx import TensorProto, helper, numpy_helper

NAME = "all-MiniLM-L6-v2"
TOLERANCE = 2e-5
SENTENCES = [
    "Quantization maps numbers to fewer bits.", "No.", "Ein Satz mit Umlauten: äöü, und 漢字, and an emoji 🙂.",
    "The quick brown fox jumps over the lazy dog; then it sleeps until noon, as foxes in such texts rarely do. " * 3,
]


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    assert all(one["dtype"] in ("F32", "I64") for name, one in header.items() if name != "__metadata__")
    kinds = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(data[one["data_offsets"][0]:one["data_offsets"][1]], kinds[one["dtype"]])
            .reshape(one["shape"]) for name, one in header.items() if name != "__metadata__"}


class Writer:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        self.weights = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.nodes, self.constants, self.count = [], [], 0

    def constant(self, array):
        self.count += 1
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), f"c{self.count}"))
        return f"c{self.count}"

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def linear(self, name, x):
        product = self.op("MatMul", x, self.constant(self.weights[name + ".weight"].T))
        return self.op("Add", product, self.constant(self.weights[name + ".bias"]))

    def norm(self, name, x):
        return self.op("LayerNormalization", x, self.constant(self.weights[name + ".weight"]),
                       self.constant(self.weights[name + ".bias"]), epsilon=self.config["layer_norm_eps"])

    def table(self, name, ids):
        return self.op("Gather", self.constant(self.weights[f"embeddings.{name}_embeddings.weight"]), ids)

    def block(self, name, x, bias):
        heads = self.config["num_attention_heads"]
        width = self.config["hidden_size"] // heads

        def part(which):
            apart = self.op("Reshape", self.linear(f"{name}.attention.self.{which}", x),
                            self.constant(np.array([0, 0, heads, width])))
            return self.op("Transpose", apart, perm=[0, 2, 3, 1] if which == "key" else [0, 2, 1, 3])

        scores = self.op("Div", self.op("MatMul", part("query"), part("key")),
                         self.constant(np.float32(np.sqrt(width))))
        shares = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        y = self.op("Transpose", self.op("MatMul", shares, part("value")), perm=[0, 2, 1, 3])
        y = self.op("Reshape", y, self.constant(np.array([0, 0, heads * width])))
        y = self.norm(f"{name}.attention.output.LayerNorm",
                      self.op("Add", self.linear(f"{name}.attention.output.dense", y), x))
        inner = self.linear(f"{name}.intermediate.dense", y)
        halves = self.op("Erf", self.op("Div", inner, self.constant(np.float32(np.sqrt(2)))))
        gelu = self.op("Mul", self.op("Mul", inner, self.constant(np.float32(0.5))),
                       self.op("Add", halves, self.constant(np.float32(1))))
        return self.norm(f"{name}.output.LayerNorm", self.op("Add", self.linear(f"{name}.output.dense", gelu), y))

    def model(self, tokens):
        x = self.op("Add", self.table("word", "input_ids"), self.table("token_type", "token_type_ids"))
        x = self.op("Add", x, self.table("position", self.constant(np.arange(tokens))))
        x = self.norm("embeddings.LayerNorm", x)
        mask = self.op("Cast", self.op("Unsqueeze", "attention_mask", self.constant(np.array([1, 2]))),
                       to=TensorProto.FLOAT)
        hidden = self.op("Sub", self.constant(np.float32(1)), mask)
        bias = self.op("Mul", hidden, self.constant(np.float32(-1e9)))
        for layer in range(self.config["num_hidden_layers"]):
            x = self.block(f"encoder.layer.{layer}", x, bias)
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", tokens])
                  for name in ("input_ids", "attention_mask", "token_type_ids")]
        output = helper.make_tensor_value_info(x, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "encoder", inputs, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def tokens(kaon, folder, text):
    done = subprocess.run([kaon, "tokenize", folder, "--text", text, "--json"], check=True, capture_output=True)
    return json.loads(done.stdout)["ids"]


def main():
    kaon, *folders = sys.argv[1:]
    found = [os.path.join(folder, NAME) for folder in folders if os.path.isdir(os.path.join(folder, NAME))]
    if not found:
        print(f"skipped: no folder {NAME} (make models brings it)")
        return 0
    rows = [tokens(kaon, found[0], text) for text in SENTENCES]
    feeds = {name: np.zeros((len(rows), max(map(len, rows))), np.int64)
             for name in ("input_ids", "attention_mask", "token_type_ids")}
    for i, row in enumerate(rows):
        feeds["input_ids"][i, :len(row)] = row
        feeds["attention_mask"][i, :len(row)] = 1
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "encoder.onnx")
        onnx.save(Writer(found[0]).model(feeds["input_ids"].shape[1]), path)
        expected, = session(path).run(None, feeds)
        source, target = os.path.join(scratch, "in.npz"), os.path.join(scratch, "out.npz")
        np.savez(source, **feeds)
        subprocess.run([kaon, "run", found[0], "--input", source, "-o", target, "-q"], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
        with np.load(target) as arrays:
            states, mean = arrays["last_hidden_state"], arrays["sentence_embedding"]
    counts = feeds["attention_mask"][:, :, None]
    expected_mean = (expected * counts).sum(1) / counts.sum(1)
    worst = np.abs((states - expected) * counts).max(), np.abs(mean - expected_mean).max()
    print(f"{NAME}: hidden states {states.shape} within {worst[0]:.2e}, their means within {worst[1]:.2e} of"
          f" ONNX Runtime's, the largest of which is {np.abs(expected).max():.2f}")
    return 0 if max(worst) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
