"""linrnn's operators as ONNX operators: the scan becomes ONNX's Scan, step by step."""

from collections.abc import Callable, Sequence
from typing import Any

import onnxscript
import torch
from onnxscript import BOOL, FLOAT, graph
from onnxscript import opset18 as op

import linrnn.recurrence.op  # noqa: F401, where the operator is registered


def _scan(u: Any, lam: Any, initial: Any, resets: Any = None, reverse: bool = False, offsets: Any = None) -> Any:
    """The operator `linrnn::scan` in ONNX's operators; the state is carried in the type of lam."""
    if offsets is not None:
        raise NotImplementedError("linrnn.export.onnx: expected no packed batch")
    directions = [int(reverse)]
    wide = op.CastLike(u, lam)
    if resets is None:
        states, final = _steps(wide, lam, initial, directions=directions)
    else:
        never = op.And(resets, op.Not(resets))
        before, after = (never, resets) if reverse else (resets, never)
        states, final = _steps_with_resets(wide, lam, initial, before, after, into=3 * directions, out=directions)
    return op.CastLike(states, u), final


@onnxscript.script(default_opset=op)
def _steps(u: FLOAT, lam: FLOAT, initial: FLOAT, directions: Sequence[int]) -> tuple[FLOAT, FLOAT]:
    lr, li = op.Split(lam, num_outputs=2, axis=0)

    @graph()
    def step(x, u_k):
        xr, xi = op.Split(x, num_outputs=2, axis=1)
        ur, ui = op.Split(u_k, num_outputs=2, axis=1)
        handed_on = op.Concat(lr * xr - li * xi + ur, lr * xi + li * xr + ui, axis=1)
        kept = op.Identity(handed_on)
        return handed_on, kept

    final, states = op.Scan(
        initial, u, body=step, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
        scan_input_directions=directions, scan_output_directions=directions,
    )  # fmt: skip
    return states, final


@onnxscript.script(default_opset=op)
def _steps_with_resets(
    u: FLOAT, lam: FLOAT, initial: FLOAT, before: BOOL, after: BOOL, into: Sequence[int], out: Sequence[int]
) -> tuple[FLOAT, FLOAT]:
    """The scan with a state that becomes zero before the steps where `before`, (batch, length), is true, and after the
    steps where `after` is true."""
    lr, li = op.Split(lam, num_outputs=2, axis=0)
    zero = op.CastLike(0.0, lam)

    @graph()
    def step(state, u_k, before_k, after_k):
        x = op.Where(op.Unsqueeze(before_k, [1, 2]), zero, state)
        xr, xi = op.Split(x, num_outputs=2, axis=1)
        ur, ui = op.Split(u_k, num_outputs=2, axis=1)
        kept = op.Concat(lr * xr - li * xi + ur, lr * xi + li * xr + ui, axis=1)
        handed_on = op.Where(op.Unsqueeze(after_k, [1, 2]), zero, kept)
        return handed_on, kept

    final, states = op.Scan(
        initial, u, before, after, body=step, num_scan_inputs=3, scan_input_axes=[1, 1, 1], scan_output_axes=[1],
        scan_input_directions=into, scan_output_directions=out,
    )  # fmt: skip
    return states, final


TABLE: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.linrnn.scan.default: _scan}
