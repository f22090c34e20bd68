import json
import math

import numpy as np
import pytest
from scipy import integrate

from linrnn.cores.lru import LRU
from linrnn.paper.figures import relu
from linrnn.tasks.base import silent


def test_the_proposition_gives_the_known_series_of_a_rectified_sine() -> None:
    expected = np.zeros(relu.HARMONICS + 1, complex)
    expected[0], expected[1] = 1 / math.pi, -0.25j
    for m in range(1, relu.HARMONICS // 2 + 1):
        expected[2 * m] = -1 / (math.pi * (4 * m**2 - 1))  # half of the cosine's
    np.testing.assert_allclose(relu.proposition(relu.SIGNALS["sin t"]), expected, rtol=0, atol=1e-14)


def test_regions_are_where_the_signal_is_positive() -> None:
    assert relu.regions(relu.SIGNALS["sin t"]) == [pytest.approx((math.pi / 2, math.pi / 2))]
    assert relu.regions(relu.SIGNALS["sin t - 1/2"]) == [pytest.approx((math.pi / 2, math.pi / 3))]
    several = "sin t + sin 3t - 0.3 cos 4t"
    found = relu.regions(relu.SIGNALS[several])
    share = float(np.mean(relu.values(relu.SIGNALS[several], 100_000) > 0))
    assert len(found) == 2
    assert sum(L for _, L in found) / math.pi == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("name", relu.SIGNALS)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_coefficients_are_the_integrals(name: str, n: int) -> None:
    """∫ ReLU(u) exp(-int) dt / 2π, by quadrature."""
    t = 2 * np.pi * np.arange(20_001) / 20_000
    signals = {
        "sin t": np.sin(t),
        "sin t - 1/2": np.sin(t) - 0.5,
        "sin t + sin 3t - 0.3 cos 4t": np.sin(t) + np.sin(3 * t) - 0.3 * np.cos(4 * t),
    }
    u = np.maximum(signals[name], 0)
    expected = integrate.simpson(u * np.exp(-1j * n * t), x=t) / (2 * np.pi)
    assert abs(relu.proposition(relu.SIGNALS[name])[n] - expected) < 1e-7
    sampled = relu.coefficients(np.maximum(relu.values(relu.SIGNALS[name], 2**14), 0))
    assert abs(sampled[n] - expected) < 1e-6


def test_the_claims_hold() -> None:
    result = relu.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [True] * 5
    json.dumps(result.numbers, allow_nan=False)


def test_a_wrong_width_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = relu.regions
    monkeypatch.setattr(relu, "regions", lambda a: [(p, 0.99 * L) for p, L in right(a)])
    result = relu.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [False] * 3 + [True] * 2


def test_a_core_that_is_not_linear_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LRU.forward
    monkeypatch.setattr(LRU, "forward", lambda self, u: (right(self, u)[0].relu(), None))
    result = relu.run(quick=True, seed=0, progress=silent)
    assert not result.findings[-1].holds
