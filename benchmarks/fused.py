"""The kernels of linrnn/fused alone, in bfloat16 with dropout, beside a copy of the bytes that they move.

python benchmarks/fused.py [--json results/bench/fused.json]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import measure
import torch
from torch import Tensor

from linrnn import recipes
from linrnn.bench.measure import copy, milliseconds
from linrnn.bench.train import PAPER, SIZES
from linrnn.fast.kernels import elementwise as gpu

PASSES = {
    "moments": 1,
    "gelu_skip": 3,
    "gelu_skip_backward": 4,
    "glu_skip": 4,
    "glu_skip_moments": 4,
    "glu_skip_backward": 5,
}


def calls(batch: int, length: int, H: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """What runs each kernel once on random numbers."""

    def random(*size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(*size, device=device, dtype=dtype)

    x, y, grad = (random(batch, length, H) for _ in range(3))
    g, mask = random(batch, length, 2 * H), random(batch, 1, H)
    d, e, near = (random(H, dtype=torch.float32) for _ in range(3))
    b = random(2 * H, dtype=torch.float32)
    return {
        "moments": lambda: gpu.moments(x, near, None),
        "gelu_skip": lambda: gpu.gelu_skip(y, x, d, e, mask, None),
        "gelu_skip_backward": lambda: gpu.gelu_skip_backward(grad, y, x, d, e, mask, None),
        "glu_skip": lambda: gpu.glu_skip(x, g, b, None, mask, None),
        "glu_skip_moments": lambda: gpu.glu_skip_moments(x, g, b, None, mask, None, None),
        "glu_skip_backward": lambda: gpu.glu_skip_backward(grad, g, b, None, mask, None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device("cuda")
    rows = []
    for size in PAPER:
        recipe = recipes.get(size)
        shape = (recipe.training.batch_size * SIZES[size].documents, SIZES[size].length, recipe.model.d_model)
        a = 2 * shape[0] * shape[1] * shape[2]  # bytes of an activation
        kernels = calls(*shape, device)
        copies = {f"copy {name}": copy(PASSES[name] * a, device) for name in kernels}
        ms = milliseconds({**kernels, **copies}, 20, device)
        for name, passes in PASSES.items():
            us, copied = 1e3 * ms[name], 1e3 * ms[f"copy {name}"]
            rows.append({"kernel": name, "size": size, "shape": shape, "passes": passes, "us": us, "copy_us": copied})
            print(f"{size:11} {name:19} {us:7.1f} µs, a copy {copied:7.1f} µs, {copied / us:4.0%} of its speed")
    measure.record(arguments.json, "python benchmarks/fused.py --json results/bench/fused.json", rows)


if __name__ == "__main__":
    main()
