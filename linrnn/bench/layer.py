"""A whole LRU layer on the CPU, forward and backward, against its two matrix products and PyTorch's layers."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrnn.bench import measure
from linrnn.bench.measure import Row
from linrnn.bench.train import PYTORCH
from linrnn.cores import LRU

PRODUCTS = "its two matrix products"
GOALS = {PRODUCTS: 1.3}  # the most, relative to their time; 1 for the others


def rows(batch: int = 8, length: int = 1024, H: int = 512, N: int = 384, rounds: int = 11) -> list[Row]:
    """PyTorch's layers return N features, the LRU returns H. So nn.RNN with a map back to H is measured too."""
    u = torch.randn(batch, length, H, requires_grad=True)
    grad = torch.randn(batch, length, H if H > N else N)
    lru, back = LRU(H, N, r_min=0.9, r_max=0.999), nn.Linear(N, H)
    B, C = (nn.Parameter(torch.randn(*shape) / 32) for shape in ((2 * N, H), (H, 2 * N)))
    layers = {f"nn.{kind}": getattr(nn, kind)(H, N, batch_first=True) for kind in PYTORCH}

    def train(y: Tensor) -> None:
        y.backward(grad[..., : y.shape[-1]])

    def run(layer: nn.Module) -> None:
        train(layer(u)[0])

    candidates: dict[str, measure.Run] = {
        "LRU": partial(run, lru),
        PRODUCTS: lambda: train(F.linear(F.linear(u, B), C)),
        **{name: partial(run, layer) for name, layer in layers.items()},
        "nn.RNN and a map back to H": lambda: train(back(layers["nn.RNN"](u)[0])),
    }
    times = measure.milliseconds(candidates, rounds)
    took = times.pop("LRU")
    return [
        {"name": name, "ms": took, "against_ms": ms, "ratio": took / ms, "goal": GOALS.get(name, 1.0)}
        for name, ms in times.items()
    ]
