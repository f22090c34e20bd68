"""The scan on NVIDIA GPUs, by one of two Triton kernels.

`triton_scan` has one program for each sequence and block of channels. Where sequences are too few to fill a GPU in this
way, and long, `triton_lookback` has one program for each tile of steps.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from linrnn.recurrence import triton_lookback, triton_scan
from linrnn.recurrence.interface import Gradients, Options, Solved
from linrnn.recurrence.triton_common import Result, Task, sum_partials

# The look-back is faster below this number of channels of all sequences, by the bytes of a number, from this length on.
# It has no double precision.
LOOKBACK_CHANNELS = {2: 5000, 4: 4000}
LOOKBACK_LENGTH = 1024


def scan(
    u: Tensor, lam: Tensor, initial: Tensor, options: Options, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    result = _run(Task(u, lam, initial, options, bias=bias))
    return result.states, result.final


def adds_bias(u: Tensor, options: Options) -> bool:
    """The look-back has no registers left for a bias."""
    return not options.exclusive and not _few(Task(u, u, u, options))


def scan_backward(grad_states: Tensor, grad_final: Tensor, solved: Solved, sum_u: bool = False) -> Gradients:
    states, lam, initial, options = solved
    back = options.reversed()
    result = _run(Task(grad_states, lam, grad_final, back, states=states, initial=initial, sum_u=sum_u))
    assert result.partials is not None
    return Gradients(result.states, sum_partials(result.partials), result.final)


def _run(task: Task) -> Result:
    if task.u.numel() == 0:
        sums = task.lam.new_zeros(1, task.sums, *task.lam.shape)
        return Result(torch.empty_like(task.u), task.start.clone(), sums)
    values: Iterable[Any] = (x.contiguous() if isinstance(x, Tensor) else x for x in task)
    task = Task(*values)
    return triton_lookback.run(task) if _few(task) else triton_scan.run(task)


def _few(task: Task) -> bool:
    """Whether there are too few sequences to fill a GPU, and they are long."""
    length, channels = task.u.shape[1], LOOKBACK_CHANNELS.get(task.u.itemsize, 0)
    if task.options.offsets is not None:
        length //= task.sequences
        channels *= 2  # the longest sequence of a packed batch ends last, when most programs are idle
    return task.sequences * task.directions * task.u.shape[-1] < channels and length >= LOOKBACK_LENGTH
