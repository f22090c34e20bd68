import json

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from linrnn.paper.figures import koopman
from linrnn.tasks.base import silent
from tests.helpers import Array, array, relative_error


def test_the_pendulum_is_scipys() -> None:
    torch.manual_seed(0)
    horizon = 20
    start, states = koopman.simulate(3, horizon)
    for first, came in zip(array(start), array(states), strict=True):
        x = first[:2]
        for k in range(horizon):
            u = first[2 + k * koopman.TORQUES // horizon]

            def slope(_: float, x: Array, u: float = u) -> list[float]:
                return [x[1], -np.sin(x[0]) - 0.1 * x[1] + u]

            x = solve_ivp(slope, (0, 0.1), x, rtol=1e-9, atol=1e-9).y[:, -1]
            np.testing.assert_allclose(came[k], x, atol=2e-5)


def test_the_model_is_the_papers_formula() -> None:
    """x_k = V·Λ^k·Φ, in NumPy, from the parameters; D passes Φ on at the first step only."""
    torch.manual_seed(0)
    model, start = koopman.Koopman("mlp").double(), torch.randn(5, 2 + koopman.TORQUES, dtype=torch.float64)
    phi, lam = array(model.phi(start)), array(model.rnn.eigenvalues())
    assert model.rnn.gamma_log is not None
    B = (array(model.rnn.B)[0] + 1j * array(model.rnn.B)[1]) * np.exp(array(model.rnn.gamma_log))[:, None]
    C = array(model.rnn.C)[:, 0] + 1j * array(model.rnn.C)[:, 1]
    y = np.stack([(phi @ (C * lam**k @ B).real.T) for k in range(12)], axis=1)
    y[:, 0] += array(model.rnn.D) * phi
    expected = y @ array(model.V.weight).T + array(model.V.bias)
    assert relative_error(model(start, 12), expected) < 1e-10


def test_the_best_linear_prediction_is_exact_on_a_linear_system() -> None:
    torch.manual_seed(0)
    start, weights = torch.randn(200, 2 + koopman.TORQUES), torch.randn(2 + koopman.TORQUES, 8)
    states = (start @ weights + 3).unflatten(1, (4, 2))
    came = koopman.best_linear(koopman.Data(start[:100], states[:100]), start[100:])
    torch.testing.assert_close(came, states[100:], rtol=1e-4, atol=1e-4)


def test_the_error_is_one_for_the_mean_and_a_tenth_for_a_tenth_of_it() -> None:
    torch.manual_seed(0)
    states = torch.randn(5000, 3, 2) * torch.tensor([1.0, 7.0]) + 5
    mean = states.mean(0).expand_as(states)
    for part in (1.0, 0.1):
        predicted = states + part * (mean - states)
        assert array(koopman.error(predicted, states)) == pytest.approx(part, rel=1e-3)
        assert float(koopman.error(predicted, states, over=(0, 1))) == pytest.approx(part, rel=1e-3)


def test_quick_run() -> None:
    result = koopman.run(quick=True, seed=0, progress=silent)
    assert all(finding.holds for finding in result.findings)
    whole = result.numbers["error_overall"]
    assert whole["linear"] > 0.95 * whole["best"]  # a linear RNN cannot do better than least squares
    json.dumps(result.numbers, allow_nan=False)
