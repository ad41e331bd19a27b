"""A language model in transformers or llama.cpp: lm_peer.py WAY FOLDER THREADS [ARGUMENTS…]

  transformers FOLDER THREADS         then, on stdin, `ppl TEXT WINDOW COUNT` or `generate PROMPT_FILE TOKENS`
  llama FILE.gguf THREADS             then `generate PROMPT_FILE TOKENS`
  opt-125m FOLDER TOKENIZER_FOLDER    makes a random model of that shape with the tokenizer of another

Each line on stdin is answered with one of JSON: {"ppl": …, "seconds": …} or {"tokens_per_second": …}, generating
without the prompt's share. All in float32.
"""
import json
import math
import os
import shutil
import sys
import time

os.environ["TQDM_DISABLE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Transformers:
    def __init__(self, folder, threads):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        torch.set_num_threads(threads)
        self.torch = torch
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.windows = {}

    def ppl(self, text, window, count):
        window, count = int(window), int(count)
        if text not in self.windows:
            ids = self.tokenizer(read(text), add_special_tokens=False)["input_ids"][:window * count]
            self.windows[text] = self.torch.tensor(ids).reshape(-1, window)
        ids = self.windows[text]
        best = None
        # Which batch is quickest depends on the model.
        for batch in (1, 8):
            start, total = time.perf_counter(), 0.0
            with self.torch.inference_mode():
                for part in ids.split(batch):
                    logits = self.model(part, use_cache=False).logits[:, :-1]
                    total += self.torch.nn.functional.cross_entropy(
                        logits.reshape(-1, logits.shape[-1]), part[:, 1:].reshape(-1), reduction="sum").item()
            seconds = time.perf_counter() - start
            best = seconds if best is None else min(best, seconds)
        return {"ppl": math.exp(total / ids[:, 1:].numel()), "seconds": best}

    def generate(self, prompt, tokens):
        ids = self.torch.tensor([self.tokenizer(read(prompt), add_special_tokens=False)["input_ids"]])
        tokens = int(tokens)

        def seconds(count):
            start = time.perf_counter()
            with self.torch.inference_mode():
                out = self.model.generate(ids, do_sample=False, min_new_tokens=count, max_new_tokens=count)
            assert out.shape[1] == ids.shape[1] + count
            return time.perf_counter() - start

        return {"tokens_per_second": (tokens - 1) / (seconds(tokens) - seconds(1))}


class Llama:
    def __init__(self, path, threads):
        import llama_cpp

        self.model = llama_cpp.Llama(path, n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)

    def generate(self, prompt, tokens):
        ids = self.model.tokenize(read(prompt).encode(), add_bos=False)
        self.model.reset()
        made, start = 0, None
        for _ in self.model.generate(ids, temp=0.0):
            start = start or time.perf_counter()
            made += 1
            if made == int(tokens):
                break
        return {"tokens_per_second": (made - 1) / (time.perf_counter() - start)}


def make_opt(folder, tokenizer):
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.OPTConfig()  # its defaults are opt-125m's shape
    model = transformers.OPTForCausalLM(config)
    # What is generated must be tokens that the smaller tokenizer has: the others' logits are 0, and never the largest.
    model.model.decoder.embed_tokens.weight.data[len(transformers.AutoTokenizer.from_pretrained(tokenizer)):] = 0
    model.save_pretrained(folder)
    for name in os.listdir(tokenizer):
        if name.startswith(("tokenizer", "vocab", "merges", "special")):
            shutil.copy(os.path.join(tokenizer, name), folder)


def main():
    way, path, third = sys.argv[1:4]
    if way == "opt-125m":
        make_opt(path, third)
        return
    peer = (Transformers if way == "transformers" else Llama)(path, int(third))
    print("ready", flush=True)
    for line in sys.stdin:
        what, *words = line.split()
        print(json.dumps(getattr(peer, what)(*words)), flush=True)


if __name__ == "__main__":
    main()
