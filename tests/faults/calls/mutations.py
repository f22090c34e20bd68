"""Wrong arguments: what a valid argument is changed into, one argument at a time."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

Change = Callable[[], Any]
DTYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8,
    torch.uint16, torch.uint64, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
EVERYTHING: dict[str, Change] = {
    "none": lambda: None,
    "text": lambda: "no",
    "no-text": lambda: "",
    "bytes": lambda: b"\x00",
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "negative": lambda: -1,
    "zero": lambda: 0,
    "half": lambda: 0.5,
    "true": lambda: True,
    "complex": lambda: 1j,
    "list": lambda: [1, "a"],
    "empty-list": list,
    "mapping": lambda: {"a": 1},
    "object": object,
    "class": lambda: int,
    "function": lambda: print,
    "scalar": lambda: torch.tensor(1.0),
    "array": lambda: np.zeros(3),
    "numpy-float": lambda: np.float32(0.5),
    "numpy-integer": lambda: np.int64(1),
    "large": lambda: 2**40,
    "huge": lambda: 2**62,
    "beyond": lambda: 2**70,
    "dtype": lambda: torch.int32,
    "meta": lambda: torch.zeros(2, 3, device="meta"),
}


def of(value: Any) -> Iterator[tuple[str, Change]]:
    """Names of changes of a value, and the changed values."""
    if isinstance(value, Tensor):
        yield from _of_tensor(value)
    elif isinstance(value, np.ndarray):
        yield from _of_array(value)
    elif isinstance(value, tuple) and all(isinstance(each, Tensor | tuple) for each in value) and value:
        yield from _of_tuple(value)
    yield from EVERYTHING.items()


def _of_tensor(x: Tensor) -> Iterator[tuple[str, Change]]:
    for dtype in DTYPES:
        if dtype != x.dtype:
            yield str(dtype).removeprefix("torch."), lambda dtype=dtype: _cast(x, dtype)  # type: ignore[misc]
    for i, size in enumerate(x.shape):
        yield f"less-in-{i}", lambda i=i, size=size: x.narrow(i, 0, max(size - 1, 0)).contiguous()  # type: ignore[misc]
        yield f"none-in-{i}", lambda i=i: x.narrow(i, 0, 0)  # type: ignore[misc]
        yield f"more-in-{i}", lambda i=i: torch.cat([x, x.narrow(i, 0, 1)], i)  # type: ignore[misc]
        yield f"one-in-{i}", lambda i=i: x.narrow(i, 0, 1)  # type: ignore[misc]
    yield "rank-more", lambda: x.unsqueeze(0)
    yield "rank-less", lambda: x[0] if x.dim() else x
    yield "rank-0", lambda: x.flatten()[0] if x.numel() else x.new_zeros(())
    yield "flat", x.flatten
    yield "on-meta", lambda: x.to("meta")
    yield "sparse", x.to_sparse
    yield "nested", lambda: _nested(x)
    yield "numpy", lambda: x.detach().resolve_conj().numpy() if x.dtype != torch.bfloat16 else None
    yield "tolist", x.tolist
    yield "transposed", lambda: x.mT.contiguous().mT if x.dim() > 1 else x
    yield "all-negative", lambda: -x.abs() - 1 if x.dtype != torch.bool else x
    if x.is_floating_point() or x.is_complex():
        for name, number in (("with-nan", math.nan), ("with-inf", math.inf)):
            yield (
                name,
                lambda number=number: x.detach().clone().index_fill_(0, torch.tensor([0]), number) if x.dim() else x,  # type: ignore[misc]
            )
    else:
        yield "too-large", lambda: x + 2**30 if x.dtype in (torch.int32, torch.int64) else x
    yield "expanded", lambda: x.flatten()[:1].view([1] * x.dim()).expand([2**15] * x.dim()) if x.dim() > 2 else x


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imaginary parts that are lost
        return x.detach().to(dtype)


def _nested(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([x.detach(), x.detach()])


def _of_array(x: Any) -> Iterator[tuple[str, Change]]:
    for dtype in (
        "f2",
        "f4",
        "f8",
        "i1",
        "i4",
        "i8",
        "u1",
        "u2",
        "u8",
        "?",
        "c8",
        "U3",
        "S3",
        "O",
        "M8[s]",
        ">f8",
        "g",
    ):
        if x.dtype != np.dtype(dtype):
            yield f"as-{dtype}", lambda dtype=dtype: x.astype(dtype)  # type: ignore[misc]
    for i, size in enumerate(x.shape):
        yield f"less-in-{i}", lambda i=i, size=size: np.take(x, range(max(size - 1, 0)), i)  # type: ignore[misc]
        yield f"none-in-{i}", lambda i=i: np.take(x, [], i)  # type: ignore[misc]
        yield f"more-in-{i}", lambda i=i: np.concatenate([x, np.take(x, [0], i)], i)  # type: ignore[misc]
    yield "rank-more", lambda: x[None]
    yield "rank-less", lambda: x[0]
    yield "rank-0", lambda: x.ravel()[0]
    yield "tensor", lambda: torch.from_numpy(x)
    yield "tolist", x.tolist
    yield "all-negative", lambda: -np.abs(x) - 1 if x.dtype != bool else x
    yield "masked", lambda: np.ma.masked_array(x, np.ones(x.shape, bool))
    yield "structured", lambda: np.zeros(len(x), [("a", int)])
    if x.dtype.kind == "f":
        yield "with-nan", lambda: np.where(np.arange(x.size).reshape(x.shape) == 0, np.nan, x)
        yield "with-inf", lambda: np.where(np.arange(x.size).reshape(x.shape) == 0, np.inf, x)
        yield "constant", lambda: np.zeros_like(x)


def _of_tuple(x: Any) -> Iterator[tuple[str, Change]]:
    """Of a named tuple of tensors, such as the state of a model."""
    make = type(x)._make if hasattr(x, "_make") else tuple
    yield "shorter", lambda: tuple(x[:-1])
    yield "plain-tuple", lambda: tuple(x)
    for i, each in enumerate(x):
        for name, change in of(each):

            def changed(i: int = i, change: Change = change) -> Any:
                return make([change() if j == i else one for j, one in enumerate(x)])

            yield f"{i}-{name}", changed
