"""Speed on the CPU, as ratios measured in one run.

    python benchmarks/cpu.py [--threads 2] [--json results/bench/cpu.json]

At 8 × 1,024 steps, H 512, N 384, float32: the scan against copying the same bytes; a whole LRU layer, forward and
backward, against its two matrix products alone and against nn.RNN, nn.GRU and nn.LSTM of the same sizes. Those give N
features, the LRU gives H: so also against nn.RNN with a map back to H.
"""

import argparse
from pathlib import Path

import measure
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import linrnn
from linrnn.recurrence import op

BATCH, LENGTH, H, N = 8, 1024, 512, 384


def scan() -> list[dict[str, object]]:
    """Forward moves two tensors (u in, states out), backward three (gradient and states in, gradient out)."""
    u = torch.randn(BATCH, LENGTH, 2, N)
    grad = torch.randn_like(u)
    radius, phase = torch.rand(N).sqrt() * 0.999, torch.rand(N) * 6.28
    lam = torch.stack([radius * phase.cos(), radius * phase.sin()])
    zero = torch.zeros(BATCH, 2, N)
    states, _ = op.scan(u, lam, zero, None, False)
    times = measure.milliseconds(
        {
            "copy": lambda: u.clone(),
            "forward": lambda: op.scan(u, lam, zero, None, False),
            "backward": lambda: op.scan_backward(grad, zero, states, lam, zero, None, False),
        },
        rounds=200,
    )
    return [
        row("scan, forward", times["forward"], "copy of the same bytes", times["copy"], 1.5),
        row("scan, backward", times["backward"], "copy of the same bytes", 1.5 * times["copy"], 1.5),
    ]


def layer() -> list[dict[str, object]]:
    u = torch.randn(BATCH, LENGTH, H, requires_grad=True)
    grad = torch.randn(BATCH, LENGTH, H)
    lru = linrnn.LRU(H, N, r_min=0.9, r_max=0.999)
    B, C = (nn.Parameter(torch.randn(*shape) / 32) for shape in ((2 * N, H), (H, 2 * N)))
    rivals = {f"nn.{kind.__name__}": kind(H, N, batch_first=True) for kind in (nn.RNN, nn.GRU, nn.LSTM)}

    def train(y: Tensor) -> None:
        y.backward(grad[..., : y.shape[-1]])

    candidates = {
        "LRU": lambda: train(lru(u)[0]),
        "its two matrix products": lambda: train(F.linear(F.linear(u, B), C)),
    }
    candidates |= {name: (lambda m=m: train(m(u)[0])) for name, m in rivals.items()}  # type: ignore[misc]
    back = nn.Linear(N, H)
    candidates["nn.RNN and a map back to H"] = lambda: train(back(rivals["nn.RNN"](u)[0]))
    times = measure.milliseconds(candidates, rounds=11)
    took = times.pop("LRU")
    goals = {"its two matrix products": 1.3}
    return [row("LRU layer, forward and backward", took, name, t, goals.get(name, 1.0)) for name, t in times.items()]


def row(what: str, took: float, rival: str, rival_took: float, goal: float) -> dict[str, object]:
    ratio = took / rival_took
    print(f"{what:32s} {took:8.2f} ms   {rival:26s} {rival_took:8.2f} ms   ratio {ratio:5.2f}   goal ≤ {goal:g}")
    return {"what": what, "ms": took, "against": rival, "against_ms": rival_took, "ratio": ratio, "goal": goal}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    measure.record(options.json, f"python benchmarks/cpu.py --threads {options.threads}", [*scan(), *layer()])
