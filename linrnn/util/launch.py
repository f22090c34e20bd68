"""The options of a launch, the current device and stable cache keys, for all Triton kernels."""

import contextlib
from typing import Any

import torch
import triton
import triton.language as tl

ASSEMBLY = tl.constexpr(not triton.knobs.runtime.interpret)  # the interpreter runs no assembly
FUSED = {"enable_fp_fusion": True}  # fused multiply-adds, which are not the default in every version of Triton


def on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Context manager that makes `device` current."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def settle(*kernels: Any) -> None:
    """Compute the cache keys of these kernels now, always in this order.

    In Triton 3.6 the key of a kernel depends on the kernels with earlier keys. Without a fixed order, one process
    does not find on disk what another process compiled.
    """
    if ASSEMBLY:
        for kernel in kernels:
            kernel.cache_key  # noqa: B018
