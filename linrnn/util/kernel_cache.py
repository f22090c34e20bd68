"""Numba's files of compiled code. If they are damaged or the disk is full, the code is compiled without them."""

import contextlib
import warnings
from typing import Any

from numba.core.caching import FunctionCache


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The cache of `numba.njit(cache=True)` for a function; an unusable file costs time and one warning.

    Without this class, a file truncated by a power cut or a full disk is an EOFError at every call of the kernel.
    """

    warned = False  # in this process, whatever the number of kernels

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # damaged bytes can raise any exception
            self._warn(error)
            with contextlib.suppress(Exception):
                self.flush()  # the next process finds an empty index, and writes the files again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not KernelCache.warned:
            KernelCache.warned = True
            came = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"expected whole files of compiled kernels in {self.cache_path}, and room for them, got {came}; "
                "this process compiles the kernels itself in a few seconds",
                stacklevel=2,
            )
