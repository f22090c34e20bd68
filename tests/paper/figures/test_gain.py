import cmath
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate

from linrnn.paper.figures import gain
from linrnn.paper.figures.base import Result
from linrnn.recurrence import scan_planes
from linrnn.tasks.base import silent

RINGS = [(0.0, 0.8), (0.5, 0.95), (0.9, 0.99)]


def mean_over_ring(f: Callable[[complex], float], r_min: float, r_max: float) -> float:
    """By quadrature over the area, |λ|² and the phase being uniform."""

    def integrand(phase: float, s: float) -> float:
        return f(cmath.rect(math.sqrt(s), phase))

    total, _ = integrate.dblquad(integrand, r_min**2, r_max**2, 0, math.pi, epsrel=1e-6)
    return float(total / (math.pi * (r_max**2 - r_min**2)))


@pytest.mark.parametrize(("r_min", "r_max"), RINGS)
def test_the_formula_is_the_mean_gain_of_a_state(r_min: float, r_max: float) -> None:
    formula = gain.formula(r_min, r_max)
    assert mean_over_ring(lambda lam: 1 / abs(1 - lam) ** 2, r_min, r_max) == pytest.approx(formula, rel=1e-5)
    assert mean_over_ring(lambda lam: 1 / (1 - abs(lam) ** 2), r_min, r_max) == pytest.approx(formula, rel=1e-5)
    with_gamma = mean_over_ring(lambda lam: (1 - abs(lam) ** 2) / abs(1 - lam) ** 2, r_min, r_max)
    assert with_gamma == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(("r_min", "r_max"), RINGS)
def test_the_standard_error_is_that_of_the_mean(r_min: float, r_max: float) -> None:
    G = gain.formula(r_min, r_max)
    for normalized in (False, True):

        def square(lam: complex, normalized: bool = normalized) -> float:
            return float(((1 - abs(lam) ** 2 if normalized else 1) / abs(1 - lam) ** 2) ** 2)

        variance = mean_over_ring(square, r_min, r_max) - (1 if normalized else G) ** 2
        came = gain.standard_error(r_min, r_max, 1, "constant", normalized=normalized)
        assert came == pytest.approx(math.sqrt(2 * variance), rel=1e-4)
    variance = mean_over_ring(lambda lam: (1 - abs(lam) ** 2) ** -2, r_min, r_max) - G**2
    came = gain.standard_error(r_min, r_max, 1, "white noise", normalized=False)
    assert came == pytest.approx(math.sqrt((1 + 1 / gain.H) * variance), rel=1e-4)


def test_measuring_is_the_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop over the steps in NumPy, on the same draws."""
    N, L = 5, 40
    seen: dict[str, Any] = {}

    def watched(Bu: torch.Tensor, lam: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.update(Bu=Bu, lam=lam)
        return scan_planes(Bu, lam)

    monkeypatch.setattr(gain, "scan_planes", watched)
    came = gain.measure(N, L, 0.5, 0.9)
    Bu, lam = (x.numpy() for x in (seen["Bu"], seen["lam"]))
    v, lam = Bu[..., 0, :] + 1j * Bu[..., 1, :], lam[0] + 1j * lam[1]
    assert np.ptp(v[0], axis=0).max() < 1e-12
    for g, scale in enumerate((np.ones(N), np.sqrt(1 - np.abs(lam) ** 2))):
        for k in range(2):
            x, energy = np.zeros(N, complex), 0.0
            for step in range(L):
                x = lam * x + scale * v[k, step]
                energy += (step >= L // 2) * float((np.abs(x) ** 2).sum())
            assert came[g, k] == pytest.approx(energy / float((np.abs(v[k, L // 2 :]) ** 2).sum()), rel=1e-10)


@pytest.fixture(scope="module")
def result() -> Result:
    return gain.run(quick=True, seed=0, progress=silent)


def test_the_claims_hold(result: Result) -> None:
    assert [finding.holds for finding in result.findings] == [True] * 6
    json.dumps(result.numbers, allow_nan=False)
    noise = np.mean(result.numbers["gain, white noise"], axis=1)
    np.testing.assert_allclose(noise, result.numbers["formula"], rtol=0.15)
    np.testing.assert_allclose(np.mean(result.numbers["gain with γ, white noise"], axis=1), 1, rtol=0.03)


def test_a_wrong_formula_is_found_out(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rings = [(r_min, r_max) for r_min, r_max in result.numbers["rings"]]
    gains = np.array([[result.numbers[f"gain{g}, {kind}"] for kind in gain.INPUTS] for g in ("", " with γ")])
    gains = gains.transpose(2, 0, 1, 3)
    wrong = np.array([1 / (1 - r_max**2) for _, r_max in rings])  # as if all eigenvalues were at r_max
    holds = [f.holds for f in gain._findings(rings, gains, wrong, result.numbers["N"])]
    assert holds[:2] == [False, False]


def test_the_seed_decides() -> None:
    def once() -> gain.Array:
        torch.manual_seed(3)
        return gain.measure(5, 20, 0.0, 0.9)

    np.testing.assert_array_equal(once(), once())
