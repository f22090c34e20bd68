"""PyTorch's threads on a machine with other work: how they wait, and how many compute a small step.

By default OpenMP's threads spin for about 15 ms when they wait for each other. Where cores are shared, a spinning
thread can take the core of the thread that it waits for, and a step takes up to 150 times as long. So `import linrnn`
sets OMP_WAIT_POLICY=PASSIVE, which PyTorch reads when it is loaded; `spin_less` is for programs that load it first.
Threads that sleep take longer to wake up, so that small steps are faster in one thread.
"""

import ctypes
import functools
import os
import threading
from pathlib import Path
from typing import Any

import torch

PROCESS = os.getpid()  # of the import; a fork has none of PyTorch's threads, and must not wait for them
SMALL = 1 << 16  # the size of an input up to which a second thread costs more time than it saves


class OneThread:
    """Context manager in which PyTorch uses one thread, if the input of a layer has few numbers."""

    def __init__(self, numbers: int) -> None:
        self.numbers, self.before = numbers, 1

    def __enter__(self) -> None:
        if torch.compiler.is_compiling() or self.numbers > SMALL:
            return
        self.before = torch.get_num_threads()
        if self.before > 1:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self.before > 1:
            torch.set_num_threads(self.before)


def team() -> Any:
    """The start of a parallel region in PyTorch's OpenMP library; None if that is not GNU's, and in a fork."""
    return None if os.getpid() != PROCESS else _gnu_team()


@functools.cache
def spin_less() -> None:
    """Let OpenMP's threads spin for about 0.05 ms only.

    GNU's library does so where it has more threads than cores: two more are started here, which sleep.
    """
    parallel, started = team(), threading.Event()

    def resident() -> None:
        parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None), None, 2, 0)
        started.set()
        threading.Event().wait()

    if parallel is not None and "OMP_WAIT_POLICY" not in os.environ:
        threading.Thread(target=resident, name="linrnn", daemon=True).start()
        started.wait()


@functools.cache
def _gnu_team() -> Any:
    package = Path(torch.__file__).parent
    for path in (*package.glob("lib/libgomp*.so*"), *package.with_name("torch.libs").glob("libgomp*.so*")):
        try:
            return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
        except (OSError, AttributeError):
            continue
    return None
