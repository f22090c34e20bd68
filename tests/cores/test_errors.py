"""Each error names the argument, what was expected and what came."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import linrnn

MAKERS: dict[str, Callable[..., Any]] = {"lru": linrnn.LRU, "rnn": linrnn.RNN}
every_core = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        pytest.param({"d_model": 0}, ValueError, "d_model: expected at least 1, got 0", id="no-features"),
        pytest.param({"d_state": -3}, ValueError, "d_state: expected at least 1, got -3", id="negative-states"),
        pytest.param({"d_model": 2.0}, TypeError, "d_model: expected an integer, got 2.0", id="float-features"),
        pytest.param({"d_state": True}, TypeError, "d_state: expected an integer, got True", id="bool-states"),
    ],
)
@every_core
def test_sizes(make: Callable[..., Any], arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(**{"d_model": 3, "d_state": 4, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"r_min": 0.9, "r_max": 0.5}, "r_min: expected .* r_max = 0.5, got 0.9", id="r_min-above-r_max"),
        pytest.param({"r_max": 1.1}, "r_max: expected .* at most 1, got 1.1", id="r_max-above-1"),
        pytest.param({"r_max": 0.0}, "r_max: expected a radius above 0 .*, got 0.0", id="r_max-zero"),
        pytest.param({"r_min": -0.1}, "r_min: expected a radius from 0 .*, got -0.1", id="r_min-negative"),
        pytest.param({"r_max": float("nan")}, "r_max: expected .*, got nan", id="r_max-nan"),
        pytest.param({"r_min": float("nan")}, "r_min: expected .*, got nan", id="r_min-nan"),
        pytest.param({"max_phase": 0.0}, "max_phase: expected an angle above 0 .*, got 0.0", id="no-phase"),
        pytest.param({"max_phase": 7.0}, "max_phase: expected .* at most 2π, got 7.0", id="phase-past-a-turn"),
        pytest.param({"counters": -1}, "counters: expected at least 0, got -1", id="counters-below-0"),
        pytest.param({"counters": 5}, "counters: expected at most d_state = 4, got 5", id="more-counters-than-states"),
        pytest.param(
            {"parameterization": "polar"},
            "parameterization: expected 'stable_exp' or 'exp' or 'real_imag', got 'polar'",
            id="parameterization",
        ),
    ],
)
def test_lru_switches(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linrnn.LRU(3, 4, **arguments)


def test_unknown_nonlinearity() -> None:
    with pytest.raises(ValueError, match="nonlinearity: expected 'tanh' or 'relu' or 'linear', got 'sin'"):
        linrnn.RNN(3, 4, nonlinearity="sin")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("u", "error", "message"),
    [
        pytest.param(
            torch.zeros(5, 3), ValueError, r"u: expected shape \(batch, length, d_model\) .*\(5, 3\)", id="rank"
        ),
        pytest.param(torch.zeros(2, 5, 4), ValueError, r"u: expected .* d_model = 3, got \(2, 5, 4\)", id="width"),
        pytest.param(
            torch.zeros(2, 5, 3, dtype=torch.float64),
            TypeError,
            "u: expected torch.float32, as the parameters, got torch.float64",
            id="double",
        ),
        pytest.param(
            torch.zeros(2, 5, 3, dtype=torch.int64),
            TypeError,
            "u: expected torch.float32.*got torch.int64",
            id="integers",
        ),
        pytest.param(
            torch.zeros(2, 5, 3, dtype=torch.complex64), TypeError, "u: expected .*got torch.complex64", id="complex"
        ),
        pytest.param(
            torch.zeros(2, 5, 3, device="meta"), ValueError, "u: expected .* on cpu.* one on meta", id="device"
        ),
    ],
)
@every_core
def test_inputs(make: Callable[..., Any], u: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(3, 4)(u)


@every_core
def test_integers_are_refused_under_autocast_too(make: Callable[..., Any]) -> None:
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(TypeError, match=r"u: expected torch\.float32.*got torch\.int64"),
    ):
        make(3, 4)(torch.zeros(2, 5, 3, dtype=torch.int64))


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        pytest.param(torch.tensor([5, -1]), ValueError, "lengths: expected from 0 to 5, .*got -1", id="negative"),
        pytest.param(torch.tensor([6, 2]), ValueError, "lengths: expected from 0 to 5, .*got 6", id="too-long"),
        pytest.param(torch.tensor([5, 2, 1]), ValueError, r"lengths: expected shape \(2,\) .*got \(3,\)", id="count"),
        pytest.param(torch.tensor([[5], [2]]), ValueError, r"lengths: expected shape \(2,\) .*got \(2, 1\)", id="rank"),
        pytest.param([5, 6], ValueError, "lengths: expected from 0 to 5, .*got 6", id="list"),
        pytest.param([5.0, 2], TypeError, "lengths: expected integers, got torch.float32", id="list-of-floats"),
        pytest.param(5, TypeError, "lengths: expected a tensor or a list of integers, got 5", id="number"),
        pytest.param(["5", "2"], TypeError, "lengths: expected a tensor or a list of integers", id="texts"),
        pytest.param(torch.tensor([5.0, 2.0]), TypeError, "lengths: expected integers, got torch.float32", id="floats"),
        pytest.param(
            torch.tensor([True, False]), TypeError, "lengths: expected integers, got torch.bool", id="booleans"
        ),
    ],
)
@every_core
def test_lengths(make: Callable[..., Any], lengths: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(3, 4)(torch.zeros(2, 5, 3), lengths=lengths)


@pytest.mark.parametrize(
    ("resets", "error", "message"),
    [
        pytest.param(torch.zeros(2, 5), TypeError, "resets: expected torch.bool, got torch.float32", id="floats"),
        pytest.param(
            torch.zeros(2, 5).long(), TypeError, "resets: expected torch.bool, got torch.int64", id="integers"
        ),
        pytest.param(torch.zeros(2, 4).bool(), ValueError, r"resets: expected shape \(2, 5\).*\(2, 4\)", id="length"),
        pytest.param(torch.zeros(5).bool(), ValueError, r"resets: expected shape \(2, 5\).*\(5,\)", id="rank"),
        pytest.param(
            torch.zeros(2, 5, dtype=torch.bool, device="meta"),
            ValueError,
            "resets: expected a tensor on cpu, as u, got one on meta",
            id="device",
        ),
    ],
)
@every_core
def test_resets(make: Callable[..., Any], resets: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(3, 4)(torch.zeros(2, 5, 3), resets=resets)


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        pytest.param(torch.zeros(2, 4), ValueError, r"state: expected shape \(2, 2, 4\), got \(2, 4\)", id="rank"),
        pytest.param(
            torch.zeros(3, 2, 4), ValueError, r"state: expected shape \(2, 2, 4\), got \(3, 2, 4\)", id="batch"
        ),
        pytest.param(
            torch.zeros(2, 2, 5), ValueError, r"state: expected shape \(2, 2, 4\), got \(2, 2, 5\)", id="width"
        ),
        pytest.param(
            torch.zeros(2, 2, 4, dtype=torch.float64),
            TypeError,
            "state: expected torch.float32, got torch.float64",
            id="double",
        ),
        pytest.param(
            torch.zeros(2, 2, 4, device="meta"),
            ValueError,
            "state: expected a tensor on cpu.* one on meta",
            id="device",
        ),
        pytest.param((torch.zeros(2, 2, 4),) * 2, TypeError, "state: expected a tensor, got tuple", id="as-nn.LSTM"),
    ],
)
@pytest.mark.parametrize("by", ["forward", "step"])
def test_states(by: str, state: torch.Tensor, error: type[Exception], message: str) -> None:
    layer = linrnn.LRU(3, 4)
    with pytest.raises(error, match=message):
        layer(torch.zeros(2, 5, 3), state) if by == "forward" else layer.step(torch.zeros(2, 3), state)


@every_core
def test_no_state_for_a_step(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="state: expected a tensor, got NoneType"):
        make(3, 4).step(torch.zeros(2, 3), None)


@every_core
def test_batch_of_a_state(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"batch: expected an integer, got 2\.0"):
        make(3, 4).initial_state(2.0)
    with pytest.raises(ValueError, match="batch: expected at least 0, got -1"):
        make(3, 4).initial_state(-1)


@pytest.mark.parametrize("by", ["forward", "step"])
def test_states_of_the_dense_rnn(by: str) -> None:
    layer, state = linrnn.RNN(3, 4), torch.zeros(2, 5)
    with pytest.raises(ValueError, match=r"state: expected shape \(2, 4\), got \(2, 5\)"):
        layer(torch.zeros(2, 5, 3), state) if by == "forward" else layer.step(torch.zeros(2, 3), state)


@pytest.mark.parametrize(
    ("u", "error", "message"),
    [
        pytest.param(torch.zeros(2, 5, 3), ValueError, r"u: expected shape \(batch, d_model\).*\(2, 5, 3\)", id="rank"),
        pytest.param(torch.zeros(2, 4), ValueError, r"u: expected .*d_model = 3, got \(2, 4\)", id="width"),
        pytest.param(
            torch.zeros(2, 3).double(), TypeError, "u: expected torch.float32.*got torch.float64", id="double"
        ),
    ],
)
@every_core
def test_inputs_of_step(make: Callable[..., Any], u: torch.Tensor, error: type[Exception], message: str) -> None:
    core = make(3, 4)
    with pytest.raises(error, match=message):
        core.step(u, core.initial_state(2))


@every_core
def test_bidirectional_cores_have_no_state(make: Callable[..., Any]) -> None:
    core, state = make(3, 4, bidirectional=True), make(3, 4).initial_state(2)
    with pytest.raises(ValueError, match=r"state: expected None: .*bidirectional.*, got"):
        core(torch.zeros(2, 5, 3), state)
    with pytest.raises(ValueError, match="step: expected a causal core, got a bidirectional one"):
        core.step(torch.zeros(2, 3), state)
    with pytest.raises(ValueError, match="initial_state: expected a causal core, got a bidirectional one"):
        core.initial_state(2)


@pytest.mark.parametrize("name", ["kernel", "to_dense"])
def test_forms_of_causal_layers_only(name: str) -> None:
    layer = linrnn.LRU(3, 4, bidirectional=True)
    with pytest.raises(ValueError, match=f"{name}: expected a causal LRU, got a bidirectional one"):
        getattr(layer, name)(*([5] if name == "kernel" else []))


def test_kernel_of_negative_length() -> None:
    with pytest.raises(ValueError, match="length: expected at least 0, got -1"):
        linrnn.LRU(3, 4).kernel(-1)
