"""Real processes, each with its part of the length, against the whole in one process.

Starting processes takes longer than all cases together, so each number of processes is started once.
"""

import functools
import itertools
import json
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

import linrnn
from tests.helpers import gradients, relative_error
from tests.recurrence.helpers import problem

WORLDS: dict[int, list[tuple[int, ...]]] = {  # the lengths of the parts
    2: [(5, 5), (3, 8), (0, 6), (6, 0), (1, 1)],
    4: [(4, 4, 4, 4), (1, 7, 2, 5), (0, 5, 0, 4), (3, 0, 0, 1), (0, 0, 0, 0)],
}
PATIENCE = 60  # seconds for all processes and cases together
Group = dist.ProcessGroup
Errors = dict[str, float]
COMPLEX: dict[str, Any] = {"dtype": torch.complex128}
FLOAT64: dict[str, Any] = {"dtype": torch.float64}


def scan(group: Group, *, lengths: tuple[int, ...], resets: str, given: bool, reverse: bool) -> Errors:
    """The loss of a rank is of its own states and, with weights of its own, of the common final state."""
    batch, n, here = 4, 3, part(group, lengths)
    u, in_states = torch.randn(2, batch, sum(lengths), n, **COMPLEX)
    lam = torch.polar(torch.rand(n, **FLOAT64), 6 * torch.rand(n, **FLOAT64))
    initial = [torch.randn(batch, n, **COMPLEX)] if given else []
    in_final = torch.randn(group.size(), batch, n, **COMPLEX)
    flags = reset_flags(batch, lengths, resets)

    def run(u: Tensor, in_states: Tensor, in_final: Tensor, **options: Any) -> tuple[Tensor, ...]:
        inputs = [x.clone().requires_grad_() for x in (u, lam, *initial)]
        states, final = linrnn.scan(*inputs, reverse=reverse, **options)
        loss = (states * in_states).sum().real + (final * in_final).sum().real
        return states, final, *torch.autograd.grad(loss, inputs)

    states, final, du, *rest = run(u, in_states, in_final.sum(dim=0), resets=flags)
    flags_here = None if flags is None else flags[:, here]
    came = run(u[:, here], in_states[:, here], in_final[group.rank()], resets=flags_here, group=group)
    errors = {
        "states": relative_error(came[0], states[:, here]),
        "final": relative_error(came[1], final),
        "du": relative_error(came[2], du[:, here]),
        "dlam": relative_error(total(came[3], group), rest[0]),
    }
    if given:
        errors["dinitial"] = relative_error(total(came[4], group), rest[1])
        first = group.size() - 1 if reverse else 0
        errors["dinitial elsewhere"] = 0.0 if group.rank() == first else float(came[4].abs().max())
    return errors


