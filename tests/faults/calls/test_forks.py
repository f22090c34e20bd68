"""A fork has none of its parent's threads: nothing may wait for them."""

import os
import subprocess
import sys

import pytest

CHILD = """
import os, signal, sys, warnings
import linrnn, torch
warnings.simplefilter("ignore")  # of forks with threads
torch.set_num_threads(2)
torch.randn(512, 512) @ torch.randn(512, 512)  # starts PyTorch's threads
u = torch.randn(4, 200, 2, 64)
lam = torch.stack([torch.full((64,), 0.5), torch.zeros(64)])
child = os.fork()
if child == 0:
    signal.alarm(30)
    from linrnn.recurrence import numba_scan
    numba_scan.THREAD_NUMBERS = 1
    states, _ = linrnn.scan_planes(u, lam)  # PyTorch's own large operations wait for ever here
    x = 0.5 * states[:, :-1].numpy() + u[:, 1:].numpy()
    os._exit(0 if abs(states[:, 1:].numpy() - x).max() < 1e-5 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_before_the_first_scan() -> None:
    """The kernels are imported in the child, which must know all the same that it is a child."""
    done = subprocess.run([sys.executable, "-c", CHILD], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
