"""Numba's compiler, with the compiled code kept between processes where there is room for it."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import numba

from linrnn.util.kernel_cache import KernelCache

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F, **options: Any) -> F:
    """Compile a function that holds no lock; options are those of `numba.njit`."""
    dispatcher = numba.njit(nogil=True, **options)(function)
    with contextlib.suppress(RuntimeError):  # nowhere to keep the compiled code: compile in each process
        dispatcher._cache = KernelCache(function)  # as `cache=True` sets Numba's own
    return dispatcher  # type: ignore[no-any-return]
