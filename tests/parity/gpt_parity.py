#!/usr/bin/env python3
"""train_gpt against PyTorch: the same initial weights and batches must give the same losses in FP32.

  tests/parity/gpt_parity.py [--train-gpt "build/bin/train_gpt"] [--data TEXT_FILE] [--steps 20]
                             [--bias on|off] [--threads N]

Runs train_gpt twice: `--stop-after 0` leaves the initial weights in a file, then the run itself leaves its
losses in a log and the first tokens of its windows in another file. A decoder written here in PyTorch starts from
those weights, cuts those windows from the text itself and is trained by torch.optim.AdamW; its losses must agree
within 1e-5, relative. Exit status: 0 agreement, 1 difference, 77 (skipped) where PyTorch or h5py is missing.
"""
import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile

try:
    import h5py
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOLERANCE = 1e-5
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Decoder:
    """GPT-2's forward pass as a function of named tensors, nothing more."""

    def __init__(self, parameters, layers, heads):
        self.p = parameters
        self.layers = layers
        self.heads = heads

    def linear(self, x, path):
        return F.linear(x, self.p[path + ".weight"], self.p.get(path + ".bias"))

    def norm(self, x, path):
        return F.layer_norm(x, x.shape[-1:], self.p[path + ".weight"], self.p.get(path + ".bias"), 1e-5)

    def attention(self, x, path):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for t in self.linear(x, path + ".qkv").split(C, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.heads)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).reshape(B, T, C)
        return self.linear(mixed, path + ".proj")

    def loss(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.p["wte.weight"][inputs] + self.p["wpe.weight"][:inputs.shape[1]]
        for i in range(self.layers):
            path = f"blocks.{i}"
            x = x + self.attention(self.norm(x, path + ".ln_1"), path + ".attn")
            hidden = F.gelu(self.linear(self.norm(x, path + ".ln_2"), path + ".mlp.fc"), approximate="tanh")
            x = x + self.linear(hidden, path + ".mlp.proj")
        logits = self.norm(x, "ln_f") @ self.p["wte.weight"].T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def read_parameters(path):
    """/param/<module path>, as FP32 tensors that want gradients."""
    parameters = {}
    with h5py.File(path, "r") as file:
        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                parameters[name] = torch.from_numpy(item[()]).requires_grad_()
        file["param"].visititems(visit)
    return parameters


def read_windows(text_path, rows_path, context):
    """For each step its windows [batch, context + 1]: characters numbered in ascending order, the first 90% to train."""
    with open(text_path, encoding="utf-8", newline="") as file:
        text = file.read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([number[c] for c in text[:len(text) * 9 // 10]])
    with open(rows_path) as file:
        return [torch.stack([tokens[r:r + context + 1] for r in json.loads(line)["rows"]]) for line in file]


def learning_rate(config, update):
    lr, low, warmup, steps = (config[k] for k in ("lr", "min-lr", "warmup", "steps"))
    if update < warmup:
        return lr * (update + 1) / (warmup + 1)
    share = min(1.0, (update - warmup) / max(1, steps - warmup))
    return low + 0.5 * (1.0 + math.cos(math.pi * share)) * (lr - low)


def torch_losses(config, parameters, windows):
    matrices = [p for p in parameters.values() if p.dim() >= 2]
    vectors = [p for p in parameters.values() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": config["weight-decay"]},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=config["lr"], betas=(config["beta1"], config["beta2"]), eps=1e-8)
    model = Decoder(parameters, config["layers"], config["heads"])
    losses = []
    for step, tokens in enumerate(windows):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        loss = model.loss(tokens)
        optimizer.zero_grad()
        loss.backward()
        if config["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(parameters.values(), config["clip"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--train-gpt", default=os.path.join(ROOT, "build/bin/train_gpt"), help="the program, perhaps with words before it")
    ap.add_argument("--data", default=os.path.join(ROOT, "data/samples/halftone.txt"), help="text, UTF-8")
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--bias", choices=("on", "off"), default="on")
    ap.add_argument("--threads", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)

    with tempfile.TemporaryDirectory() as folder:
        def file(name):
            return os.path.join(folder, name)
        program = [args.train_gpt] if os.path.exists(args.train_gpt) else shlex.split(args.train_gpt)
        common = program + [
            "--data", args.data, "--layers", "2", "--heads", "4", "--width", "64", "--context", "32", "--batch", "8",
            "--steps", str(args.steps), "--warmup", "5", "--dropout", "0", "--bias", args.bias, "--precision", "fp32",
            "--device", "cpu", "--threads", str(args.threads), "--quiet"]
        subprocess.run(common + ["--stop-after", "0", "--out", file("init.h5")], check=True)
        subprocess.run(common + ["--log", file("run.jsonl"), "--dump-batches", file("batches.jsonl")], check=True)
        with open(file("run.jsonl")) as log:
            events = [json.loads(line) for line in log]
        config = next(e for e in events if e["event"] == "start")
        ours = [e["loss"] for e in events if e["event"] == "step"]
        windows = read_windows(args.data, file("batches.jsonl"), config["context"])
        parameters = read_parameters(file("init.h5"))

    theirs = torch_losses(config, parameters, windows)
    differences = []
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        difference = abs(a - b) / abs(b)
        differences.append(difference)
        print(f"step {step:3}  ours {a:.7f}  PyTorch {b:.7f}  relative difference {difference:.2e}")
    agree = len(ours) == args.steps and all(d <= TOLERANCE for d in differences)  # false for NaN
    print(f"{'agreement' if agree else 'DIFFERENCE'}: at most {max(differences, default=0.0):.2e}, "
          f"allowed {TOLERANCE:.0e}; torch {torch.__version__}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
