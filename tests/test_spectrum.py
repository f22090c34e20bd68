import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import linrnn
from linrnn import spectrum
from linrnn.spectrum import LRUParameterization as Parameterization
from tests.helpers import Array, array

RINGS = [(0.0, 1.0), (0.0, 0.9), (0.5, 0.99), (0.9, 0.999)]
# every finite number, and more often those where λ still moves
FINITE = st.floats(-80, 80) | st.floats(allow_nan=False, allow_infinity=False, width=32)
DTYPES = [pytest.param(dtype, id=str(dtype).removeprefix("torch.")) for dtype in (torch.float32, torch.float64)]


@pytest.mark.parametrize(("r_min", "r_max"), RINGS)
@pytest.mark.parametrize("max_phase", [2 * math.pi, math.pi / 10], ids=["whole", "slice"])
def test_sampling_lemma(r_min: float, r_max: float, max_phase: float) -> None:
    """Uniform on a ring means: radius² uniform between the squares, phase uniform, the two independent."""
    torch.manual_seed(0)
    nu, theta = (array(x) for x in spectrum.sample_ring(20_000, r_min, r_max, max_phase))
    radius2 = np.exp(-2 * nu)
    assert stats.kstest(radius2, stats.uniform(r_min**2, r_max**2 - r_min**2).cdf).pvalue > 0.01
    assert stats.kstest(theta, stats.uniform(0, max_phase).cdf).pvalue > 0.01
    assert abs(np.corrcoef(radius2, theta)[0, 1]) < 0.03


@pytest.mark.parametrize("parameterization", ["stable_exp", "exp", "real_imag"])
@pytest.mark.parametrize(("r_min", "r_max"), RINGS)
def test_layers_start_on_the_ring(parameterization: Parameterization, r_min: float, r_max: float) -> None:
    torch.manual_seed(0)
    layer = linrnn.LRU(1, 5000, r_min=r_min, r_max=r_max, max_phase=math.pi / 2, parameterization=parameterization)
    lam = array(layer.eigenvalues())
    assert stats.kstest(np.abs(lam) ** 2, stats.uniform(r_min**2, r_max**2 - r_min**2).cdf).pvalue > 0.01
    assert stats.kstest(np.angle(lam), stats.uniform(0, math.pi / 2).cdf).pvalue > 0.01


@pytest.mark.parametrize("parameterization", ["stable_exp", "exp", "real_imag"])
def test_some_start_as_counters(parameterization: Parameterization) -> None:
    """Close to 1, the logarithms of ν and θ uniformly distributed; all else starts as it does without them."""
    layers = []
    for counters in (0, 500):
        torch.manual_seed(0)
        layers.append(linrnn.LRU(3, 600, max_phase=3.0, counters=counters, parameterization=parameterization).double())
    without, layer = layers
    lam, plain = array(layer.eigenvalues()), array(without.eigenvalues())
    for log in (np.log10(-np.log(np.abs(lam[:500]))), np.log10(np.angle(lam[:500]))):
        assert stats.kstest(log, stats.uniform(-4, 2).cdf).pvalue > 0.01
    np.testing.assert_array_equal(lam[500:], plain[500:])
    assert layer.gamma_log is not None
    gamma = np.exp(array(layer.gamma_log))
    np.testing.assert_allclose(gamma, np.sqrt(1 - np.abs(lam) ** 2), rtol=2e-3)  # of ν in single precision
    for name in ("B", "C", "D"):
        assert torch.equal(getattr(layer, name), getattr(without, name)), name


def test_a_ring_of_one_radius() -> None:
    nu, _ = spectrum.sample_ring(100, 0.9, 0.9, 2 * math.pi)
    np.testing.assert_allclose(np.exp(-array(nu)), 0.9, rtol=1e-12)


def test_draws_never_give_an_infinite_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: draws.clone())
    layer = linrnn.LRU(2, 4, r_min=0.0, r_max=1.0)
    assert all(p.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 0.9), (0.0, 0.99), (0.5, 0.95), (0.9, 0.99)])
def test_blow_up_proposition(r_min: float, r_max: float) -> None:
    """E‖x_∞‖² / E‖Bu‖² for white noise, in time averages after a burn-in."""
    torch.manual_seed(1)
    nu, theta = spectrum.sample_ring(10_000, r_min, r_max, 2 * math.pi)
    gain = _state_variance(nu, theta, torch.ones_like(nu)).mean()
    expected = math.log((1 - r_min**2) / (1 - r_max**2)) / (r_max**2 - r_min**2)
    assert gain == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 0.9), (0.0, 0.99), (0.9, 0.99)])
def test_gamma_gives_the_state_unit_variance(r_min: float, r_max: float) -> None:
    torch.manual_seed(2)
    nu, theta = spectrum.sample_ring(10_000, r_min, r_max, 2 * math.pi)
    variance = _state_variance(nu, theta, spectrum.gamma(nu))
    assert variance.mean() == pytest.approx(1, rel=0.02)
    outer = array(nu) < np.median(array(nu))
    assert variance[outer].mean() == pytest.approx(1, rel=0.03)  # not only on average over the ring
    assert variance[~outer].mean() == pytest.approx(1, rel=0.03)


