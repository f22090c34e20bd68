"""Fewer states: the Gramians against SciPy's Lyapunov equation, and the bound against the true change of the output."""

import numpy as np
import pytest
import scipy.linalg
import torch

import linrnn
from linrnn.cores import reduction
from tests.helpers import array, relative_error


def _layer(d_state: int = 12, **options: object) -> linrnn.LRU:
    torch.manual_seed(0)
    return linrnn.LRU(3, d_state, dtype=torch.float64, **{"r_min": 0.5, "r_max": 0.98, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gramians_against_scipy(bidirectional: bool) -> None:
    system = reduction.modes(_layer(bidirectional=bidirectional))
    A, B, C = (array(matrix) for matrix in system.real())
    P, Q = system.gramians()
    assert relative_error(P, torch.from_numpy(scipy.linalg.solve_discrete_lyapunov(A, B @ B.T))) < 1e-10
    assert relative_error(Q, torch.from_numpy(scipy.linalg.solve_discrete_lyapunov(A.T, C.T @ C))) < 1e-10


def test_singular_values_against_scipy() -> None:
    layer = _layer()
    A, B, C, _ = (array(matrix) for matrix in layer.to_dense())
    P = scipy.linalg.solve_discrete_lyapunov(A, B @ B.T)
    Q = scipy.linalg.solve_discrete_lyapunov(A.T, C.T @ C)
    expected = np.sqrt(np.sort(np.linalg.eigvals(P @ Q).real)[::-1])
    sigma = reduction.reduce(layer, 3).singular_values
    assert np.abs(array(sigma) / expected - 1).max() < 1e-6


@pytest.mark.parametrize("core", ["lru", "s5"])
@pytest.mark.parametrize("states", [3, 6, 11])
@pytest.mark.parametrize("by", ["balanced", "energy"])
def test_the_gain_of_the_change_is_below_the_bound(core: str, states: int, by: reduction.Method) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        layer = (
            linrnn.LRU(3, 12, r_min=0.2, dtype=torch.float64)
            if core == "lru"
            else linrnn.S5(3, 12, dtype=torch.float64)
        )
        smaller = reduction.reduce(layer, states, by=by)
        grid = torch.linspace(0, torch.pi, 2000, dtype=torch.float64)
        change = reduction.modes(layer).response(grid) - reduction.modes(smaller.layer).response(grid)
        largest = float(torch.linalg.matrix_norm(change, ord=2).max())
        assert largest <= smaller.bound * (1 + 1e-6)
        if by == "balanced":
            assert largest >= 0.99 * float(smaller.singular_values[2 * states])  # no system of this order does better


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_response_is_that_of_the_layer(bidirectional: bool) -> None:
    layer = _layer(bidirectional=bidirectional, r_max=0.9)
    impulses = torch.zeros(3, 2000, 3, dtype=torch.float64)
    impulses[range(3), 1000, range(3)] = 1
    with torch.no_grad():
        y = layer(impulses)[0] - layer.D * impulses  # (inputs, steps, outputs)
    frequencies = torch.tensor([0.0, 0.4, 1.0, 3.0], dtype=torch.float64)
    waves = torch.polar(torch.ones(4, 2000, dtype=torch.float64), -frequencies.outer(torch.arange(-1000, 1000)))
    expected = torch.einsum("kt,hto->koh", waves, y.to(waves.dtype))
    assert relative_error(reduction.modes(layer).response(frequencies), expected) < 1e-8


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True}, {"r_min": 0.99, "r_max": 0.9999}, {"max_phase": 0.01}, {"counters": 4}]
)
def test_the_gain_is_the_largest_of_all_frequencies(options: dict[str, object]) -> None:
    system = reduction.modes(_layer(**options))  # type: ignore[arg-type]
    grid = torch.cat([torch.linspace(0, torch.pi, 4096, dtype=torch.float64), system.lam.angle()])
    largest = float(torch.linalg.matrix_norm(system.response(grid), ord=2).max())
    assert 0.98 * largest < float(system.gain()) <= largest * (1 + 1e-9)


