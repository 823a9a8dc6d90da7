#!/usr/bin/env python3
"""A GPT's FP32 training step on the CPU: cpu_bench beside PyTorch with the same number of threads.

  tests/parity/gpt_step_speed.py [--cpu-bench "build/bin/cpu_bench"] [--threads 2,16] [--rounds 3]

PyTorch runs eagerly, with scaled_dot_product_attention, fused AdamW and clipping to 1. The two take turns, a
process each; medians over all rounds are compared. Exit status: 0 measured, 77 (skipped) where PyTorch is missing.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHAPES = {  # cpu_bench's name: layers, heads, width, context, batch
    "gpt 4x128 T=64": (4, 4, 128, 64, 12),
    "gpt 6x384 T=256": (6, 6, 384, 256, 4),
}
VOCABULARY = 65
WARM_UP, STEPS = 3, 10


def torch_step_ms(shape):
    """Milliseconds of each step after the warm-up; runs in a process of its own."""
    import torch
    import torch.nn.functional as F

    layers, heads, width, context, batch = shape
    torch.manual_seed(1)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.fc, self.out = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (t.view(batch, context, heads, width // heads).transpose(1, 2)
                       for t in self.qkv(self.ln_1(x)).split(width, dim=2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(mixed.transpose(1, 2).reshape(batch, context, width))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = torch.nn.Embedding(VOCABULARY, width), torch.nn.Embedding(context, width)
            self.blocks = torch.nn.Sequential(*(Block() for _ in range(layers)))
            self.ln_f = torch.nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.blocks(self.wte(tokens) + self.wpe.weight)
            return F.linear(self.ln_f(x), self.wte.weight)

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    times = []
    for _ in range(WARM_UP + STEPS):
        tokens = torch.randint(0, VOCABULARY, (batch, context + 1))
        start = time.perf_counter()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    return times[WARM_UP:]


def our_step_ms(program, threads):
    """Milliseconds of the fp32 step of each shape, from cpu_bench's own medians."""
    command = program + ["--only", "gpt", "--threads", str(threads), "--json"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {r["model"]: r["ms"] for r in map(json.loads, lines) if r.get("model") in SHAPES and r["name"] == "fp32"}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cpu-bench", default=os.path.join(ROOT, "build/bin/cpu_bench"), help="the program, perhaps with words before it")
    ap.add_argument("--threads", default="2,16", help="numbers of threads, with commas between")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--torch", default="", help=argparse.SUPPRESS)  # one shape, in this process
    args = ap.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if args.torch:
        torch.set_num_threads(int(args.threads))
        print(json.dumps(torch_step_ms(SHAPES[args.torch])))
        return 0
    program = [args.cpu_bench] if os.path.exists(args.cpu_bench) else shlex.split(args.cpu_bench)
    print(f"torch {torch.__version__}\n{'FP32 step':18} {'threads':>7} {'PyTorch':>9} {'Halftone':>9} {'ratio':>6}")
    for threads in map(int, args.threads.split(",")):
        ours = {name: [] for name in SHAPES}
        theirs = {name: [] for name in SHAPES}
        for _ in range(args.rounds):
            for name, ms in our_step_ms(program, threads).items():
                ours[name].append(ms)
            for name in SHAPES:
                command = [sys.executable, os.path.abspath(__file__), "--torch", name, "--threads", str(threads)]
                theirs[name] += json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for name in SHAPES:
            a, b = statistics.median(ours[name]), statistics.median(theirs[name])
            print(f"{name:18} {threads:7} {b:9.2f} {a:9.2f} {a / b:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
