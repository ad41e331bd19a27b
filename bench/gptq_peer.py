"""gptq_peer.py MODEL LIKE TEXT WINDOW COUNT THREADS OUT: llm-compressor's GPTQ on COUNT windows of TEXT, into the format
that the folder LIKE says. The folder OUT is written; prints the seconds of calibration and rounding alone."""
import json
import os
import sys
import time

os.environ["TQDM_DISABLE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # where its log goes

import torch
import transformers
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from loguru import logger

logger.remove()  # a line for every layer
logger.add(sys.stderr, level="ERROR")

model_folder, like, text, window, count, threads, out = sys.argv[1:]
window, count = int(window), int(count)
torch.set_num_threads(int(threads))
with open(os.path.join(like, "config.json"), encoding="utf-8") as file:
    groups = json.load(file)["quantization_config"]["config_groups"]
tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
with open(text, encoding="utf-8") as file:
    ids = tokenizer(file.read(), add_special_tokens=False)["input_ids"][:window * count]
windows = [ids[i:i + window] for i in range(0, len(ids), window)]
data = Dataset.from_dict({"input_ids": windows, "attention_mask": [[1] * window] * len(windows)})
recipe = GPTQModifier(
    ignore=["lm_head"],
    config_groups={name: {"targets": ["Linear"], "weights": group["weights"]} for name, group in groups.items()})
start = time.perf_counter()
oneshot(model=model, dataset=data, recipe=recipe, max_seq_length=window, num_calibration_samples=len(windows))
seconds = time.perf_counter() - start
model.save_pretrained(out, save_compressed=True)
tokenizer.save_pretrained(out)
print(seconds, file=answer)
