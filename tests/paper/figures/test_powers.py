import json
import math

import numpy as np
import pytest
import torch

from linrnn.paper.figures import powers
from linrnn.tasks.base import silent
from tests.helpers import array


def phase(x: float) -> torch.Tensor:
    return torch.tensor([x], dtype=torch.float64)


@pytest.mark.parametrize("kind", powers.NAMES)
def test_parameters_and_eigenvalues_are_inverse(kind: str) -> None:
    lam = torch.polar(torch.tensor([0.5, 0.99], dtype=torch.float64), torch.tensor([0.3, 1.4], dtype=torch.float64))
    parameters = powers.parameters_of(kind, lam)
    polar, planes = (-np.log([0.5, 0.99]), np.array([0.3, 1.4])), (array(lam).real, array(lam).imag)
    np.testing.assert_allclose(array(parameters).T, polar if kind == "exp" else planes, rtol=1e-12)
    np.testing.assert_allclose(array(powers.eigenvalue(kind, parameters)), array(lam), rtol=1e-12)


def test_the_loss_is_the_papers() -> None:
    lam, target = 0.98 * np.exp(0.71j), 0.99 * np.exp(0.7j)
    came = float(powers.loss(torch.tensor(lam), torch.tensor(target)))
    assert came == pytest.approx(0.5 * abs(lam**100 - target**100) ** 2, rel=1e-10)


@pytest.mark.parametrize("kind", powers.NAMES)
def test_learning_is_adam_step_by_step(kind: str) -> None:
    """Against Adam written out, with the gradient by finite differences."""
    target, start = complex(powers.polar(phase(0.7))), powers.polar(phase(0.68))

    def loss(p: np.ndarray) -> float:
        lam = np.exp(-p[0] + 1j * p[1]) if kind == "exp" else p[0] + 1j * p[1]
        return float(0.5 * abs(lam**100 - target**100) ** 2)

    p, m, v = array(powers.parameters_of(kind, start))[0].copy(), np.zeros(2), np.zeros(2)
    path = [p.copy()]
    for t in range(1, 21):
        g = np.array([(loss(p + e) - loss(p - e)) / 2e-6 for e in 1e-6 * np.eye(2)])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        p = p - 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        path.append(p.copy())
    came = powers.learn(kind, torch.tensor([target]), start, 1e-3, 20)
    np.testing.assert_allclose(array(came.path)[:, 0], np.stack(path), atol=1e-6)
    np.testing.assert_allclose(array(came.losses)[:, 0], [loss(x) for x in path], atol=1e-6)


def test_iterations_are_those_until_the_loss_is_small() -> None:
    small, large = powers.CONVERGED / 2, powers.CONVERGED * 2
    losses = torch.tensor([[large, large, small], [large, large, large], [small, large, small]])
    assert powers.until_converged(losses).tolist() == [2, 2, 0]


@pytest.mark.parametrize("k", [7, 50, 100])
def test_exchanged_axes_are_the_same_problem_for_every_k(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """θ and π/2 - θ, and Adam treats both axes alike: why the slow-down cannot be at π/2."""
    monkeypatch.setattr(powers, "K", k)
    turns = torch.tensor([-0.02, 0.01, 0.025], dtype=torch.float64)
    target, start = phase(0.3), 0.3 - turns
    ahead = powers.learn("real_imag", powers.polar(target), powers.polar(start), 1e-3, 100)
    behind = powers.learn("real_imag", powers.polar(math.pi / 2 - target), powers.polar(math.pi / 2 - start), 1e-3, 100)
    torch.testing.assert_close(ahead.losses, behind.losses, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(ahead.path, behind.path.flip(-1), rtol=1e-4, atol=1e-8)


def test_quick_run() -> None:
    result = powers.run(quick=True, seed=0, progress=silent)
    decoupled, slower, towards = result.findings
    assert decoupled.holds
    assert slower.holds
    assert not towards.holds  # the paper's words, which cannot hold for k = 100: see above
    iterations = {kind: np.mean(x, axis=1) for kind, x in result.numbers["iterations"].items()}
    assert np.ptp(iterations["exp"]) == 0
    assert iterations["real_imag"][[0, -1]] == pytest.approx(iterations["exp"][[0, -1]], rel=0.1)  # aligned
    assert iterations["real_imag"][4] > 1.5 * iterations["exp"][4]  # π/4
    json.dumps(result.numbers, allow_nan=False)
