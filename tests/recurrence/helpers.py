"""Random problems for the scan, and how far two answers lie apart."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from linrnn.recurrence import plain
from linrnn.recurrence.op import carry_dtype


@dataclass
class Arguments:
    """What the operators take, on real planes."""

    u: Tensor
    lam: Tensor
    initial: Tensor
    resets: Tensor | None
    reverse: bool
    grad_states: Tensor
    grad_final: Tensor
    offsets: Tensor | None = None

    @property
    def forward(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool, Tensor | None]:
        return self.u, self.lam, self.initial, self.resets, self.reverse, self.offsets

    def exact(self) -> Self:
        """The same rounded numbers in float64 on the CPU."""
        numbers = ("u", "lam", "initial", "grad_states", "grad_final")
        resets = None if self.resets is None else self.resets.cpu()
        return replace(self, resets=resets, **{name: getattr(self, name).double().cpu() for name in numbers})


class Problem(Arguments):
    """The arguments of `scan` and of its backward."""

    def backward(
        self, states: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, bool, Tensor | None]:
        gradients = self.grad_states, self.grad_final
        return *gradients, states, self.lam, self.initial, self.resets, self.reverse, self.offsets

    def oracle(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """By the definition, in float64: (states, final) and the gradients of u, lam and initial."""
        exact = self.exact()
        states, final = plain.scan(*exact.forward)
        return (states, final), plain.scan_backward(*exact.backward(states))


def problem(
    batch: int,
    length: int,
    n: int,
    dtype: torch.dtype = torch.float64,
    *,
    reverse: bool = False,
    resets: float | None = None,
    offsets: list[int] | None = None,
    radius: tuple[float, float] = (0.0, 0.999),
    device: str = "cpu",
) -> Problem:
    """`resets` is the share of steps that start a new sequence; with `offsets` the batch is one row of sequences."""
    carry = carry_dtype(dtype)
    sequences = batch if offsets is None else len(offsets) - 1
    r, theta = torch.empty(n).uniform_(*radius), torch.empty(n).uniform_(0, 6.28)
    return Problem(
        u=torch.randn(batch, length, 2, n).to(device, dtype),
        lam=torch.stack([r * theta.cos(), r * theta.sin()]).to(device, carry),
        initial=torch.randn(sequences, 2, n).to(device, carry),
        resets=None if resets is None else (torch.rand(batch, length) < resets).to(device),
        reverse=reverse,
        grad_states=torch.randn(batch, length, 2, n).to(device, dtype),
        grad_final=torch.randn(sequences, 2, n).to(device, carry),
        offsets=None if offsets is None else torch.tensor(offsets, dtype=torch.int32, device=device),
    )


class BeforeProblem(Arguments):
    """The arguments of `exclusive_scan` and of its backward, in one direction or two."""

    def backward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, bool, Tensor | None]:
        return self.grad_states, self.grad_final, states, self.lam, self.resets, self.reverse, self.offsets

    def oracle(self) -> list[Tensor]:
        """By the definition, in float64: states, final and the gradients of u, lam and initial."""
        exact = self.exact()
        states, final = plain.exclusive_scan(*exact.forward)
        return [states, final, *plain.exclusive_scan_backward(*exact.backward(states))]


def before_problem(
    batch: int, length: int, directions: int, n: int, dtype: torch.dtype = torch.float64, **options: Any
) -> BeforeProblem:
    """As `problem`."""
    p = problem(batch, length, directions * n, dtype, **options)
    planes = [t.unflatten(-1, (directions, n)).movedim(-2, -3).contiguous() for t in (p.u, p.grad_states)]
    states = [t.unflatten(-1, (directions, n)).movedim(-2, -3).contiguous() for t in (p.initial, p.grad_final)]
    return BeforeProblem(
        u=planes[0],
        lam=p.lam[:, :n].contiguous(),
        initial=states[0],
        resets=p.resets,
        reverse=p.reverse,
        grad_states=planes[1],
        grad_final=states[1],
        offsets=p.offsets,
    )


def error(answer: Tensor, truth: Tensor) -> float:
    """‖answer − truth‖ / ‖truth‖; NaN counts as infinite."""
    if truth.numel() == 0:
        return 0.0 if answer.shape == truth.shape else float("inf")
    norm = torch.linalg.vector_norm
    e = float(norm(answer.double().cpu() - truth.cpu()) / norm(truth.cpu()).clamp(min=1e-30))
    return float("inf") if e != e else e


def worst(answer: Tensor, truth: Tensor, count: int = 8) -> str:
    """Where two answers lie furthest apart: index, answer and truth."""
    answer, truth = answer.double().cpu(), truth.cpu()
    gap = (answer - truth).abs().nan_to_num(nan=float("inf"))
    places = [torch.unravel_index(i, gap.shape) for i in gap.flatten().topk(min(count, gap.numel())).indices]
    return ", ".join(f"{[int(i) for i in at]}: {float(answer[at]):.9g} not {float(truth[at]):.9g}" for at in places)
