"""Random problems for the scan, its definition on real planes, and how far two answers lie apart."""

import itertools
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from linrnn.recurrence import reference
from linrnn.recurrence.interface import Gradients, Options, Solved
from linrnn.recurrence.op import carry_dtype
from linrnn.recurrence.planes import from_planes, to_planes

SUM_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def defined(u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> list[Tensor]:
    """The definition on real planes; the sequences of a packed batch one by one."""
    resets, reverse, offsets, exclusive = options
    scan: Any = reference.exclusive_scan if exclusive else reference.scan
    u, lam, initial = (from_planes(t) for t in (u, lam, initial))
    if offsets is None:
        return [to_planes(x) for x in scan(u, lam, initial, reverse=reverse, resets=resets)]
    borders = enumerate(itertools.pairwise(offsets.tolist()))
    results = [scan(u[:, start:stop], lam, initial[i : i + 1], reverse=reverse) for i, (start, stop) in borders]
    states, finals = zip(*results, strict=True)
    return [to_planes(torch.cat(states, dim=1)), to_planes(torch.cat(finals))]


@dataclass
class Problem:
    """The arguments of a scan and of its backward, on real planes."""

    u: Tensor
    lam: Tensor
    initial: Tensor
    options: Options
    grad_states: Tensor
    grad_final: Tensor

    @property
    def resets(self) -> Tensor | None:
        return self.options.resets

    @property
    def reverse(self) -> bool:
        return self.options.reverse

    @property
    def offsets(self) -> Tensor | None:
        return self.options.offsets

    @property
    def forward(self) -> tuple[Tensor, Tensor, Tensor, Options]:
        """What kernels take; an operator takes `flat(forward)`."""
        return self.u, self.lam, self.initial, self.options

    def backward(self, states: Tensor) -> tuple[Any, ...]:
        initial = None if self.options.exclusive else self.initial
        return self.grad_states, self.grad_final, Solved(states, self.lam, initial, self.options)

    def exact(self) -> Self:
        """The same rounded numbers in float64 on the CPU."""
        numbers = ("u", "lam", "initial", "grad_states", "grad_final")
        resets, offsets = (None if t is None else t.cpu() for t in (self.resets, self.offsets))
        options = self.options._replace(resets=resets, offsets=offsets)
        return replace(self, options=options, **{name: getattr(self, name).double().cpu() for name in numbers})

    def oracle(self) -> tuple[list[Tensor], Gradients]:
        """By the definition and autograd, in float64: (states, final), and the gradients with all sums."""
        exact = self.exact()
        u, lam, initial = inputs = [t.detach().requires_grad_() for t in exact.forward[:3]]
        results = defined(u, lam, initial, exact.options)
        grads = (exact.grad_states, exact.grad_final)
        u, lam, initial = torch.autograd.grad(results, inputs, grads, materialize_grads=True)
        sums = torch.cat([lam.unsqueeze(0), u.sum((0, 1)).view(-1, *lam.shape)])
        return [x.detach() for x in results], Gradients(u, sums, initial)


def run(kernels: Any, p: Problem, states: Tensor | None = None, sum_u: bool = True) -> list[Tensor]:
    """All results of a backend's kernels: states, final, and the gradients given some states, or else these states."""
    came, final = kernels.scan(*p.forward)
    g = kernels.scan_backward(*p.backward(came if states is None else states), sum_u=sum_u)
    return [came, final, g.u, g.lam, g.initial, g.sum_u]


def check(kernels: Any, p: Problem, tolerance: float) -> None:
    """Forward and backward of a backend against the definition, the sums as precise as their dtype."""
    results, g = p.oracle()
    truths = [*results, g.u, g.lam, g.initial, g.sum_u]
    names = ("states", "final", *(f"gradient of {name}" for name in ("u", "lam", "initial")), "sum of gradients of u")
    for name, answer, truth in zip(names, run(kernels, p, results[0].to(p.u)), truths, strict=True):
        limit = SUM_TOLERANCE[answer.dtype] if name.startswith("sum") else tolerance
        assert error(answer, truth) < limit, f"{name}, {worst(answer, truth)}"
        assert answer.dtype == (p.u if name in ("states", "gradient of u") else p.lam).dtype
        assert answer.shape == truth.shape


def flat(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an operator: without named tuples, and whether the scan is exclusive."""
    *tensors, last = arguments
    return (*tensors, *last[:3]) if isinstance(last, Options) else flat((*tensors, *last))


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
    """`resets` is the share of steps that start a new sequence; with `offsets` the batch is packed in one row."""
    carry = carry_dtype(dtype)
    sequences = batch if offsets is None else len(offsets) - 1
    r, theta = torch.empty(n).uniform_(*radius), torch.empty(n).uniform_(0, 6.28)
    u = torch.randn(batch, length, 2, n).to(device, dtype)
    lam = torch.stack([r * theta.cos(), r * theta.sin()]).to(device, carry)
    initial = torch.randn(sequences, 2, n).to(device, carry)
    flags = None if resets is None else (torch.rand(batch, length) < resets).to(device)
    borders = None if offsets is None else torch.tensor(offsets, dtype=torch.int32, device=device)
    grad_states = torch.randn(batch, length, 2, n).to(device, dtype)
    grad_final = torch.randn(sequences, 2, n).to(device, carry)
    return Problem(u, lam, initial, Options(flags, reverse, borders), grad_states, grad_final)


def exclusive_problem(
    batch: int, length: int, directions: int, n: int, dtype: torch.dtype = torch.float64, **options: Any
) -> Problem:
    """As `problem`, for an exclusive scan."""
    p = problem(batch, length, directions * n, dtype, **options)
    u, initial, grad_states, grad_final = (
        t.unflatten(-1, (directions, n)).movedim(-2, -3).contiguous()
        for t in (p.u, p.initial, p.grad_states, p.grad_final)
    )
    lam, options_ = p.lam[:, :n].contiguous(), p.options._replace(exclusive=True)
    return Problem(u, lam, initial, options_, grad_states, grad_final)


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
