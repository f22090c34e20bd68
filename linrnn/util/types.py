"""Arguments whose types are wrong, or whose sizes fit into no memory, as errors that name the argument."""

import functools
import inspect
import math
import numbers
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch

from linrnn.util.errors import wrong_type, wrong_value

F = TypeVar("F", bound=Callable[..., Any])
PLAIN = (int, float, complex, str, bytes, list, tuple, dict, type, NoneType, np.generic, torch.dtype, torch.device)
MANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
OBJECTS = 5_000  # the approximate bytes of a module without its tensors
WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "none",
    Any: "a value",
}


def fits(value: object, hint: Any, *, exact: bool = True) -> bool:
    """Whether a value is of an annotated type; integers pass for floats, booleans for nothing else.

    Without `exact` any text passes for a choice of texts, since the function itself checks the text.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(choice) and (value == choice or not exact) for choice in parts)
    if origin in (Union, UnionType):
        return any(fits(value, part, exact=exact) for part in parts)
    if hint is Any:
        return True
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, numbers.Real)
    if hint is torch.device:
        return isinstance(value, torch.device | int)  # an integer is the number of a GPU
    return isinstance(value, origin or hint)


def describe(hint: Any) -> str:
    """An annotated type in words."""
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(describe, get_args(hint)))
    name = getattr(get_origin(hint) or hint, "__name__", str(hint))
    return WORDS.get(hint, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")


def check_type(name: str, value: object, hint: Any, *, exact: bool = True) -> None:
    """Raise TypeError unless a value is of an annotated type."""
    if not fits(value, hint, exact=exact):
        raise wrong_type(name, describe(hint), brief(value))


def check_fields(instance: Any, *, exact: bool = True) -> None:
    """Raise TypeError unless the fields of a dataclass are of the annotated types."""
    of: Any = type(instance)
    for name, hint in _hints(of).items():
        check_type(name, getattr(instance, name), hint, exact=exact)


def checked(function: F) -> F:
    """A function that raises TypeError for an argument of another type than annotated, and ValueError where its
    integers ask for more memory than there is; both name the argument."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own error names the function
        hints = _hints(function)
        for name, value in given.items():
            if name in hints and signature.parameters[name].kind not in MANY:
                check_type(name, value, hints[name], exact=False)
        with allocating(given):
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def check_path(name: str, value: object) -> None:
    """Raise TypeError unless a value is a path."""
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(name, "a path", brief(value))


def check_device_is_here(device: torch.device | str | int | None) -> None:
    """Raise ValueError unless a tensor can be on this device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = "" if isinstance(device, int) else f" ({error})"  # of a number it would speak of sizes
        raise wrong_value("device", "a device of this machine, or None", f"{device!r}{reason}") from error


@contextmanager
def allocating(sizes: Mapping[str, object]) -> Iterator[None]:
    """Context manager in which a failed allocation is a ValueError with the largest size and its bytes."""
    try:
        yield
    except (RuntimeError, MemoryError, TypeError, ValueError) as error:
        integers = {name: size for name, size in sizes.items() if isinstance(size, int)}
        asked = _asked(str(error))
        if asked is None or not integers:
            raise
        largest = max(integers, key=lambda name: integers[name])
        raise too_large(largest, integers[largest], asked) from error


def repeated(make: Callable[[], torch.nn.Module], name: str, number: int) -> Iterator[torch.nn.Module]:
    """Make modules one after the other; a ValueError after the first module if the memory cannot hold all modules."""
    memory = _memory()
    for i in range(number):
        module = make()
        if i == 0 and memory is not None:
            tensors = sum(p.nbytes for p in module.parameters() if p.device.type == "cpu")
            asked = number * (tensors + OBJECTS * sum(1 for _ in module.modules()))
            if asked > memory:
                raise too_large(name, number, f"{asked:,} bytes")
        yield module


def too_large(name: str, size: int, asked: str) -> ValueError:
    """The error for a size that asks for more bytes than there are."""
    return wrong_value(name, "a size that fits into memory", f"{size:,}, which asks for {asked}")


def brief(value: object) -> str:
    """A value as text of one line; for an object the name of its class."""
    text = " ".join(f"{value!r}".split()) if isinstance(value, PLAIN) else type(value).__name__
    return text if len(text) < 80 else f"{text[:76]} ..."


def _asked(message: str) -> str | None:
    """How much memory was asked for, by the message of a failed allocation; None for another message."""
    if found := re.search(r"allocate (\d+) bytes", message):  # PyTorch on a CPU
        return f"{int(found[1]):,} bytes"
    if found := re.search(r"[Aa]llocate ([\d.]+ [KMGTPE]?i?B)", message):  # PyTorch on a GPU, NumPy
        return found[1]
    if found := re.search(r"Storage size calculation overflowed with sizes=\[([\d, ]+)\]", message):
        return f"{math.prod(map(int, found[1].split(','))):,} numbers"
    if re.search(r"array is too big|Maximum allowed|Overflow when unpacking|too large", message):
        return "more numbers than can be counted"
    return None


@functools.cache
def _memory() -> int | None:
    """The bytes of this machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


@functools.cache
def _hints(of: Any) -> dict[str, Any]:
    return get_type_hints(of)