def test_circular_law() -> None:
    """Glorot's A has eigenvalues uniform in the unit disk, up to a few (about sqrt(2N/π)) on the real line."""
    torch.manual_seed(3)
    lam = np.linalg.eigvals(array(linrnn.RNN(1, 500).A))
    assert np.abs(lam).max() < 1.1
    assert stats.kstest(np.abs(lam) ** 2, stats.uniform(0, 1).cdf).statistic < 0.06
    assert stats.kstest(np.angle(lam), stats.uniform(-math.pi, 2 * math.pi).cdf).statistic < 0.06


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-7.0, -5.0, -3.0, -1.0, 0.0, 1.0])
def test_gamma_is_accurate_as_lambda_nears_one(dtype: torch.dtype, exponent: float) -> None:
    nu = torch.tensor([10**exponent], dtype=dtype)
    came = float(spectrum.gamma(nu))
    with localcontext() as context:
        context.prec = 50
        expected = float((1 - (-2 * Decimal(float(nu))).exp()).sqrt())
    assert came == pytest.approx(expected, rel=4 * torch.finfo(dtype).eps)


def test_gamma_log_starts_at_the_normalization_of_its_eigenvalue() -> None:
    torch.manual_seed(4)
    layer = linrnn.LRU(2, 50, r_min=0.999, r_max=1.0, dtype=torch.float64)
    assert layer.gamma_log is not None
    with localcontext() as context:
        context.prec = 50
        for nu_log, gamma_log in zip(layer.nu_log.tolist(), layer.gamma_log.tolist(), strict=True):
            expected = (1 - (-2 * Decimal(nu_log).exp()).exp()).ln() / 2
            assert gamma_log == pytest.approx(float(expected), rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(
    nu_log=st.lists(FINITE, min_size=1, max_size=20),
    theta_log=st.floats(-80, 80),
    double=st.booleans(),
)
def test_eigenvalues_stay_inside_the_unit_disk(nu_log: list[float], theta_log: float, double: bool) -> None:
    _check_inside(nu_log, [theta_log] * len(nu_log), torch.float64 if double else torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_stay_inside_at_every_phase(dtype: torch.dtype) -> None:
    """Rounding of cos and sin must not lift |λ| to 1: a sweep of phases at the largest |λ| there is."""
    theta_log = np.log(np.linspace(1e-3, 4 * math.pi, 3000)).tolist()
    for nu_log in (-80.0, -40.0, -30.0, -15.0, -14.0):
        _check_inside([nu_log] * len(theta_log), theta_log, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_stable_exp_is_the_papers_formula(dtype: torch.dtype) -> None:
    nu_log = torch.linspace(-12, 4, 200, dtype=dtype)
    theta_log = torch.linspace(-6, 3, 200, dtype=dtype)
    expected = np.exp(-np.exp(array(nu_log)) + 1j * np.exp(array(theta_log)))
    re, im = array(spectrum.stable_exp(nu_log, theta_log))
    np.testing.assert_allclose(re + 1j * im, expected, rtol=0, atol=40 * torch.finfo(dtype).eps)


@settings(deadline=None, max_examples=30)
@given(nu_log=FINITE, theta_log=st.floats(-80, 80), double=st.booleans())
@example(nu_log=100.0, theta_log=0.0, double=False)  # where exp overflows
@example(nu_log=1000.0, theta_log=0.0, double=True)
@example(nu_log=-1e30, theta_log=0.0, double=False)
def test_gradients_of_stable_exp_are_finite(nu_log: float, theta_log: float, double: bool) -> None:
    dtype = torch.float64 if double else torch.float32
    inputs = [torch.tensor([x], dtype=dtype, requires_grad=True) for x in (nu_log, theta_log)]
    for plane in spectrum.stable_exp(*inputs):
        assert all(g.isfinite().all() for g in torch.autograd.grad(plane.sum(), inputs, retain_graph=True))


def test_gradients_of_stable_exp_are_those_of_the_formula() -> None:
    inputs = [torch.linspace(*ends, 50, dtype=torch.float64, requires_grad=True) for ends in ((-10, 3), (-5, 2))]
    assert torch.autograd.gradcheck(spectrum.stable_exp, inputs)


def _check_inside(nu_log: list[float], theta_log: list[float], dtype: torch.dtype) -> None:
    """|λ| < 1 in exact arithmetic, of the rounded planes."""
    planes = spectrum.stable_exp(torch.tensor(nu_log, dtype=dtype), torch.tensor(theta_log, dtype=dtype))
    for re, im in planes.T.tolist():
        assert Fraction(re) ** 2 + Fraction(im) ** 2 < 1


def _state_variance(nu: torch.Tensor, theta: torch.Tensor, gain: torch.Tensor) -> Array:
    """The time average of |x|² for each eigenvalue, under white noise of unit variance, after 600 steps."""
    lam = torch.polar(torch.exp(-nu), theta).to(torch.complex64)
    state, total, pieces = torch.zeros(1, len(lam), dtype=torch.complex64), torch.zeros(len(lam)), 6
    for piece in range(-3, pieces):
        u = gain.float() * torch.randn(1, 200, len(lam), dtype=torch.complex64)
        x, state = linrnn.scan(u, lam, state)
        if piece >= 0:
            total = total + x.abs().square().mean(dim=(0, 1))
    return array(total / pieces)
