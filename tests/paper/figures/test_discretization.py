import copy
import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.signal import cont2discrete
from torch import Tensor

from linrnn import spectrum
from linrnn.paper.figures import discretization
from linrnn.paper.figures.base import Result
from linrnn.paper.figures.discretization import zoh
from linrnn.tasks.base import silent
from tests.helpers import array


@pytest.mark.parametrize("init", ["lin", "inv", "legs"])
@pytest.mark.parametrize("delta", [0.001, 0.1])
def test_zoh_is_scipys(init: spectrum.S4DInit, delta: float) -> None:
    a = spectrum.s4d(5, init)
    lam, b = (array(x) for x in zoh(a, torch.tensor(delta, dtype=torch.float64)))
    system = np.diag(array(a)), np.ones((5, 1)), np.eye(5), np.zeros((5, 1))
    A, B, *_ = cont2discrete(system, delta, "zoh")
    np.testing.assert_allclose(lam, np.diag(A), rtol=1e-9)
    np.testing.assert_allclose(b, B[:, 0], rtol=1e-9)


def test_legs_is_hippo_plus_its_low_rank_part() -> None:
    """From the definition of HiPPO-LegS, by a general eigenvalue solver."""
    n = np.arange(16)
    root = np.sqrt(2 * n + 1)
    A = -np.tril(np.outer(root, root), -1) - np.diag(n + 1.0)
    expected = np.linalg.eigvals(A + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5)))
    above = sorted(expected[expected.imag > 0], key=lambda x: -float(x.imag))
    np.testing.assert_allclose(array(spectrum.s4d(8, "legs")), above, rtol=1e-9)


def test_inv_approximates_legs() -> None:
    inv, legs = (array(spectrum.s4d(64, init)).imag for init in ("inv", "legs"))
    np.testing.assert_allclose(inv[:4], legs[:4], rtol=0.06)


@pytest.fixture(scope="module")
def result() -> Result:
    return discretization.run(quick=True, seed=0, progress=silent)


def test_each_disk_shows_the_spectrum_it_is_named_after(result: Result) -> None:
    delta = np.array(result.numbers["step_sizes"])[:, None]
    panels = {ax.get_title(): ax for ax in result.figure.axes}
    for name, init in (("S4D-Lin", "lin"), ("S4D-Inv", "inv"), ("S4D-LegS", "legs")):
        dots = np.ma.getdata(panels[f"{name}, by Δ"].collections[0].get_offsets())
        expected = np.exp(delta * array(spectrum.s4d(32, init))).ravel()  # type: ignore[arg-type]
        np.testing.assert_allclose(dots, np.stack([expected.real, expected.imag], axis=1), atol=1e-9)


def test_the_quick_run(result: Result) -> None:
    assert [finding.measured for finding in result.findings if not finding.holds] == []
    json.dumps(result.numbers)
    delta = np.array(result.numbers["step_sizes"])
    assert delta.min() >= 0.001
    assert delta.max() <= 0.1
    np.testing.assert_allclose(result.numbers["radii"]["lin"], np.exp([-delta.max() / 2, -delta.min() / 2]))


def test_the_gains_are_the_closed_forms(result: Result) -> None:
    """S4D-Lin: |λ| = exp(-Δ/2), so that Σ|λ|^j = 1/(1 - exp(-Δ/2)) and Σ|λ|^2j = 1/(1 - exp(-Δ))."""
    gains = result.numbers["gains"]
    a = -0.5 + 1j * np.pi * np.arange(8)
    for i, delta in enumerate(gains["step_sizes"]):
        states = {"peak": 1 / (1 - np.exp(-delta / 2)), "noise": 1 / np.sqrt(1 - np.exp(-delta))}
        multipliers = {
            "none": np.ones(8),
            "delta": np.full(8, delta),
            "zoh": np.abs(np.expm1(delta * a) / a),
            "gamma": np.full(8, np.sqrt(1 - np.exp(-delta))),
        }
        for name, b in multipliers.items():
            for kind, x in states.items():
                np.testing.assert_allclose(gains["formula"][kind][i][name], x * b, rtol=1e-9)
            np.testing.assert_allclose(gains["measured"]["peak"][i][name], states["peak"] * b, rtol=1e-3)
        assert gains["measured"]["noise"][i] != gains["formula"]["noise"][i]


