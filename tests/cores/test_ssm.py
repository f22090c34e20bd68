"""HiPPO, discretization and convolution."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import signal, stats
from torch import Tensor

from linrnn import spectrum
from linrnn.cores import ssm
from linrnn.cores.convolution import _fast_length, convolve
from linrnn.recurrence.planes import to_planes
from tests.cores.systems import FLOAT64
from tests.helpers import array, relative_error


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_hippo_legs_by_its_definition(n: int) -> None:
    A, B = (array(x) for x in ssm.hippo_legs(n))
    for i in range(n):
        assert B[i] == pytest.approx(math.sqrt(2 * i + 1))
        for j in range(n):
            expected = math.sqrt((2 * i + 1) * (2 * j + 1)) if i > j else i + 1 if i == j else 0
            assert A[i, j] == pytest.approx(-expected)


@pytest.mark.parametrize("n", [1, 2, 8, 32])
def test_hippo_legs_is_normal_plus_rank_one(n: int) -> None:
    A, B = (array(x) for x in ssm.hippo_legs(2 * n))
    legs = ssm.legs(n)
    half, V, p, b = (array(x) for x in legs)
    a, V, p, b = (np.concatenate([x, x.conj()], axis=-1) for x in (half, V, p, b))  # both of each pair
    assert relative_error(V @ V.conj().T, np.eye(2 * n).astype(complex)) < 1e-12
    assert relative_error(V @ (np.diag(a) - np.outer(p, p.conj())) @ V.conj().T, A.astype(complex)) < 1e-12
    assert relative_error(V @ b, B.astype(complex)) < 1e-12
    normal = A + np.outer(np.sqrt(np.arange(2 * n) + 0.5), np.sqrt(np.arange(2 * n) + 0.5))
    assert relative_error(normal @ normal.T, normal.T @ normal) < 1e-12
    eigenvalues = np.linalg.eigvals(normal)
    assert relative_error(np.sort(eigenvalues.imag), np.sort(a.imag)) < 1e-10
    assert (half.imag > 0).all()
    assert relative_error(half, array(spectrum.s4d(n, "legs"))) < 1e-12


def test_hippo_legs_keeps_its_eigenvalues() -> None:
    """Of the triangular A they are on its diagonal, -1 ... -2n; few states: A is far from normal."""
    a, _, p, _ = (array(x) for x in ssm.legs(3))
    a, p = (np.concatenate([x, x.conj()]) for x in (a, p))
    came = np.linalg.eigvals(np.diag(a) - np.outer(p, p.conj()))
    assert relative_error(np.sort(came.real), -np.arange(6.0, 0, -1)) < 1e-8
    assert np.abs(came.imag).max() < 1e-8


@pytest.mark.parametrize("method", ["zoh", "bilinear"])
@pytest.mark.parametrize("delta", [1e-6, 0.001, 0.1, 3.0])
def test_discretization_against_scipy(method: ssm.Discretization, delta: float) -> None:
    a = torch.cat([spectrum.s4d(4, "lin"), spectrum.s4d(4, "inv"), torch.tensor([-3 - 1j, -0.001 + 0j])])
    lam, multiplier = (array(x)[0] + 1j * array(x)[1] for x in ssm.discretize(to_planes(delta * a), method))
    for k, a_k in enumerate(array(a)):
        A = np.array([[a_k.real, -a_k.imag], [a_k.imag, a_k.real]])  # on real and imaginary part
        A_bar, B_bar, *_ = signal.cont2discrete((A, np.eye(2)[:, :1], np.eye(2), np.zeros((2, 1))), delta, method)
        assert lam[k] == pytest.approx(complex(A_bar[0, 0], A_bar[1, 0]), rel=1e-10)
        assert delta * multiplier[k] == pytest.approx(complex(B_bar[0, 0], B_bar[1, 0]), rel=1e-9)


def test_discretization_in_single_precision() -> None:
    """(exp(z) - 1)/z keeps its digits as z → 0."""
    z = torch.tensor([[-1e-6, -1e-4, -1e-2], [1e-6, -3e-5, 0.0]])
    (_, came), (_, expected) = ssm.discretize(z, "zoh"), ssm.discretize(z.double(), "zoh")
    assert relative_error(came, expected) < 1e-6


def test_step_sizes_are_log_uniform() -> None:
    log_delta = array(ssm.sample_step_sizes(5000, 0.001, 0.1))
    low, high = math.log(0.001), math.log(0.1)
    assert stats.kstest(log_delta, stats.uniform(low, high - low).cdf).pvalue > 0.01


@pytest.mark.parametrize("value", [-1000.0, -20.0, 0.0, 20.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_eigenvalues_stay_inside_the_unit_disk(value: float, dtype: torch.dtype) -> None:
    nu = spectrum.stable(torch.tensor([value], dtype=dtype))
    for method in ("zoh", "bilinear"):
        lam, b = ssm.discretize(torch.stack([-nu, torch.full_like(nu, 0.5)]), method)
        assert float(lam.square().sum()) < 1
        assert b.isfinite().all()


@pytest.mark.parametrize("L", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("directions", [1, 2])
def test_convolution_against_numpy(L: int, directions: int) -> None:
    u, K = torch.randn(3, L, 2, **FLOAT64), torch.randn(directions, 2, L, **FLOAT64)
    expected = np.zeros(u.shape)
    for b in range(3):
        for h in range(2):
            expected[b, :, h] = np.convolve(array(u)[b, :, h], array(K)[0, h])[:L]
            if directions == 2:
                expected[b, :, h] += np.convolve(array(u)[b, ::-1, h], array(K)[1, h])[:L][::-1]
    assert relative_error(convolve(u, K), expected) < 1e-13


@pytest.mark.parametrize("L", [1, 4, 7])
@pytest.mark.parametrize("directions", [1, 2])
def test_gradients_of_the_convolution(L: int, directions: int) -> None:
    u, K = (torch.randn(*shape, requires_grad=True, **FLOAT64) for shape in ((2, L, 3), (directions, 3, L)))
    assert torch.autograd.gradcheck(convolve, (u, K))


def test_the_convolution_as_an_operator() -> None:
    u, K = (torch.randn(*shape, requires_grad=True, **FLOAT64) for shape in ((2, 4, 3), (2, 3, 4)))
    torch.library.opcheck(
        torch.ops.linrnn.convolve.default, (u, K), test_utils=("test_schema", "test_aot_dispatch_static")
    )


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3)])
def test_convolution_of_nothing(shape: tuple[int, int, int]) -> None:
    u, K = torch.zeros(shape, requires_grad=True), torch.ones(1, 3, shape[1], requires_grad=True)
    y: Tensor = convolve(u, K)
    assert y.shape == shape
    y.sum().backward()
    assert K.grad is not None
    assert not K.grad.any()


def test_fast_lengths() -> None:
    lengths = {m << k for m in (1, 3, 5, 9, 15) for k in range(20)}
    for n in (1, 2, 3, 7, 10, 11, 17, 1023, 2048, 2049, 33_000):
        assert _fast_length(n) == min(length for length in lengths if length >= n)


def test_right_aligned() -> None:
    u = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]).unsqueeze(-1)
    came = ssm.right_aligned(u, torch.tensor([2, 0, 3]))
    assert came.squeeze(-1).tolist() == [[0, 1, 2], [0, 0, 0], [1, 2, 3]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dt_min": 0.0}, "dt_min: expected a step size above 0, got 0.0"),
        ({"dt_min": math.nan}, "dt_min: expected a step size above 0, got nan"),
        ({"dt_min": 0.2}, "dt_max: expected a step size from dt_min = 0.2 up, got 0.1"),
        ({"dt_max": math.inf}, "dt_max: expected .*, got inf"),
    ],
    ids=["zero", "nan", "order", "infinite"],
)
def test_errors_of_step_sizes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ssm.check_step_sizes(**{"dt_min": 0.001, "dt_max": 0.1, **arguments})
