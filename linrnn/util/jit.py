"""Numba's compiler, with compiled code stored for later processes if possible."""

import functools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import event

from linrnn.util.kernel_cache import KernelCache

F = TypeVar("F", bound=Callable[..., Any])
PATIENCE = 1.0  # seconds of compiling without a message


def jit(function: F, **options: Any) -> F:
    """Compile a function, which then releases the interpreter lock; the options of `numba.njit`."""
    _announce()
    dispatcher = numba.njit(nogil=True, **options)(function)
    try:
        dispatcher._cache = KernelCache(function)  # as `cache=True` sets Numba's cache
    except RuntimeError:  # no writable folder for compiled code: compile in each process
        _warn()
    return dispatcher  # type: ignore[no-any-return]


@functools.cache
def _warn() -> None:
    warnings.warn(
        "no folder for compiled kernels is writable, so each process compiles them again in a few seconds: "
        "set NUMBA_CACHE_DIR to a writable folder",
        stacklevel=3,
    )


@functools.cache
def _announce() -> None:
    event.register("numba:compile", _Notice())


class _Notice(event.Listener):  # type: ignore[misc]
    """Tells a terminal, once in a process, that kernels of linrnn are being compiled for longer than `PATIENCE`."""

    def __init__(self) -> None:
        self.running: list[threading.Timer] = []  # compilations inside compilations
        self.said = False

    def on_start(self, event: Any) -> None:
        timer = threading.Timer(PATIENCE, self.say)
        timer.daemon = True
        self.running.append(timer)
        ours = event.data["dispatcher"].py_func.__module__.startswith("linrnn.")
        if ours and len(self.running) == 1 and not self.said and sys.stderr.isatty():
            timer.start()

    def on_end(self, event: Any) -> None:
        self.running.pop().cancel()

    def say(self) -> None:
        self.said = True
        sys.stderr.write("linrnn: compiling kernels for this CPU, once: some seconds\n")
