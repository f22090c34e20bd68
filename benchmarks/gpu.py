"""The scan on the GPU against a copy of the same bytes, at the paper's six sizes and one very long sequence.

    python benchmarks/gpu.py [--json results/bench/gpu.json]

Useful bytes: forward reads u and writes the states; backward reads the gradient and the states and writes a gradient.
"""

import argparse
from pathlib import Path

import measure
import torch
import triton

from linrnn.recurrence import gpu

SHAPES = {
    "sCIFAR": (50, 1024, 384),
    "ListOps": (32, 2048, 256),
    "Text": (32, 4096, 192),
    "Retrieval": (128, 4000, 256),
    "Pathfinder": (64, 1024, 256),
    "Path-X": (32, 16384, 256),
    "one long sequence": (1, 131072, 512),
}


def bandwidth(name: str, dtype: torch.dtype) -> dict[str, object]:
    batch, length, n = SHAPES[name]
    u, states, grad = (torch.randn(batch, length, 2, n, device="cuda", dtype=dtype) for _ in range(3))
    lam = torch.empty(2, n, device="cuda").uniform_(-0.7, 0.7)
    zero = torch.zeros(batch, 2, n, device="cuda")

    def terabytes(tensors: int, run: object) -> float:
        milliseconds = triton.testing.do_bench(run, warmup=10, rep=50, return_mode="median")
        return float(tensors * u.nbytes / milliseconds / 1e9)

    result = {
        "copy": terabytes(2, lambda: states.copy_(u)),
        "forward": terabytes(2, lambda: gpu.scan(u, lam, zero, None, False)),
        "backward": terabytes(3, lambda: gpu.scan_backward(grad, zero, states, lam, zero, None, False)),
    }
    shares = [result[way] / result["copy"] for way in ("forward", "backward")]
    label = f"{name} ({batch} × {length:,} × {n})"
    numbers = "".join(f"{value:9.2f}" for value in result.values())
    print(
        f"{label:42s} {str(dtype).removeprefix('torch.'):9s} {numbers}   {shares[0]:6.0%} {shares[1]:6.0%}", flush=True
    )
    return {"shape": label, "dtype": str(dtype), "chunks": gpu._plan(u).chunks, "TB/s": result}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{'useful TB/s, batch × length × N':52s} {'copy':>9s}{'forward':>9s}{'backward':>9s}   share of the copy")
    results = [bandwidth(name, dtype) for dtype in (torch.float32, torch.bfloat16) for name in SHAPES]
    measure.record(options.json, "python benchmarks/gpu.py", results)
