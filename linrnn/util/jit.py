"""Numba's compiler, with the compiled code kept between processes where there is room for it."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F, **options: Any) -> F:
    """Compile a function that holds no lock; options are those of `numba.njit`."""
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # nowhere to keep the compiled code: compile in each process
        return numba.njit(nogil=True, **options)(function)  # type: ignore[no-any-return]
