"""Compilation of all CPU kernels ahead of their first use."""

import torch

from linrnn.cores import LRU
from linrnn.model import Model, ModelConfig
from linrnn.recurrence import scan, scan_planes
from linrnn.streaming import Stream


def warm_up() -> None:
    """Compile all CPU kernels, of scans, gradients and streams, and store them for later processes.

    Without this call kernels are compiled at their first use, which takes some seconds once on a machine. The compiled
    code is stored next to the package, or in NUMBA_CACHE_DIR, for CPUs of the same kind only.

    Example:
        >>> linrnn.warm_up()  # in an image: RUN python -c "import linrnn; linrnn.warm_up()"
    """
    config = ModelConfig(channels=1, classes=1, d_model=1, d_state=1, depth=1)
    for dtype in (torch.float32, torch.float64):
        u = torch.zeros(1, 1, 2, 1, dtype=dtype, requires_grad=True)
        states, _ = scan_planes(u, u.new_zeros(2, 1))
        states.sum().backward()
        for kind in (dtype, dtype.to_complex()):
            u = torch.zeros(1, 1, 1, dtype=kind, requires_grad=True)
            states, _ = scan(u, torch.zeros_like(u).requires_grad_())  # a λ for each step
            states.abs().sum().backward()
        for model in (LRU(1, 1), Model(config).eval()):
            Stream(model.to(dtype)).step(torch.zeros(1, 1, dtype=dtype))