def test_states_under_white_noise_have_the_power_of_the_formula() -> None:
    lam, _ = zoh(spectrum.s4d(8, "lin"), torch.tensor(0.1, dtype=torch.float64))
    rms = array(discretization._run_states(lam, length=200, batch=64)["noise"])
    assert np.mean(rms**2) * (1 - np.exp(-0.1)) == pytest.approx(1, abs=0.08)  # 4 standard errors


FAULTS = [
    pytest.param("peak", "none", 0, 2.0, 0, id="the bare state grows faster"),
    pytest.param("peak", "delta", -1, 1.2, 1, id="a state with Δ is large"),
    pytest.param("peak", "zoh", 0, 1.1, 1, id="a state with ZOH is larger than with Δ"),
    pytest.param("noise", "gamma", 1, 1.5, 2, id="γ does not keep the variance"),
    pytest.param("noise", "delta", -1, 4.0, 2, id="Δ does not damp noise"),
]


@pytest.mark.parametrize(("kind", "name", "i", "factor", "claim"), FAULTS)
def test_gains_that_are_off_do_not_hold(
    kind: str, name: str, i: int, factor: float, claim: int, result: Result
) -> None:
    gains = copy.deepcopy(result.numbers["gains"])
    values = gains["measured"][kind][i]
    values[name] = [factor * value for value in values[name]]
    holds = [finding.holds for finding in discretization._gain_claims(gains)]
    assert holds == [j != claim for j in range(3)]


@pytest.mark.parametrize("change", [lambda a: 1.2 * a.real + 1j * a.imag, lambda a: a.real + 1.2j * a.imag])
def test_another_spectrum_is_not_the_papers_ring(
    change: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = change(spectrum.s4d(128, "lin"))
    monkeypatch.setattr(spectrum, "s4d", lambda n, init: a)
    assert not discretization._lin_claim().holds


def test_phases_that_do_not_follow_the_magnitude_and_a_ring_whose_phases_do(monkeypatch: pytest.MonkeyPatch) -> None:
    delta = torch.logspace(-3, -1, 24, dtype=torch.float64).unsqueeze(1)
    nu, theta = spectrum.sample_ring(1000, 0.9, 0.999, 6.28)
    assert discretization._link_claim(delta, torch.polar(torch.exp(-nu), theta)).holds
    assert not discretization._link_claim(delta, torch.polar(torch.exp(-nu), 20 * nu)).holds
    phases = torch.rand(24, 9, dtype=torch.float64)
    monkeypatch.setattr(discretization, "zoh", lambda a, d: (torch.polar(torch.exp(-d / 2), phases), None))
    assert not discretization._link_claim(delta, torch.polar(torch.exp(-nu), theta)).holds


def test_another_order_is_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert discretization._first_order_claim().holds
    monkeypatch.setattr(discretization, "zoh", lambda a, d: (None, d + a * d**1.5))
    assert not discretization._first_order_claim().holds


def test_the_picture_shows_what_was_measured(result: Result) -> None:
    gains = result.numbers["gains"]
    axes = result.figure.axes
    for ax, kind in ((axes[5], "peak"), (axes[6], "noise")):
        dots = [np.asarray(line.get_ydata(), float) for line in ax.lines if line.get_marker() == "o"]
        medians = [[np.median(values[name]) for values in gains["measured"][kind]] for name in ("none", "delta", "zoh")]
        np.testing.assert_allclose(dots[:3], medians)
    lru = np.asarray(axes[7].collections[0].get_offsets())[:, 1]  # how many steps a state remembers
    assert -1 / np.log(0.9) < lru.min() < 11
    assert 800 < lru.max() < -1 / np.log(0.999)
