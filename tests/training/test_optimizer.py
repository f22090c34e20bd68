"""AdamW, its two groups and the rate's rise and fall."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from linrnn.cores import CORES
from linrnn.model import Model, ModelConfig
from linrnn.spectrum import PARAMETERIZATIONS
from linrnn.training.optimizer import learning_rate, make_optimizer, named, set_rate
from tests.helpers import Array, array
from tests.training.helpers import RECIPE

TRAINING = replace(RECIPE.training, steps=101, learning_rate=0.3, warmup=0.2)
RECURRENT: dict[str, dict[str, Any]] = {  # of each core's options, the names of its recurrent parameters
    "lru-stable_exp": {"core": "lru", "names": {"nu_log", "theta_log", "B", "gamma_log"}},
    "lru-exp": {"core": "lru", "options": {"parameterization": "exp"}, "names": {"nu", "theta", "B", "gamma_log"}},
    "lru-real_imag": {"core": "lru", "options": {"parameterization": "real_imag"}, "names": {"lam", "B", "gamma_log"}},
    "lru-unnormalized": {"core": "lru", "options": {"normalize": False}, "names": {"nu_log", "theta_log", "B"}},
    "lru-bidirectional": {
        "core": "lru",
        "options": {"bidirectional": True},
        "names": {"nu_log", "theta_log", "B", "gamma_log"},
    },
    "rnn-tanh": {"core": "rnn", "names": {"A", "B"}},
    "rnn-linear": {"core": "rnn", "options": {"nonlinearity": "linear"}, "names": {"A", "B"}},
    "gru": {"core": "gru", "names": {"A", "a", "B", "b"}},
    "lstm": {"core": "lstm", "names": {"A", "a", "B", "b"}},
    "s4d": {"core": "s4d", "names": {"a_re_log", "a_im", "delta_log", "B"}},
    "s4d-decoupled": {
        "core": "s4d",
        "options": {"decoupled": True},
        "names": {"a_re_log", "a_im", "delta_log", "delta_B_log", "B"},
    },
    "s5": {"core": "s5", "names": {"a_re_log", "a_im", "delta_log", "B"}},
    "s4": {"core": "s4", "names": {"a_re_log", "a_im", "p", "delta_log", "B"}},
    "dlr": {"core": "dlr", "names": {"nu_log", "theta", "B"}},
    "rglru": {"core": "rglru", "names": {"Lambda", "W_r", "b_r", "W_i", "b_i", "B"}},
    "mingru": {"core": "mingru", "names": {"W_z", "b_z", "W_h", "b_h"}},
}


def model_of(core: str, **options: Any) -> Model:
    return Model(ModelConfig(vocabulary=4, classes=3, d_model=5, d_state=6, depth=2, core=core, options=options))


def test_every_core_and_parameterization_is_covered() -> None:
    assert {case["core"] for case in RECURRENT.values()} == set(CORES)
    assert {f"lru-{name}" for name in PARAMETERIZATIONS} <= set(RECURRENT)


@pytest.mark.parametrize("case", RECURRENT)
def test_groups_by_name(case: str) -> None:
    model = model_of(RECURRENT[case]["core"], **RECURRENT[case].get("options", {}))
    names = {id(p): name for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, TRAINING)
    slow, decayed = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert sorted(slow + decayed) == sorted(names.values()), "each exactly once"
    assert set(slow) == {f"blocks.{i}.core.{name}" for i in range(2) for name in RECURRENT[case]["names"]}
    assert {"encoder.weight", "head.weight", "blocks.0.core.C", "blocks.1.core.D", "blocks.0.norm.bias"} <= set(decayed)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, TRAINING.weight_decay]


@pytest.mark.parametrize("core", ["lru", "s5"])
def test_B_at_the_full_rate(core: str) -> None:
    model = model_of(core)
    groups = make_optimizer(model, replace(TRAINING, slow_B=False)).param_groups
    slow, decayed = ({id(p) for p in group["params"]} for group in groups)
    inputs = {id(p) for name, p in model.named_parameters() if name.endswith("core.B")}
    assert len(inputs) == 2
    assert inputs <= decayed
    assert slow == {id(p) for p in model.recurrent_parameters()} - inputs


@pytest.mark.parametrize("step", [0, 20, 57, 100])
def test_rates_of_both_groups(step: int) -> None:
    optimizer = make_optimizer(model_of("lru"), TRAINING)
    rate = set_rate(optimizer, TRAINING, step)
    assert rate == learning_rate(TRAINING, step)
    slow, fast = (float(group["lr"]) for group in optimizer.param_groups)
    assert fast == pytest.approx(rate, rel=1e-6)
    assert slow == pytest.approx(rate * TRAINING.recurrent_factor, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "step", "expected"),
    [
        pytest.param({}, 0, 1e-7, id="first"),
        pytest.param({}, 10, (0.3 + 1e-7) / 2, id="half-of-the-warm-up"),
        pytest.param({}, 20, 0.3, id="end-of-the-warm-up"),
        pytest.param({}, 60, (0.3 + 1e-7) / 2, id="half-of-the-cosine"),
        pytest.param({}, 40, 1e-7 + (0.3 - 1e-7) * (1 + math.cos(math.pi / 4)) / 2, id="quarter-of-the-cosine"),
        pytest.param({}, 100, 1e-7, id="last"),
        pytest.param({"warmup": 0}, 0, 0.3, id="no-warm-up-first"),
        pytest.param({"warmup": 0.0}, 50, (0.3 + 1e-7) / 2, id="no-warm-up-half"),
        pytest.param({"warmup": 0.0}, 100, 1e-7, id="no-warm-up-last"),
        pytest.param({"warmup": 1.0}, 0, 1e-7, id="all-warm-up-first"),
        pytest.param({"warmup": 1.0}, 100, 1e-7 + (0.3 - 1e-7) * 100 / 101, id="all-warm-up-last"),
        pytest.param({"steps": 1}, 0, 0.3, id="one-step"),
        pytest.param({"steps": 1, "warmup": 1.0}, 0, 1e-7, id="one-step-of-warm-up"),
        pytest.param({"steps": 2, "warmup": 0.5}, 1, 0.3, id="two-steps"),
    ],
)
def test_schedule_at_its_corners(changes: dict[str, Any], step: int, expected: float) -> None:
    assert learning_rate(replace(TRAINING, **changes), step) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("warmup", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_schedule_rises_then_falls(warmup: float) -> None:
    training = replace(TRAINING, warmup=warmup)
    rates = [learning_rate(training, step) for step in range(training.steps)]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert min(rates) >= 1e-7
    assert max(rates) <= training.learning_rate


@pytest.mark.parametrize("core", ["lru", "rnn"])
def test_adamw_in_numpy(core: str) -> None:
    """Three steps, against the definition in double precision."""
    model = model_of(core)
    optimizer = make_optimizer(model, TRAINING)
    slow = {id(p) for p in model.recurrent_parameters()}
    expected = {name: array(p) for name, p in model.named_parameters()}
    m: dict[str, Array] = {name: np.zeros_like(p) for name, p in expected.items()}
    v: dict[str, Array] = {name: np.zeros_like(p) for name, p in expected.items()}
    for t, step in enumerate((3, 40, 41), start=1):
        set_rate(optimizer, TRAINING, step)
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randint(4, (3, 7))), torch.randint(3, (3,))).backward()
        for name, p in model.named_parameters():
            assert p.grad is not None
            g = array(p.grad)
            rate = learning_rate(TRAINING, step) * (TRAINING.recurrent_factor if id(p) in slow else 1)
            decay = 0 if id(p) in slow else TRAINING.weight_decay
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            m_hat, v_hat = m[name] / (1 - 0.9**t), v[name] / (1 - 0.999**t)
            expected[name] = expected[name] * (1 - rate * decay) - rate * m_hat / (np.sqrt(v_hat) + 1e-8)
        optimizer.step()
        for name, p in model.named_parameters():
            np.testing.assert_allclose(array(p), expected[name], rtol=2e-5, atol=2e-6, err_msg=f"{name}, step {t}")
    assert {name: float(state["step"]) for name, state in named(model, optimizer).items()} == dict.fromkeys(expected, 3)
