import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from linrnn import spectrum as rings
from linrnn.paper.figures import spectrum
from linrnn.tasks.base import silent


def test_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    values = np.random.default_rng(0).beta(2, 3, 500)
    for low, high in ((0.0, 1.0), (-1.0, 2.0), (0.2, 0.6)):
        expected = stats.kstest(values, stats.uniform(low, high - low).cdf).statistic
        assert spectrum.distance(values, low, high) == pytest.approx(expected, rel=1e-12)


def test_the_limit_is_the_quantile_of_kolmogorovs_law() -> None:
    assert stats.kstwobign.sf(spectrum.KS_LIMIT) == pytest.approx(spectrum.CHANCE, rel=1e-3)
    assert stats.norm.sf(spectrum.NORMAL_LIMIT) * 2 == pytest.approx(spectrum.CHANCE, rel=0.05)


def test_the_claims_hold() -> None:
    result = spectrum.run(quick=True, seed=0, progress=silent)
    assert [finding.holds for finding in result.findings] == [True] * 5
    json.dumps(result.numbers, allow_nan=False)
    radial = result.numbers["radial_distance"]
    assert radial == sorted(radial, reverse=True)
    lam = result.numbers["eigenvalues"][256]
    radius2 = np.square(lam["re"]) + np.square(lam["im"])
    assert stats.kstest(radius2, stats.uniform(0, 1).cdf).statistic < 0.08


def test_a_radius_that_is_itself_uniform_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(n: int, r_min: float, r_max: float, max_phase: float) -> tuple[torch.Tensor, torch.Tensor]:
        r, phase = torch.rand(2, n, dtype=torch.float64)
        return -torch.log(r_min + (r_max - r_min) * r), max_phase * phase

    monkeypatch.setattr(rings, "sample_ring", wrong)
    result = spectrum.run(quick=True, seed=0, progress=silent)
    wide = [f.holds for f in result.findings if f.claim.startswith("ring")][:2]  # in a thin ring the two are alike
    assert wide == [False, False]


def test_a_variance_that_does_not_shrink_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(N: int, draws: int, progress: object) -> list[spectrum.Array]:
        generator = np.random.default_rng(N)
        return [np.linalg.eigvals(generator.normal(0, 0.8 / math.sqrt(N), (N, N))) for _ in range(draws)]

    monkeypatch.setattr(spectrum, "_glorot", wrong)
    result = spectrum.run(quick=True, seed=0, progress=silent)
    assert not result.findings[0].holds