def layer(group: Group, *, bidirectional: bool, resets: str) -> Errors:
    """Two calls in a row, the state handed over and, if causal, differentiated through."""
    batch, lengths = 4, WORLDS[group.size()][1]
    here = part(group, lengths)
    lru = linrnn.LRU(3, 5, r_min=0.5, bidirectional=bidirectional, **FLOAT64)
    u, in_y = torch.randn(2, 2, batch, sum(lengths), 3, **FLOAT64)
    initial = [] if bidirectional else [torch.randn(batch, 2, 5, requires_grad=True, **FLOAT64)]
    flags = reset_flags(batch, lengths, resets)

    def run(steps: slice, share: float, **options: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        options["resets"] = None if flags is None else flags[:, steps]
        v = u[:, :, steps].clone().requires_grad_()
        y_1, state = lru(v[0], *initial, **options)
        y_2, state = lru(v[1], state, **options)
        y = torch.stack([y_1, y_2])
        of_state = {} if state is None else {"state": state}
        loss = (y * in_y[:, :, steps]).sum() + sum(share * x.square().sum() for x in of_state.values())
        grads = gradients(lru, loss, v, *initial)
        return {"y": y, "du": grads.pop("0")}, of_state | {f"d{name}": grad for name, grad in grads.items()}

    local, common = run(slice(None), 1)
    local_here, common_here = run(here, 1 / group.size(), group=group)
    errors = {name: relative_error(x, local[name][:, :, here]) for name, x in local_here.items()}
    for name, x in common_here.items():
        errors[name] = relative_error(x if name == "state" else total(x, group), common[name])
    return errors


def rounding(group: Group, *, dtype: torch.dtype) -> Errors:
    """Eigenvalues near the circle and long parts: about as far from the definition as the whole is."""
    lengths = (500,) * group.size()
    here = part(group, lengths)
    p = problem(2, sum(lengths), 4, dtype, radius=(0.99, 0.9999))
    (states, final), g = p.oracle()
    truth = {"states": states[:, here], "final": final, "du": g.u[:, here], "dlam": g.lam}

    def run(steps: slice, share: float, **options: Any) -> dict[str, Tensor]:
        u, lam = p.u[:, steps].clone().requires_grad_(), p.lam.clone().requires_grad_()
        states, final = linrnn.scan_planes(u, lam, p.initial, **options)
        loss = (states * p.grad_states[:, steps]).sum() + share * (final * p.grad_final).sum()
        du, dlam = torch.autograd.grad(loss, [u, lam])
        return {"states": states, "final": final, "du": du, "dlam": dlam}

    whole, split = run(slice(None), 1), run(here, 1 / group.size(), group=group)
    whole |= {name: whole[name][:, here] for name in ("states", "du")}
    split["dlam"] = total(split["dlam"], group)
    return {
        name: max(0.0, relative_error(split[name], x) - 3 * relative_error(whole[name], x)) for name, x in truth.items()
    }


def final_has_the_same_bits_everywhere(group: Group) -> Errors:
    u = torch.randn(2, 9 + group.rank(), 1, dtype=torch.complex64) + group.rank()
    _, final = linrnn.scan(u, torch.tensor([0.9 + 0.3j]), group=group)
    everywhere = [torch.empty_like(final) for _ in range(group.size())]
    dist.all_gather(everywhere, final, group)
    return {"final": float(not all(torch.equal(final, other) for other in everywhere))}


def initial_is_read_on_the_first_rank_only(group: Group) -> Errors:
    u, lam = torch.ones(1, 2, 1, **COMPLEX), torch.full((1,), 0.5, **COMPLEX)
    initial = torch.full((1, 1), 4.0, **COMPLEX)
    _, expected = linrnn.scan(u.repeat(1, group.size(), 1), lam, initial)
    errors = {}
    for name, elsewhere in (("the same", initial), ("nan", initial * torch.nan), ("None", None)):
        _, final = linrnn.scan(u, lam, initial if group.rank() == 0 else elsewhere, group=group)
        errors[name] = relative_error(final, expected)
    return errors


def a_group_of_some_processes(group: Group) -> Errors:
    """The even and the odd ranks, each with their own sequence."""
    size = group.size() // 2
    groups = [dist.new_group(range(first, group.size(), 2)) for first in (0, 1)]
    return scan(groups[group.rank() % 2], lengths=(5, 3)[:size], resets="none", given=True, reverse=True)


def part(group: Group, lengths: tuple[int, ...]) -> slice:
    """The steps of this rank."""
    start = sum(lengths[: group.rank()])
    return slice(start, start + lengths[group.rank()])


def total(x: Tensor, group: Group) -> Tensor:
    """The sum over the ranks."""
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


def reset_flags(batch: int, lengths: tuple[int, ...], kind: str) -> Tensor | None:
    """At the borders of the parts: on the first step, on the one before or after it; on one border alone; or random."""
    if kind == "none":
        return None
    length = sum(lengths)
    if kind == "random":
        return torch.rand(batch, length) < 0.2
    flags = torch.zeros(batch, length, dtype=torch.bool)
    starts = list(itertools.accumulate(lengths))[:-1]
    rows = [starts, [k - 1 for k in starts], [k + 1 for k in starts], starts[len(starts) // 2 :][:1]]
    for row, steps in zip(flags, rows, strict=True):
        row[[k for k in steps if 0 <= k < length]] = True
    return flags


def cases(world: int) -> dict[str, Callable[[Group], Errors]]:
    named: dict[str, Callable[[Group], Errors]] = {}
    choices = itertools.product(WORLDS[world], ("none", "borders", "random"), (False, True), (False, True))
    for lengths, resets, given, reverse in choices:
        name = f"scan-{'+'.join(map(str, lengths))}-resets={resets}" + "-initial" * given + "-reverse" * reverse
        named[name] = functools.partial(scan, lengths=lengths, resets=resets, given=given, reverse=reverse)
    for bidirectional, resets in itertools.product((False, True), ("none", "borders", "random")):
        name = f"layer-{'bidirectional' if bidirectional else 'causal'}-resets={resets}"
        named[name] = functools.partial(layer, bidirectional=bidirectional, resets=resets)
    for dtype in (torch.float32, torch.bfloat16):
        named[f"rounding-{dtype}"] = functools.partial(rounding, dtype=dtype)
    for case in (
        final_has_the_same_bits_everywhere,
        initial_is_read_on_the_first_rank_only,
        a_group_of_some_processes,
    ):
        named[case.__name__] = case
    return named


def work(rank: int, world: int, folder: Path) -> None:
    """One process: every case, and what it found into a file. After an exception the ranks are out of step: stop."""
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group(
        "gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE / 2)
    )
    warnings.simplefilter("error")
    group: Any = dist.group.WORLD
    found: dict[str, Errors | str] = {}
    for name, case in cases(world).items():
        torch.manual_seed(0)
        try:
            found[name] = case(group)
        except Exception:
            found[name] = traceback.format_exc()
            break
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_split_equals_whole(world: int, tmp_path: Path) -> None:
    context: Any = start_processes(work, (world, tmp_path), nprocs=world, join=False, start_method="spawn")
    end = time.monotonic() + PATIENCE
    while not context.join(timeout=1):
        if time.monotonic() > end:
            for process in context.processes:
                process.kill()
            pytest.fail(f"{world} processes were not done after {PATIENCE} s")
    wrong = []
    for rank in range(world):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for case, errors in found.items():
            if isinstance(errors, str) or not all(error < 1e-12 for error in errors.values()):
                wrong.append(f"rank {rank}, {case}: {errors}")
        wrong += [f"rank {rank}, {case}: the first that did not run" for case in list(cases(world))[len(found) :][:1]]
    assert not wrong, "\n".join([f"{len(wrong)} wrong:", *wrong[:40]])


def test_a_group_must_be_one() -> None:
    u, lam = torch.ones(1, 2, 1, **COMPLEX), torch.ones(1, **COMPLEX)
    with pytest.raises(TypeError, match=r"group: expected a torch.distributed.ProcessGroup .*, got str"):
        linrnn.scan(u, lam, group="world")  # type: ignore[arg-type]


def test_lengths_and_a_group() -> None:
    with pytest.raises(ValueError, match="lengths: expected None with a group"):
        linrnn.LRU(3, 4)(torch.zeros(2, 5, 3), lengths=torch.tensor([5, 2]), group=dist.ProcessGroup)


@pytest.mark.parametrize("nonlinearity", ["tanh", "linear"])
def test_a_dense_rnn_refuses_a_group(nonlinearity: Any) -> None:
    with pytest.raises(ValueError, match="group: expected None: the length of a dense RNN cannot be split"):
        linrnn.RNN(3, 4, nonlinearity=nonlinearity)(torch.zeros(2, 5, 3), group=dist.ProcessGroup)
