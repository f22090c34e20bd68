"""RG-LRU and minGRU against their published equations, one step after the other in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch

import linrnn
from linrnn.cores.varying import Varying
from tests.cores.systems import perturb
from tests.helpers import Array, array, pieces, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
H, N = 3, 4
both_kinds = pytest.mark.parametrize("kind", [linrnn.RGLRU, linrnn.MinGRU], ids=["rglru", "mingru"])
every_direction = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def published(core: Varying, u: Array, h: Array) -> Array:
    """h_k of each step of one sequence."""
    p = {name: array(parameter) for name, parameter in core.named_parameters()}
    states = []
    for u_k in u:
        if isinstance(core, linrnn.RGLRU):
            x = p["B"] @ u_k
            r, i = sigmoid(p["W_r"] @ x + p["b_r"]), sigmoid(p["W_i"] @ x + p["b_i"])
            a = np.exp(-8 * np.log1p(np.exp(p["Lambda"])) * r)
            h = a * h + np.sqrt(1 - a**2) * (i * x)
        else:
            z = sigmoid(p["W_z"] @ u_k + p["b_z"])
            h = (1 - z) * h + z * (p["W_h"] @ u_k + p["b_h"])
        states.append(h)
    return np.array(states).reshape(len(u), N)


@both_kinds
@every_direction
def test_published_equations(kind: type[Any], bidirectional: bool) -> None:
    core = kind(H, N, bidirectional=bidirectional, **FLOAT64)
    perturb(core)
    u, lengths = torch.randn(2, 12, H, **FLOAT64), [12, 7]
    state = None if bidirectional else torch.randn(2, N, **FLOAT64)
    resets = torch.zeros(2, 12, dtype=torch.bool)
    resets[0, [4, 5]] = resets[1, 3] = True
    y, final = core(u, state, lengths=lengths, resets=resets)
    for b in range(2):
        h = np.zeros(N) if state is None else array(state[b])
        for start, stop, fresh in pieces(lengths[b], resets, b):
            part = array(u[b, start:stop])
            states = published(core, part, np.zeros(N) if fresh else h)
            h = states[-1]
            if bidirectional:
                states = np.concatenate([states, published(core, part[::-1], np.zeros(N))[::-1]], 1)
            assert relative_error(y[b, start:stop], states @ array(core.C).T + part * array(core.D)) < 1e-12
        if final is not None:
            assert relative_error(final[b], h) < 1e-12


def test_rglru_starts_with_the_published_decay() -> None:
    core = linrnn.RGLRU(8, 2000, a_min=0.5, a_max=0.8, **FLOAT64)
    a = array(torch.sigmoid(-core.Lambda)) ** 8  # softplus(Λ) = -log σ(-Λ)
    assert 0.5 <= a.min() < 0.51
    assert 0.79 < a.max() <= 0.8
    assert a.mean() == pytest.approx(0.65, abs=0.01)
    assert np.allclose(array(core.eigenvalues()), np.sqrt(a))  # with input 0, r is 1/2


def test_mingru_starts_with_averages_of_many_lengths() -> None:
    z = 1 - array(linrnn.MinGRU(8, 2000, **FLOAT64).eigenvalues()).real
    assert 0.001 <= z.min() < 0.0011
    assert 0.45 < z.max() <= 0.5
    assert np.log(z).mean() == pytest.approx(np.log(0.0005**0.5), abs=0.1)


@pytest.mark.parametrize("gate", [-200.0, 200.0])
@both_kinds
def test_closed_and_open_gates_have_finite_gradients(kind: type[Any], gate: float) -> None:
    core = kind(H, N)
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if name.startswith("b_"):
                parameter.fill_(gate)
    y, _ = core(torch.randn(1, 20, H))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in core.parameters())


def test_a_constant_input_settles_at_the_candidate_of_mingru() -> None:
    core = linrnn.MinGRU(H, N, z_min=0.1, **FLOAT64)
    u = torch.randn(1, 1, H, **FLOAT64)
    with torch.no_grad():
        core.W_z.zero_()
        _, state = core(u.expand(1, 1000, H))
    assert state is not None
    assert relative_error(state[0], u[0, 0] @ core.W_h.T + core.b_h) < 1e-10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linrnn.RGLRU(3, 4, a_max=1.0), "a_min, a_max: expected 0 < a_min <= a_max < 1, got 0.9, 1.0"),
        (lambda: linrnn.RGLRU(3, 4, a_min=0.0), "a_min, a_max: expected 0 < a_min <= a_max < 1, got 0.0, 0.999"),
        (lambda: linrnn.MinGRU(3, 4, z_min=0.6), "z_min, z_max: expected 0 < z_min <= z_max < 1, got 0.6, 0.5"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
