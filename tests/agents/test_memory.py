"""The memory of an agent: episode borders are fresh starts, and a rollout in one call equals its steps."""

import itertools
from typing import Any

import pytest
import torch

import linrnn
from tests.helpers import relative_error

CORES = ("lru", "s5", "s4d", "rglru", "mingru")
BORDERS = [[0, 4, 5], [3], []]  # the first steps of episodes, in each environment


def make(core: str = "lru", **options: Any) -> linrnn.agents.Memory:
    torch.manual_seed(0)
    return linrnn.agents.Memory(4, 5, depth=2, core=core, **options).double()


def rollout() -> tuple[torch.Tensor, torch.Tensor]:
    is_init = torch.zeros(3, 9, dtype=torch.bool)
    for row, starts in zip(is_init, BORDERS, strict=True):
        row[starts] = True
    return torch.randn(3, 9, 4, dtype=torch.float64), is_init


@pytest.mark.parametrize("core", CORES)
def test_a_rollout_equals_its_steps(core: str) -> None:
    memory, (x, is_init) = make(core), rollout()
    state = start = torch.randn(3, *memory.state_shape, dtype=torch.float64)
    y, final = memory(x, start, is_init=is_init)
    for k in range(9):
        y_k, state = memory.step(x[:, k], state, is_init=is_init[:, k])
        assert relative_error(y_k, y[:, k]) < 1e-10
    assert relative_error(state, final) < 1e-10


@pytest.mark.parametrize("core", CORES)
def test_an_episode_does_not_know_what_was_before(core: str) -> None:
    memory, (x, is_init) = make(core), rollout()
    y, _ = memory(x, is_init=is_init)
    for b, starts in enumerate(BORDERS):
        edges = sorted({0, *starts, 9})
        for start, stop in itertools.pairwise(edges):
            assert relative_error(y[b : b + 1, start:stop], memory(x[b : b + 1, start:stop])[0]) < 1e-10


def test_gradients_stop_at_the_border() -> None:
    memory, x = make(), torch.randn(1, 6, 4, dtype=torch.float64, requires_grad=True)
    state = torch.randn(1, *memory.state_shape, dtype=torch.float64, requires_grad=True)
    y, _ = memory(x, state, is_init=torch.tensor([[False, False, False, True, False, False]]))
    by_x, by_state = torch.autograd.grad(y[:, 3:].square().sum(), (x, state))
    assert not by_x[:, :3].any()
    assert by_x[:, 3:].any()
    assert not by_state.any()


def test_a_rollout_in_parts() -> None:
    memory, (x, is_init) = make(), rollout()
    y, final = memory(x, is_init=is_init)
    first, state = memory(x[:, :4], is_init=is_init[:, :4])
    second, state = memory(x[:, 4:], state, is_init=is_init[:, 4:])
    assert relative_error(torch.cat([first, second], 1), y) < 1e-10
    assert relative_error(state, final) < 1e-10
    assert memory.initial_state(3).shape == final.shape
    assert not memory.initial_state(3).any()


X = torch.zeros(2, 4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make("gru"), "core: expected a core that takes resets, for the borders of episodes, got 'gru'"),
        (lambda: make("lur"), "core: .*'lur'"),
        (lambda: make(options={"bidirectional": True}), "options: expected a causal core, got bidirectional=True"),
        (
            lambda: make().step(X, torch.zeros(2, 3)),
            r"state: expected shape \(2, 2, 2, 5\), got \(2, 3\)",
        ),
        (
            lambda: make().step(X, make().initial_state(2), is_init=torch.zeros(3, dtype=torch.bool)),
            r"is_init: expected shape \(2,\) \(batch,\), got \(3,\)",
        ),
        (
            lambda: make().step(X, make().initial_state(2), is_init=torch.zeros(2)),
            "is_init: expected torch.bool, got torch.float32",
        ),
    ],
)  # fmt: skip
def test_errors(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
