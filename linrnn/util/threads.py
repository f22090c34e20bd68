"""PyTorch's threads on a machine with other work: how they wait, and how many of them small work gets.

By default OpenMP's threads spin for some 15 ms when they wait for each other. Where cores are shared, a thread that
spins takes the core from the thread that it waits for, and a step takes up to 150 times as long. So `import linrnn` sets
OMP_WAIT_POLICY=PASSIVE, which PyTorch reads when it is loaded; `spin_less` is for programs that load PyTorch first.
"""

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

PROCESS = os.getpid()  # that imported linrnn; a fork has none of PyTorch's threads, and must not wait for them
SMALL = 1 << 16  # numbers, for which threads take longer to wake up than to compute


@contextlib.contextmanager
def one_if_small(numbers: int) -> Iterator[None]:
    """Context manager in which PyTorch uses one thread where so few numbers go through a layer."""
    threads = torch.get_num_threads()
    if threads == 1 or numbers > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def team() -> Any:
    """The start of a parallel region in PyTorch's OpenMP library; None if that is not GNU's, and in a fork."""
    return None if os.getpid() != PROCESS else _gnu_team()


@functools.cache
def spin_less() -> None:
    """Let OpenMP's threads spin for some 0.05 ms only.

    GNU's library does so where it has more threads than cores. So two more threads of its own are started, and sleep.
    """
    started = threading.Event()
    parallel = team()

    def resident() -> None:
        parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None), None, 2, 0)
        started.set()
        threading.Event().wait()

    if parallel is not None and "OMP_WAIT_POLICY" not in os.environ:
        threading.Thread(target=resident, name="linrnn", daemon=True).start()
        started.wait()
