"""A matrix product and what follows it in one kernel, against PyTorch's product and our kernel after it.

    python benchmarks/products.py [--size scifar] [--json results/bench/products.json]

These are sketches, in use nowhere: Triton's products with the gelu, the GLU or the gelu's gradient at their end. Such a
kernel leaves out one pass over memory. But it reads its factors from the cache once for each tile, and tiles of a size
that leaves room for two programs on a multiprocessor, so that one multiplies while the other does the rest, read more
than the cache can give; PyTorch's products share what they read between two multiprocessors, which Triton 3.6 cannot.
Beside them: PyTorch's product with a bias, the scan after it with the bias in the product or in the walk, and the
mixing's product in two parts.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from linrnn import recipes
from linrnn.bench.measure import milliseconds
from linrnn.bench.train import SIZES
from linrnn.fast.kernels import elementwise as gpu
from linrnn.fast.kernels.elementwise import _normal, _sigmoid
from linrnn.recurrence import triton_backend as recurrence
from linrnn.recurrence.interface import Options

# rows, columns and depth of a tile, warps, pieces on their way; the GLU has two tiles of results
GLU = [(128, 64, 64, 4, 3), (256, 64, 64, 8, 4), (128, 128, 64, 8, 3)]
GELU = [(128, 64, 64, 4, 3), (128, 64, 64, 4, 4), (128, 128, 64, 4, 3), (128, 128, 64, 8, 4), (256, 128, 64, 8, 4)]


@triton.jit
def _glu(
    h, W, x, g, out, b, mask, sums, length, H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """g = h·Wᵀ and out = x + v ⊙ σ(gate) ⊙ mask, with the mean and the squares of each tile for the norm."""
    TILES: tl.constexpr = H // BN
    part = tl.program_id(0) // TILES
    m, n = part * BM, tl.program_id(0) % TILES * BN
    v = tl.zeros((BM, BN), tl.float32)
    gate = tl.zeros((BM, BN), tl.float32)
    for k in range(0, H, BK):
        left = h.load([m, k])
        v = tl.dot(left, W.load([n, k]).T, v)
        gate = tl.dot(left, W.load([n + H, k]).T, gate)
    column = n + tl.arange(0, BN)
    g.store([m, n], v.to(tl.bfloat16))
    g.store([m, n + H], gate.to(tl.bfloat16))
    v += tl.load(b + column)[None, :]
    gate += tl.load(b + H + column)[None, :]
    factor = tl.load(mask + m // length * H + column).to(tl.float32)[None, :]
    new = x.load([m, n]).to(tl.float32) + v * _sigmoid(gate) * factor
    out.store([m, n], new.to(tl.bfloat16))
    mean = tl.sum(new, 0) / BM
    apart = new - mean[None, :]
    tl.store(sums + part * 2 * H + column, mean)
    tl.store(sums + part * 2 * H + H + column, tl.sum(apart * apart, 0))


@triton.jit
def _gelu(
    a, W, y, x, h, d, e, mask, sums, length, BACK: tl.constexpr, H: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = a·Wᵀ and h = gelu(y + d ⊙ x + e) ⊙ mask; or, BACK, h = (a·W) ⊙ mask ⊙ gelu'(y + d ⊙ x + e)."""
    TILES: tl.constexpr = H // BN
    part = tl.program_id(0) // TILES
    m, n = part * BM, tl.program_id(0) % TILES * BN
    product = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        if BACK:
            product = tl.dot(a.load([m, k]), W.load([k, n]), product)
        else:
            product = tl.dot(a.load([m, k]), W.load([n, k]).T, product)
    column = n + tl.arange(0, BN)
    factor = tl.load(mask + m // length * H + column).to(tl.float32)[None, :]
    x_here = x.load([m, n]).to(tl.float32)
    z = y.load([m, n]).to(tl.float32) if BACK else product
    z += tl.load(d + column)[None, :] * x_here + tl.load(e + column)[None, :]
    Phi, phi = _normal(z, tl.bfloat16)
    if BACK:
        grad = product * factor * (Phi + z * phi)
        h.store([m, n], grad.to(tl.bfloat16))
        tl.store(sums + part * 2 * H + column, tl.sum(grad, 0))
        tl.store(sums + part * 2 * H + H + column, tl.sum(grad * x_here, 0))
    else:
        y.store([m, n], product.to(tl.bfloat16))
        h.store([m, n], (z * Phi * factor).to(tl.bfloat16))


def candidates(batch: int, length: int, H: int, N: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """What is timed, by name: what it computes, and how."""
    M, K = batch * length, 2 * N

    def random(*size: int) -> Tensor:
        return torch.randn(*size, device=device, dtype=torch.bfloat16)

    h, x, y, out, grad, g, states = (
        random(M, H),
        random(M, H),
        random(M, H),
        *(random(M, n) for n in (H, 2 * H, 2 * H, K)),
    )
    lam, zero = 0.6 * torch.rand(2, N, device=device), torch.zeros(batch, 2, N, device=device)
    W, B, C, Bu_bias = random(2 * H, H) * H**-0.5, random(K, H) * H**-0.5, random(H, K) * K**-0.5, random(K)
    b, d, e = (torch.randn(n, device=device) for n in (2 * H, H, H))
    mask = random(batch, 1, H).square()

    def steps(t: Tensor) -> Tensor:
        return t.view(batch, length, -1)

    def scanned(bias: Tensor | None, later: Tensor | None) -> object:
        u = F.linear(steps(x), B, bias).unflatten(-1, (2, N))
        return recurrence.scan(u, lam, zero, Options(), later)

    runs: dict[str, Any] = {
        "glu: product": lambda: F.linear(h, W),
        "glu: product, in two parts": lambda: [F.linear(h, part) for part in W.chunk(2)],
        "glu: product, then kernel": lambda: gpu.glu_skip_moments(
            steps(x), steps(F.linear(h, W)), b, None, mask, None, None
        ),
        "gelu: product": lambda: F.linear(states, C),
        "gelu: product, then kernel": lambda: gpu.gelu_skip(steps(F.linear(states, C)), steps(x), d, e, mask, None),
        "gelu, backward: product": lambda: grad @ W,
        "gelu, backward: product, then kernel": lambda: gpu.gelu_skip_backward(
            steps(grad @ W), steps(y), steps(x), d, e, mask, None
        ),
        "B: product": lambda: F.linear(x, B),
        "B: product with bias": lambda: F.linear(x, B, Bu_bias),
        "B: product with bias, then scan": lambda: scanned(Bu_bias, None),
        "B: product, then scan with bias": lambda: scanned(None, Bu_bias.view(2, N)),
    }  # fmt: skip

    def tiled(rows: int, columns: int, *tensors: Tensor) -> list[TensorDescriptor]:
        return [TensorDescriptor.from_tensor(t, [rows, columns]) for t in tensors]

    def add(kind: str, kernel: Any, tile: tuple[int, ...], given: Any, vectors: Any, **options: Any) -> None:
        rows, columns, deep, warps, stages = tile
        grid, sums = (M // rows * (H // columns),), torch.empty(M // rows, 2, H, device=device)
        options |= {"H": H, "BM": rows, "BN": columns, "BK": deep, "num_warps": warps, "num_stages": stages}
        name = f"{kind}: one kernel, " + "x".join(map(str, tile))
        runs[name] = lambda: kernel[grid](*given, *vectors, mask, sums, length, **options)

    for tile in GLU:
        rows, columns, deep, *_ = tile
        given = (*tiled(rows, deep, h), *tiled(columns, deep, W), *tiled(rows, columns, x, g, out))
        add("glu", _glu, tile, given, (b,))
    for tile in GELU:
        rows, columns, deep, *_ = tile
        ends = tiled(rows, columns, y, x, out)
        given = (*tiled(rows, deep, states), *tiled(columns, deep, C), *ends)
        add("gelu", _gelu, tile, given, (d, e), BACK=False, K=K)
        given = (*tiled(rows, deep, grad), *tiled(deep, columns, W), *ends)
        add("gelu, backward", _gelu, tile, given, (d, e), BACK=True, K=2 * H)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("scifar", "text"), action="append", help="by default both")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for size in arguments.size or ("scifar", "text"):
        model, batch = recipes.get(size).model, recipes.get(size).training.batch_size
        shape = (batch, SIZES[size].length, model.d_model, model.d_state)
        ms = milliseconds(candidates(*shape, torch.device("cuda")), 15, torch.device("cuda"))
        for name in sorted(ms):
            rows.append({"size": size, "shape": shape, "what": name, "us": round(1e3 * ms[name], 1)})
            print(f"{size:7} {name:45} {1e3 * ms[name]:7.1f} µs")
    measure.record(arguments.json, "python benchmarks/products.py --json results/bench/products.json", rows)


if __name__ == "__main__":
    main()