def test_the_bound_holds_for_the_sum_of_both_directions() -> None:
    layer = _layer(2, bidirectional=True, parameterization="exp")
    with torch.no_grad():
        layer.theta.zero_()
        layer.B[:, 1] = 0  # two real states, of which one is removed
        layer.C[..., 2:] = layer.C[..., :2]  # the changes of both directions add up
    smaller = reduction.reduce(layer, 1)
    zero = torch.zeros(1, dtype=torch.float64)
    change = reduction.modes(layer).response(zero) - reduction.modes(smaller.layer).response(zero)
    largest = float(torch.linalg.matrix_norm(change, ord=2))
    assert 0.6 * smaller.bound < largest <= smaller.bound


@pytest.mark.parametrize("parameterization", ["exp", "real_imag"])
@pytest.mark.parametrize("radius", [1.0, 1.02])
def test_an_unstable_layer_has_no_bound(parameterization: str, radius: float) -> None:
    layer = _layer(parameterization=parameterization)
    with torch.no_grad():
        if parameterization == "exp":
            layer.nu[3] = -torch.tensor(radius).log()
        else:
            layer.lam[:, 3] = torch.tensor([0.0, radius])
    with pytest.raises(ValueError, match=rf"layer: expected eigenvalues with \|λ\| < 1, got \|λ\| = {radius:g}"):
        reduction.reduce(layer, 4)


@pytest.mark.parametrize("parameterization", ["stable_exp", "exp", "real_imag"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_all_states_compute_the_same(parameterization: str, bidirectional: bool) -> None:
    layer = _layer(parameterization=parameterization, bidirectional=bidirectional)
    u = torch.randn(2, 60, 3, dtype=torch.float64)
    for by in ("balanced", "energy"):
        same = reduction.reduce(layer, 12, by=by).layer
        assert same.parameterization == parameterization
        assert relative_error(same(u)[0], layer(u)[0]) < 1e-8


@pytest.mark.parametrize("error", [0.3, 0.01])
def test_real_eigenvalues_that_cannot_be_reduced_keep_the_layer(error: float) -> None:
    layer = _layer(1, parameterization="real_imag")
    with torch.no_grad():
        layer.lam[:] = torch.tensor([[0.5], [0.0]])  # two real states, which one complex state holds
    same = reduction.reduce_to(layer, error)
    assert same.bound == 0
    u = torch.randn(2, 60, 3, dtype=torch.float64)
    assert relative_error(same.layer(u)[0], layer(u)[0]) < 1e-8


def test_a_layer_of_fewer_states_in_truth_is_found_exactly() -> None:
    layer = _layer()
    with torch.no_grad():
        layer.B[:, 4:] = 0  # 8 of 12 states are never reached
    smaller = reduction.reduce(layer, 4)
    assert smaller.bound < 1e-6
    u = torch.randn(2, 200, 3, dtype=torch.float64)
    assert relative_error(smaller.layer(u)[0], layer(u)[0]) < 1e-8
    wider = reduction.reduce(layer, 10).layer  # six states have nothing to do
    assert wider.d_state == 10
    assert relative_error(wider(u)[0], layer(u)[0]) < 1e-8


def test_real_eigenvalues_take_states_of_their_own() -> None:
    layer = _layer(parameterization="real_imag", normalize=False)
    with torch.no_grad():
        layer.lam[1] = 0
        layer.B[1] = 0
        layer.C[:, 1] = 0
    smaller = reduction.reduce(layer, 5)
    u = torch.randn(1, 300, 3, dtype=torch.float64)
    change = (smaller.layer(u)[0] - layer(u)[0]).norm() / u.norm()
    assert change <= smaller.bound


@pytest.mark.parametrize("error", [0.3, 0.1, 0.01])
def test_the_fewest_states_for_an_error(error: float) -> None:
    layer = _layer(40)
    limit = error * float(reduction.modes(layer).gain())
    smaller = reduction.reduce_to(layer, error)
    assert smaller.bound <= limit
    assert 1 < smaller.layer.d_state < 40
    assert reduction.reduce(layer, smaller.layer.d_state - 1).bound > limit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "states: expected at least 1, got 0"),
        ((13,), "states: expected at most d_state = 12, got 13"),
        (("4",), "states: expected an integer, got '4'"),
    ],
)
def test_errors(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        reduction.reduce(_layer(), *arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="by: expected 'balanced' or 'energy', got 'size'"):
        reduction.reduce(_layer(), 3, by="size")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"layer: expected a linrnn.LRU or linrnn.S5, got S4D"):
        reduction.modes(linrnn.S4D(3, 4))  # type: ignore[arg-type]
