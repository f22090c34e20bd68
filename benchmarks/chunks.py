"""One LRU, forward and backward, over chunks of so many steps, in every precision, one way and both ways.

python benchmarks/chunks.py [--json results/bench/chunks.json]
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import measure
import torch

from linrnn import LRU
from linrnn.bench.measure import free, milliseconds
from linrnn.cores import lru
from linrnn.fast.chunks import chunk_size

SIZES = {  # batch, length, H, N
    "ListOps": (32, 2048, 128, 256),
    "Pathfinder": (64, 1024, 192, 256),
    "Text": (32, 4096, 256, 192),
    "sCIFAR": (50, 1024, 512, 384),
}
PRECISIONS = {"bfloat16": (torch.bfloat16, "highest"), "TF32": (None, "high"), "float32": (None, "highest")}
CHUNKS = 1, 2, 4, 8


def run(batch: int, length: int, H: int, N: int, both: bool, dtype: torch.dtype | None, c: int) -> Callable[[], object]:
    """What does both passes once on random numbers, with autocast to `dtype` unless None."""
    layer = LRU(H, N, r_min=0.9, r_max=0.99, bidirectional=both).cuda()
    u = torch.randn(batch, length, H, device="cuda", requires_grad=True)
    grad = torch.randn_like(u)
    wanted = [u, *layer.parameters()]

    def passes() -> object:
        with patch.object(LRU, "_chunk", lambda *_: c), torch.autocast("cuda", dtype, enabled=dtype is not None):
            y, _ = layer(u)
        return torch.autograd.grad(y, wanted, grad.to(y.dtype))

    return passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device, rows = torch.device("cuda"), []
    lru.LARGE = 0  # chunks whatever the size
    for name, size in SIZES.items():
        for both in (False, True):
            own = chunk_size(*size[1:], both)
            for precision, (dtype, products) in PRECISIONS.items():
                torch.set_float32_matmul_precision(products)
                chunks = [c for c in CHUNKS if c in (1, own // 2, own, 2 * own)]
                ms = milliseconds({str(c): run(*size, both, dtype, c) for c in chunks}, 10, device)
                rows.append({"size": name, "both ways": both, "precision": precision, "own": own, "ms": ms})
                ways, times = "both ways" if both else "one way", {c: round(value, 3) for c, value in ms.items()}
                print(f"{name:10} {ways:9} {precision:8} takes chunks of {own}; ms by chunk: {times}")
                free(device)
    measure.record(arguments.json, "python benchmarks/chunks.py --json results/bench/chunks.json", rows)


if __name__ == "__main__":
    main()
