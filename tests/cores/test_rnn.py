from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import linrnn
from linrnn.cores.rnn import Nonlinearity
from tests.helpers import array, gradients, oracle, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
NONLINEARITIES: list[Nonlinearity] = ["tanh", "relu", "linear"]
every_nonlinearity = pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
every_direction = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


@every_nonlinearity
@every_direction
@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 100])
def test_the_equation(nonlinearity: Nonlinearity, bidirectional: bool, length: int) -> None:
    layer = _layer(nonlinearity, bidirectional)
    u = torch.randn(2, length, 3, **FLOAT64)
    y, state = layer(u)
    expected, final = oracle(layer, u)
    assert relative_error(y, expected) < 1e-12
    if bidirectional:
        assert state is None
    else:
        assert relative_error(state, final) < 1e-12


@every_direction
@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 100])
@pytest.mark.parametrize("density", [0.03, 0.3, 1.0])
def test_resets_across_chunks(bidirectional: bool, length: int, density: float) -> None:
    layer = _layer("linear", bidirectional)
    u, resets = torch.randn(3, length, 3, **FLOAT64), torch.rand(3, length) < density
    state = None if bidirectional else torch.randn(3, 4, **FLOAT64)
    y, final = layer(u, state, resets=resets)
    expected, expected_final = oracle(layer, u, state, resets=resets)
    assert relative_error(y, expected) < 1e-12
    assert bidirectional or relative_error(final, expected_final) < 1e-12


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@every_direction
def test_nn_rnn_with_the_same_weights(nonlinearity: Nonlinearity, bidirectional: bool) -> None:
    layer = _layer(nonlinearity, bidirectional)
    rnn = torch.nn.RNN(
        3, 4, nonlinearity=nonlinearity, bias=False, batch_first=True, bidirectional=bidirectional, **FLOAT64
    )
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            parameter.copy_(layer.A if "hh" in name else layer.B)
    u, lengths = torch.randn(3, 9, 3, **FLOAT64), torch.tensor([4, 9, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(u, lengths, batch_first=True, enforce_sorted=False)
    states, final = rnn(packed)
    x, _ = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
    real = (torch.arange(9) < lengths.unsqueeze(1)).unsqueeze(-1)
    y, state = layer(u, lengths=lengths)
    assert relative_error(y, (x @ layer.C.T + u @ layer.D.T) * real) < 1e-12
    if not bidirectional:
        assert relative_error(state, final[0]) < 1e-12


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_call_equals_the_oracle(data: st.DataObject) -> None:
    """State, lengths and resets in any combination, across the edges of chunks."""
    layer = _layer(data.draw(st.sampled_from(NONLINEARITIES)), data.draw(st.booleans(), label="bidirectional"))
    torch.manual_seed(data.draw(st.integers(0, 1000), label="seed"))
    batch, length = data.draw(st.integers(0, 3), label="batch"), data.draw(st.integers(0, 70), label="length")
    u = torch.randn(batch, length, 3, **FLOAT64)
    density = data.draw(st.sampled_from([0.0, 0.02, 0.2, 1.0]), label="resets")
    resets = torch.rand(batch, length) < density if layer.nonlinearity == "linear" else None
    lengths = data.draw(st.none() | st.lists(st.integers(0, length), min_size=batch, max_size=batch), label="lengths")
    given_state = not layer.bidirectional and data.draw(st.booleans(), label="state")
    state = torch.randn(batch, 4, **FLOAT64) if given_state else None
    y, final = layer(
        u, state, lengths=None if lengths is None else torch.tensor(lengths, dtype=torch.int64), resets=resets
    )
    expected, expected_final = oracle(layer, u, state, lengths, resets)
    assert relative_error(y, expected) < 1e-10
    if not layer.bidirectional:
        assert relative_error(final, expected_final) < 1e-10


@every_nonlinearity
def test_step_equals_parallel(nonlinearity: Nonlinearity) -> None:
    layer = _layer(nonlinearity)
    u = torch.randn(2, 40, 3, **FLOAT64)
    y, final = layer(u)
    state = layer.initial_state(2)
    for k in range(40):
        y_k, state = layer.step(u[:, k], state)
        assert relative_error(y_k, y[:, k]) < 1e-12
    assert relative_error(state, final) < 1e-12


@every_nonlinearity
@pytest.mark.parametrize("cut", [0, 1, 17, 40])
def test_splitting_equals_the_whole(nonlinearity: Nonlinearity, cut: int) -> None:
    layer = _layer(nonlinearity)
    u = torch.randn(2, 40, 3, **FLOAT64)
    first, state = layer(u[:, :cut])
    second, state = layer(u[:, cut:], state)
    y, final = layer(u)
    assert relative_error(torch.cat([first, second], dim=1), y) < 1e-12
    assert relative_error(state, final) < 1e-12


@every_nonlinearity
@every_direction
def test_padding_is_never_read(nonlinearity: Nonlinearity, bidirectional: bool) -> None:
    layer = _layer(nonlinearity, bidirectional)
    lengths = torch.tensor([5, 0, 9])
    padding = (torch.arange(9) >= lengths.unsqueeze(1)).unsqueeze(-1)
    u, weights = torch.randn(3, 9, 3, **FLOAT64), torch.randn(3, 9, 3, **FLOAT64)
    results = []
    for poison in (0.0, float("nan"), 1e300):
        poisoned = u.masked_fill(padding, poison).requires_grad_()
        y, state = layer(poisoned, lengths=lengths)
        assert not y.masked_select(padding).any()
        loss = (y * weights).sum() + (0 if state is None else state.square().sum())
        results.append([y, *gradients(layer, loss, poisoned).values()])
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@every_direction
def test_gradients_of_the_linear_recurrence(bidirectional: bool) -> None:
    layer = _layer("linear", bidirectional)
    u = torch.randn(2, 35, 3, requires_grad=True, **FLOAT64)
    masks = {"lengths": torch.tensor([35, 33]), "resets": torch.rand(2, 35) < 0.1}

    def call(u: Tensor, *parameters: Tensor) -> Any:
        named = dict(zip("ABCD", parameters, strict=True))
        return torch.func.functional_call(layer, named, (u,), masks)[0]

    assert torch.autograd.gradcheck(call, (u, layer.A, layer.B, layer.C, layer.D), fast_mode=True)


def test_gradients_of_the_state() -> None:
    layer = _layer("linear")
    u, state = torch.randn(2, 34, 3, **FLOAT64), torch.randn(2, 4, requires_grad=True, **FLOAT64)
    assert torch.autograd.gradcheck(lambda state: layer(u, state), (state,))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_resets_are_for_the_linear_recurrence_only(nonlinearity: Nonlinearity) -> None:
    with pytest.raises(ValueError, match=f"resets: expected None with nonlinearity='{nonlinearity}'"):
        _layer(nonlinearity)(torch.zeros(1, 5, 3, **FLOAT64), resets=torch.zeros(1, 5, dtype=torch.bool))


@every_direction
def test_glorot_initialization_and_names(bidirectional: bool) -> None:
    layer = linrnn.RNN(100, 200, bidirectional=bidirectional)
    for matrix, variance in ((layer.A, 1 / 200), (layer.B, 1 / 100), (layer.C, 1 / 200), (layer.D, 1 / 100)):
        assert float(array(matrix).var()) == pytest.approx(variance, rel=0.05)
    assert layer.C.shape == (100, 400 if bidirectional else 200)
    assert layer.D.shape == (100, 100)
    assert {id(p) for p in layer.recurrent_parameters()} == {id(layer.A), id(layer.B)}
    assert "nonlinearity='tanh'" in repr(layer)


@every_nonlinearity
@every_direction
def test_weights_with_a_vector_d_give_what_they_gave(nonlinearity: Nonlinearity, bidirectional: bool) -> None:
    """As saved before D was a matrix, alone and inside a model, whose file is left as it is."""
    layer = _layer(nonlinearity, bidirectional)
    D = torch.randn(3, **FLOAT64)
    old = {**layer.state_dict(), "D": D}
    u = torch.randn(2, 9, 3, **FLOAT64)
    with torch.no_grad():
        layer.D.zero_()
    expected = layer(u)[0] + u * D
    inside = _layer(nonlinearity, bidirectional)
    whole = torch.nn.Sequential(inside, torch.nn.Identity())
    whole.load_state_dict({f"0.{name}": value for name, value in old.items()})
    assert relative_error(inside(u)[0], expected) < 1e-12
    assert torch.equal(inside.D, torch.diag(D))
    layer.load_state_dict(old)
    assert relative_error(layer(u)[0], expected) < 1e-12
    with pytest.raises(RuntimeError, match="size mismatch for D"):
        layer.load_state_dict({**old, "D": torch.zeros(4)})


def test_radius_is_the_largest_that_an_eigenvalue_starts_with() -> None:
    drawn = {}
    for radius in (None, 0.5, 100.0):
        torch.manual_seed(0)
        drawn[radius] = array(linrnn.RNN(3, 32, radius=radius).A)
    assert abs(np.linalg.eigvals(drawn[None])).max() > 1  # why one may want it
    assert abs(np.linalg.eigvals(drawn[0.5])).max() == pytest.approx(0.5, rel=1e-5)
    assert (drawn[100.0] == drawn[None]).all()
    with pytest.raises(ValueError, match="radius: expected a number above 0, got 0"):
        linrnn.RNN(3, 4, radius=0)


def test_the_linear_recurrence_stays_finite_over_long_sequences() -> None:
    layer = linrnn.RNN(8, 32, nonlinearity="linear", radius=1.0)
    y, _ = layer(torch.randn(2, 5000, 8))
    assert float(y.detach().abs().max()) < 1e4


@every_nonlinearity
def test_autocast(nonlinearity: Nonlinearity) -> None:
    layer = linrnn.RNN(8, 16, nonlinearity=nonlinearity)
    u = torch.randn(2, 40, 8)
    y, state = layer(u)
    with torch.autocast("cpu", torch.bfloat16):
        for inputs in (u, u.bfloat16()):  # the second is what another layer would give it
            y_low, state_low = layer(inputs)
            y_step, _ = layer.step(inputs[:, 0], layer.initial_state(2))
            assert state_low.dtype == torch.float32
            assert relative_error(y_low, y) < 5e-2
            assert relative_error(state_low, state) < 5e-2
            assert relative_error(y_step, y[:, 0]) < 5e-2


@every_nonlinearity
def test_compiled_equals_eager(nonlinearity: Nonlinearity) -> None:
    layer = _layer(nonlinearity)
    u, lengths = torch.randn(2, 10, 3, **FLOAT64), torch.tensor([10, 4])
    torch.compiler.reset()
    results = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        y, _ = run(u, lengths=lengths)
        results.append([y, *gradients(layer, y.square().sum()).values()])
    assert all(relative_error(a, b) < 1e-12 for a, b in zip(*results, strict=True))


def _layer(nonlinearity: Nonlinearity, bidirectional: bool = False) -> linrnn.RNN:
    return linrnn.RNN(3, 4, nonlinearity=nonlinearity, bidirectional=bidirectional, dtype=torch.float64)
