from typing import Any

import numpy as np
import pytest
import torch

import linrnn
from linrnn.spectrum import LRUParameterization as Parameterization
from tests.helpers import Array, array, eigenvalues, oracle, relative_error

DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-10)], ids=["float32", "float64"]
)
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


@DTYPES
@DIRECTIONS
@pytest.mark.parametrize("d_state", [1, 2, 7, 32])
def test_diagonalize(dtype: torch.dtype, tolerance: float, bidirectional: bool, d_state: int) -> None:
    rnn = _stable_rnn(d_state, bidirectional, dtype)
    lru = linrnn.diagonalize(rnn)
    assert isinstance(lru, linrnn.LRU)
    assert lru.D.dtype == dtype
    u = torch.randn(2, 100, 3, dtype=dtype)
    expected, _ = oracle(rnn, u)
    assert relative_error(lru(u)[0], expected) < tolerance
    held = np.zeros(3)  # the states that hold u_k for D, which is no diagonal matrix
    assert _distance(array(lru.eigenvalues()), np.append(np.linalg.eigvals(array(rnn.A)), held)) < 10 * tolerance


@DIRECTIONS
def test_a_diagonal_d_takes_no_more_states(bidirectional: bool) -> None:
    rnn = _stable_rnn(5, bidirectional, torch.float64)
    with torch.no_grad():
        rnn.D.copy_(torch.diag(torch.randn(3)))
    lru = linrnn.diagonalize(rnn)
    assert lru.d_state == 5
    assert torch.equal(lru.D, rnn.D.diagonal())
    u = torch.randn(2, 40, 3, dtype=torch.float64)
    assert relative_error(lru(u)[0], oracle(rnn, u)[0]) < 1e-10


@DTYPES
@DIRECTIONS
@pytest.mark.parametrize("parameterization", ["stable_exp", "exp", "real_imag"])
def test_real_form(
    dtype: torch.dtype, tolerance: float, bidirectional: bool, parameterization: Parameterization
) -> None:
    switches: Any = {"parameterization": parameterization, "bidirectional": bidirectional, "dtype": dtype}
    lru = linrnn.LRU(3, 8, r_min=0.3, r_max=0.95, **switches)
    rnn = linrnn.real_form(lru)
    assert (rnn.nonlinearity, rnn.d_state, rnn.A.dtype) == ("linear", 16, dtype)
    u = torch.randn(2, 100, 3, dtype=dtype)
    expected, _ = oracle(lru, u)
    assert relative_error(rnn(u)[0], expected) < tolerance


def test_real_form_is_made_of_rotation_blocks() -> None:
    lru = linrnn.LRU(2, 3, dtype=torch.float64)
    A = array(linrnn.real_form(lru).A)
    expected = np.zeros((6, 6))
    for i, lam in enumerate(eigenvalues(lru)):
        expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[lam.real, -lam.imag], [lam.imag, lam.real]]
    assert relative_error(A, expected) < 1e-14


@DIRECTIONS
def test_round_trips(bidirectional: bool) -> None:
    u = torch.randn(2, 50, 3, dtype=torch.float64)
    rnn = _stable_rnn(6, bidirectional, torch.float64)
    assert relative_error(linrnn.real_form(linrnn.diagonalize(rnn))(u)[0], rnn(u)[0]) < 1e-10
    lru = linrnn.LRU(3, 6, r_max=0.9, bidirectional=bidirectional, dtype=torch.float64)
    form = linrnn.real_form(lru)
    assert torch.equal(form.D, torch.diag(lru.D))
    back = linrnn.diagonalize(form)
    assert relative_error(back(u)[0], lru(u)[0]) < 1e-10
    lam = eigenvalues(lru)
    assert _distance(array(back.eigenvalues()), np.concatenate([lam, lam.conj()])) < 1e-12


def test_the_given_layer_is_left_alone() -> None:
    rnn = _stable_rnn(4, False, torch.float64)
    before = {name: p.clone() for name, p in rnn.named_parameters()}
    lru = linrnn.diagonalize(rnn)
    with torch.no_grad():
        for parameter in lru.parameters():
            parameter.zero_()
    assert all(torch.equal(p, before[name]) for name, p in rnn.named_parameters())
    assert all(p.requires_grad for p in lru.parameters())


def test_a_defective_matrix_is_refused() -> None:
    rnn = linrnn.RNN(2, 2, nonlinearity="linear", dtype=torch.float64)
    with torch.no_grad():
        rnn.A.copy_(torch.tensor([[0.5, 1.0], [0.0, 0.5]]))
    with pytest.raises(ValueError, match="rnn: expected a diagonalizable A, got"):
        linrnn.diagonalize(rnn)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_a_nonlinear_rnn_is_refused(nonlinearity: Any) -> None:
    with pytest.raises(ValueError, match=f"rnn: expected nonlinearity='linear', got '{nonlinearity}'"):
        linrnn.diagonalize(linrnn.RNN(2, 2, nonlinearity=nonlinearity))


def test_other_types_are_refused() -> None:
    wrong: Any = torch.nn.RNN(2, 2)
    with pytest.raises(TypeError, match=r"rnn: expected a linrnn\.RNN, got LRU"):
        linrnn.diagonalize(linrnn.LRU(2, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"rnn: expected a linrnn\.RNN, got RNN"):
        linrnn.diagonalize(wrong)
    with pytest.raises(TypeError, match=r"lru: expected a linrnn\.LRU, got RNN"):
        linrnn.real_form(linrnn.RNN(2, 2))  # type: ignore[arg-type]


def _stable_rnn(d_state: int, bidirectional: bool, dtype: torch.dtype) -> linrnn.RNN:
    """Glorot's A, scaled to a spectral radius of 0.9: some eigenvalues of a finite A lie outside the disk."""
    rnn = linrnn.RNN(3, d_state, nonlinearity="linear", bidirectional=bidirectional, dtype=dtype)
    with torch.no_grad():
        rnn.A.mul_(0.9 / np.abs(np.linalg.eigvals(array(rnn.A))).max())
    return rnn


def _distance(a: Array, b: Array) -> float:
    """Between two sets of as many numbers: how far the worst-off is from its nearest neighbour."""
    assert a.shape == b.shape
    distances = np.abs(a[:, None] - b)
    return float(max(distances.min(axis=0).max(), distances.min(axis=1).max()))
