"""A core of a user's own needs `_sequence` and `_step`, and gets the rest from the base class."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linrnn
from linrnn.cores.base import last_valid


class Average(linrnn.Core):
    """x_k = a ⊙ x_{k-1} + u_k, y_k = x_k."""

    recurrent_names = ("a",)

    def __init__(self, d_model: int, d_state: int, *, start: float = 0.9, bidirectional: bool = False) -> None:
        super().__init__(d_model, d_state, bidirectional)
        self.state_shape = (d_model,)
        self.a = nn.Parameter(torch.full((d_model,), start))

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        initial = x = self._zero_state(len(u)) if state is None else state
        y = []
        for u_k in u.unbind(1):
            x = self.a * x + u_k
            y.append(x)
        states = torch.stack(y, dim=1)
        return states, x if lengths is None else last_valid(states, lengths, initial)

    def _step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.a * state + u
        return x, x


class Resetting(Average):
    """`Average` with the abilities `resets` and `group`."""

    takes_resets = takes_group = takes_both_directions = True
    came: Any = None

    def _sequence(self, u: Tensor, state: Tensor | None, lengths: Tensor | None, **given: Any) -> Any:
        self.came = given
        return super()._sequence(u, state, lengths)


def test_step_and_padding() -> None:
    core, u = Average(3, 1), torch.randn(2, 5, 3)
    y, final = core(u)
    _, between = core(u, lengths=torch.tensor([5, 3]))
    state = core.initial_state(2)
    for k in range(5):
        y_k, state = core.step(u[:, k], state)
        torch.testing.assert_close(y_k, y[:, k])
    assert final is not None
    torch.testing.assert_close(state, final)
    torch.testing.assert_close(between, torch.stack([y[0, 4], y[1, 2]]))


def test_defaults() -> None:
    core = Average(3, 1)
    assert core.eigenvalues() is None
    assert core.recurrent_parameters() == [core.a]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resets": torch.zeros(2, 5, dtype=torch.bool)}, "resets: expected None with the core Average"),
        ({"group": object()}, "group: expected None: the length of Average cannot be split over processes"),
    ],
)
def test_an_ability_that_is_not_declared_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Average(3, 1)(torch.zeros(2, 5, 3), **given)


def test_both_directions_are_refused_unless_declared() -> None:
    with pytest.raises(ValueError, match="bidirectional: expected False with the core Average, which is causal, got T"):
        Average(3, 1, bidirectional=True)
    assert Resetting(3, 1, bidirectional=True).bidirectional


def test_a_declared_ability_reaches_the_core_and_only_where_it_is_given() -> None:
    core, u, resets, group = Resetting(3, 1), torch.zeros(2, 5, 3), torch.zeros(2, 5, dtype=torch.bool), object()
    for given in ({}, {"resets": resets}, {"group": group}, {"resets": resets, "group": group}):
        core(u, **given)
        assert core.came == given
    core(u, lengths=torch.tensor([5, 2]), resets=resets)
    assert core.came == {"resets": resets}
