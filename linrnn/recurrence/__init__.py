"""The linear recurrence x_k = λ·x_{k-1} + u_k, forward and backward, with λ constant or varying in time."""

import torch
from torch import Tensor

from linrnn.recurrence import op, torch_func, varying_op
from linrnn.recurrence.interface import Options
from linrnn.recurrence.planes import from_planes, state_padding, to_planes
from linrnn.util.errors import check_switch, check_tensor, shape, wrong_type, wrong_value

__all__ = ["scan", "scan_planes"]

REAL, COMPLEX = (torch.float32, torch.float64), (torch.complex64, torch.complex128)


def scan(
    u: Tensor,
    lam: Tensor,
    initial: Tensor | None = None,
    *,
    reverse: bool = False,
    resets: Tensor | None = None,
    group: "torch.distributed.ProcessGroup | None" = None,
) -> tuple[Tensor, Tensor]:
    """Solve x_k = λ·x_{k-1} + u_k, or x_k = λ_k ⊙ x_{k-1} + u_k with a λ for each step, for all steps at once.

    Differentiable in `u`, `lam` and `initial`, through both results, also in forward mode and by the transforms of
    torch.func. A sequence scanned in pieces, with each `final` as the next `initial`, equals the whole sequence.

    Args:
        u: complex (batch, length, N), any length including 0; with a λ for each step also real.
        lam: in the dtype of `u`: (N,), the eigenvalues λ, the same at every step; or (batch, length, N), a λ for each
            step, which need not be the same for all sequences.
        initial: (batch, N) in the dtype of `u`, the state before the first step; zero if None.
        reverse: scan from the last step to the first; `initial` is then the state after the last step.
        resets: bool (batch, length), true where a new sequence starts: no state crosses from the step before, in either
            direction. With `reverse`, `final` is zero for a sequence that starts at the first step.
        group: processes over which the length is split, see below; only with λ the same at every step.

    Returns:
        states: (batch, length, N), every x_k.
        final: (batch, N), the state after the last step, or with `reverse` after the first.

    With a `group`, each process passes the steps that it holds. The parts follow each other in the order of the ranks;
    they may differ in length and may be empty; batch and N are the same for all. `states` belong to the part of the
    process, `final` is the state after all parts, the same on every rank. `initial` is read on the rank where the scan
    starts: the first rank, or with `reverse` the last. Gradients are taken of the sum of all ranks' losses. They are
    complete for `u`; for `lam` and `initial` they are this rank's share, to be summed over the ranks. The call and its
    backward are collective: all ranks must run them in the same order. A group excludes second derivatives, forward
    mode and torch.func.

    Example:
        >>> lam = torch.polar(torch.tensor([0.9]), torch.tensor([0.0]))
        >>> impulse = torch.zeros(1, 4, 1, dtype=torch.complex64)
        >>> impulse[:, 0] = 1
        >>> states, final = scan(impulse, lam)
        >>> states[0, :, 0].real
        tensor([1.0000, 0.9000, 0.8100, 0.7290])
    """
    check_tensor("u", u)
    check_tensor("lam", lam)
    check_switch("reverse", reverse)
    varies = lam.dim() == 3
    dtypes = REAL + COMPLEX if varies else COMPLEX
    if u.dtype not in dtypes:
        raise wrong_type("u", " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes), u.dtype)
    if u.dim() != 3 or u.shape[2] < 1:
        raise wrong_value("u", "shape (batch, length, N), N at least 1", shape(u))
    batch, _, n = u.shape
    for name, x, expected in (("lam", lam, tuple(u.shape) if varies else (n,)), ("initial", initial, (batch, n))):
        if x is None:
            continue
        check_tensor(name, x)
        if x.dtype != u.dtype:
            raise wrong_type(name, f"{u.dtype}, as u", x.dtype)
        if x.shape != expected:
            other = "" if name == "initial" or varies else f" or {tuple(u.shape)}, a λ for each step"
            raise wrong_value(name, f"shape {expected}{other}", shape(x))
    if varies and group is not None:
        raise ValueError("group: expected None with a λ for each step")
    if not u.is_complex():
        one = None if initial is None else initial.unsqueeze(1)
        states, final = varying_op.scan(u.unsqueeze(2), lam.unsqueeze(2), one, reverse=reverse, resets=resets)
        return states.squeeze(2), final.squeeze(1)
    padding = 0 if varies else state_padding(n, lam.real.dtype, u.device)
    states, final = scan_planes(
        to_planes(u, padding),
        to_planes(lam, padding),
        None if initial is None else to_planes(initial, padding),
        reverse=reverse,
        resets=resets,
        group=group,
    )
    return from_planes(states[..., :n]), from_planes(final[..., :n])


def scan_planes(
    u: Tensor,
    lam: Tensor,
    initial: Tensor | None = None,
    *,
    reverse: bool = False,
    resets: Tensor | None = None,
    group: "torch.distributed.ProcessGroup | None" = None,
) -> tuple[Tensor, Tensor]:
    """`scan` on real planes, (..., 2, N): the real parts, then the imaginary parts. Layers call this function.

    Args:
        u: (batch, length, 2, N) in float32, bfloat16, float16 or float64, the dtype of the states in memory.
        lam: (2, N) in float32, or float64 for a float64 `u`, the dtype of the state during the scan; or with a λ for
            each step (batch, length, 2, N).
        initial: (batch, 2, N) in the dtype of `lam`; zero if None.
        reverse: as in `scan`.
        resets: as in `scan`.
        group: as in `scan`.

    Returns:
        states: (batch, length, 2, N) in the dtype of `u`; final: (batch, 2, N) in the dtype of `lam`.
    """
    check_switch("reverse", reverse)
    if isinstance(lam, Tensor) and lam.dim() == 4:
        if group is not None:
            raise ValueError("group: expected None with a λ for each step")
        return varying_op.scan(u, lam, initial, reverse=reverse, resets=resets)
    op.check(u, lam, initial, resets)
    if initial is None:
        initial = lam.new_zeros(u.shape[0], 2, u.shape[3])
    if torch_func.active():
        if group is not None:
            raise ValueError("group: expected None under a transform of torch.func or in forward mode")
        return torch_func.scan(u, lam, initial, Options(resets, reverse))
    if group is not None:
        from linrnn.recurrence import split_length  # imports torch.distributed

        return split_length.scan(u, lam, initial, resets, reverse, group)
    states, final = op.scan(u, lam, initial, resets, reverse)
    return states, final
