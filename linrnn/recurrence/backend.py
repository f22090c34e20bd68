"""Which implementation of the scan runs on a device: Numba, Triton on NVIDIA, or plain PyTorch.

This module answers all questions about what a device can run, for the scan and for every other kernel of the package.
"""

import functools
import importlib
import importlib.util
import warnings
from types import ModuleType
from typing import Literal, cast

import torch
from torch import Tensor

from linrnn.recurrence.interface import Kernels, VaryingKernels

Backend = Literal["numba", "triton", "plain"]
MODULES: dict[Backend, str] = {"numba": "numba_scan", "triton": "triton_backend", "plain": "plain"}
VARYING: dict[Backend, str] = {"numba": "numba_varying", "triton": "triton_varying", "plain": "plain_varying"}


def of(device: torch.device) -> Backend:
    """The backend of a device."""
    if why_plain(device) is not None:
        return "plain"
    return "numba" if device.type == "cpu" else "triton"


def triton(device: torch.device) -> bool:
    """Whether our Triton kernels run on this device."""
    return of(device) == "triton"


def why_plain(device: torch.device) -> str | None:
    """Why the device has only the plain backend; None if it has a faster one."""
    if device.type == "cpu":
        return _why_not("numba") if _installed("numba") else "Numba is not installed"
    if device.type != "cuda":
        return f"linrnn has no kernels for {device.type}"
    if torch.version.hip is not None:  # AMD's GPUs are named "cuda" too
        return "linrnn's GPU kernels contain NVIDIA assembly, and this is a build of PyTorch for AMD"
    return None if _installed("triton") else "Triton is not installed"


def kernels(device: torch.device) -> Kernels:
    """The module that computes the scan on this device; Numba and Triton are imported here."""
    warn_if_plain(device)
    return cast(Kernels, _load(MODULES[of(device)]))


def varying_kernels(device: torch.device) -> VaryingKernels:
    """The module that computes the scan with a λ for each step."""
    warn_if_plain(device)
    return cast(VaryingKernels, _load(VARYING[of(device)]))


def warn_if_plain(device: torch.device) -> None:
    """Warn, once in a process, where the device has only the plain backend."""
    reason = why_plain(device)
    if reason is not None:
        _warn(device.type, reason)


def has_float64(device: torch.device) -> bool:
    """Whether the device computes in double precision; Apple's GPUs do not."""
    return device.type != "mps"


def values_can_be_read(x: Tensor) -> bool:
    """Whether Python can read the values of x: not while a graph is traced or captured, nor inside torch.func."""
    if x.is_meta or torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def values_are_near(x: Tensor) -> bool:
    """Whether Python can read the values of x without waiting for a GPU."""
    return not x.is_cuda and values_can_be_read(x)


def on_tensor_cores(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether extra FLOPs are cheaper than state traffic: on GPUs in half precision, and in float32 as TF32."""
    if device.type != "cuda":
        return False
    if dtype == torch.float32:
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
    return dtype in (torch.bfloat16, torch.float16)


def has_cudnn(device: torch.device) -> bool:
    """Whether PyTorch's RNN, GRU and LSTM are single kernels of cuDNN, or of MIOpen on AMD."""
    return device.type == "cuda"


def captures(device: torch.device) -> bool:
    """Whether a sequence of kernels can be captured in a CUDA graph, on GPUs of NVIDIA and AMD."""
    return device.type == "cuda"


@functools.cache
def dependent_launch(device: torch.device) -> bool:
    """Whether a kernel may start before the previous kernel ends: programmatic dependent launch, from Hopper on."""
    return device.type == "cuda" and triton(device) and torch.cuda.get_device_capability(device) >= (9, 0)


# torch.compiler.assume_constant_result without importing the compiler: the answer becomes a constant of the graph.
for question in (of, triton, why_plain, has_float64, has_cudnn):
    question._dynamo_marked_constant = True  # type: ignore[union-attr]


@functools.cache
def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@functools.cache
def _why_not(package: str) -> str | None:
    """Why a package cannot be imported: Numba rejects versions of NumPy that it does not know."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        return f"{package} cannot be imported: {error}"
    return None


@functools.cache
def _load(name: str) -> ModuleType:
    return importlib.import_module(f"linrnn.recurrence.{name}")


@functools.cache
def _warn(device: str, reason: str) -> None:
    warnings.warn(f"the scan runs in plain PyTorch on {device}, which is slower: {reason}", stacklevel=3)
