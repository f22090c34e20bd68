import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

import linrnn
from linrnn.cores import s4, ssm
from tests.cores.systems import FLOAT64, gradcheck, oracle, perturb, steps, vector
from tests.helpers import Array, array, gradients, relative_error

DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def discretized(layer: linrnn.S4, h: int) -> tuple[Array, Array, Array]:
    """Ā, B̄ and C of a feature over all 2N states, both of each pair, from the raw parameters, by SciPy."""
    p = {name: array(parameter) for name, parameter in layer.named_parameters()}
    a = -np.exp(p["a_re_log"][h]) + 1j * p["a_im"][h]
    P, B, C = (x[0, h] + 1j * x[1, h] for x in (p["p"], p["B"], p["C"][0]))
    a, P, B, C = (np.concatenate([x, x.conj()]) for x in (a, P, B, C))
    A = np.diag(a) - np.outer(P, P.conj())
    delta = np.exp(p["delta_log"][h])
    A_bar, B_bar, *_ = signal.cont2discrete((A, B[:, None], C[None], np.zeros((1, 1))), delta, "bilinear")
    return A_bar, B_bar[:, 0], C


@pytest.mark.parametrize("L", [1, 2, 63, 1024])
@pytest.mark.parametrize("perturbed", [False, True], ids=["hippo", "anywhere"])
def test_kernel_against_powers_of_the_dense_matrix(L: int, perturbed: bool) -> None:
    H, N = 2, 8
    layer = linrnn.S4(H, N, **FLOAT64)
    if perturbed:
        perturb(layer)
    expected = np.zeros((L, H))
    for h in range(H):
        A_bar, x, C = discretized(layer, h)
        for k in range(L):
            expected[k, h] = (C @ x).real
            x = A_bar @ x
    expected[0] += array(layer.D)
    kernel = layer.kernel(L)
    assert relative_error(kernel.diagonal(dim1=1, dim2=2), expected) < 1e-10
    assert relative_error(kernel, np.einsum("kh,hg->khg", expected, np.eye(H))) < 1e-10
    impulse = torch.zeros(1, L, H, **FLOAT64)
    impulse[:, 0] = 1
    assert relative_error(layer(impulse)[0][0], expected) < 1e-10


def test_starts_from_hippo(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the real system with HiPPO's own A and, without bounds, B: the same kernel, whatever C is in its basis."""
    monkeypatch.setattr(ssm, "B_BOUND", math.inf)
    N = 4
    layer = linrnn.S4(1, N, **FLOAT64)
    A, B = (array(x) for x in ssm.hippo_legs(2 * N))
    V = array(ssm.legs(N).V)
    C = array(layer.C)[0, 0, 0] + 1j * array(layer.C)[0, 1, 0]
    out = 2 * (C @ V.conj().T).real
    delta = math.exp(float(layer.delta_log.detach()))
    A_bar, x, *_ = signal.cont2discrete((A, B[:, None], out[None], np.zeros((1, 1))), delta, "bilinear")
    expected = []
    for _ in range(50):
        expected.append(float(out @ x[:, 0]))
        x = A_bar @ x
    expected[0] += float(layer.D.detach())
    assert relative_error(layer.kernel(50).flatten(), np.array(expected)) < 1e-10


@pytest.mark.parametrize("L", [1, 300])
def test_the_system_it_stands_for(L: int) -> None:
    layer = linrnn.S4(2, 4, **FLOAT64)
    perturb(layer)
    u = torch.randn(1, L, 2, **FLOAT64)
    y, state = layer(u)
    for h in range(2):
        A_bar, B_bar, C = discretized(layer, h)
        x, expected = np.zeros(8, complex), []
        for u_k in array(u)[0, :, h]:
            x = A_bar @ x + B_bar * u_k
            expected.append((C @ x).real + array(layer.D)[h] * u_k)
        assert relative_error(y[0, :, h], np.array(expected)) < 1e-10
        assert relative_error(state[0, 0, h] + 1j * state[0, 1, h], x[:4]) < 1e-10


def test_to_dense_against_scipy() -> None:
    layer = linrnn.S4(3, 4, **FLOAT64)
    A, B, C, D = (array(m) for m in layer.to_dense())
    assert (A.shape, B.shape, C.shape, D.shape) == ((24, 24), (24, 3), (3, 24), (3, 3))
    expected = np.concatenate([np.linalg.eigvals(discretized(layer, h)[0]) for h in range(3)])
    assert relative_error(np.sort(np.abs(np.linalg.eigvals(A))), np.sort(np.abs(expected))) < 1e-6
    assert relative_error(layer.eigenvalues().abs().sort().values, np.sort(np.abs(expected))) < 1e-6
    u = torch.randn(1, 100, 3, **FLOAT64)
    _, y, _ = signal.dlsim((A, B, C @ A, C @ B + D, 1), array(u)[0])
    assert relative_error(layer(u)[0][0], y) < 1e-10


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_any_call_equals_the_system(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000), label="seed"))
    layer = linrnn.S4(data.draw(st.integers(1, 3), label="H"), data.draw(st.integers(1, 4), label="N"), **FLOAT64)
    perturb(layer)
    batch, length = data.draw(st.integers(0, 3), label="batch"), data.draw(st.integers(0, 12), label="length")
    length = length + 250 if data.draw(st.booleans(), label="long") else length
    lengths = data.draw(st.none() | st.lists(st.integers(0, length), min_size=batch, max_size=batch), label="lengths")
    state = torch.randn(batch, *layer.state_shape, **FLOAT64) if data.draw(st.booleans(), label="state") else None
    u = torch.randn(batch, length, layer.d_model, **FLOAT64)
    y, final = layer(u, state, lengths=None if lengths is None else torch.tensor(lengths, dtype=torch.int64))
    expected, expected_final = oracle(layer, u, state, lengths)
    assert relative_error(y, expected) < 1e-9
    assert relative_error(vector(layer, final), expected_final) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_step_equals_parallel(dtype: torch.dtype) -> None:
    layer = linrnn.S4(3, 16, dtype=dtype)
    u, state = torch.randn(2, 200, 3, dtype=dtype), torch.randn(2, 2, 3, 16, dtype=dtype)
    (y, final), (expected, expected_final) = layer(u, state), steps(layer, u, state)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    assert relative_error(y, expected) < tolerance
    assert relative_error(final, expected_final) < tolerance


def test_single_precision_at_full_size() -> None:
    layer = linrnn.S4(2, 64)
    u = torch.randn(1, 1000, 2)
    y, state = layer(u)
    expected, final = layer.double()(u.double())
    assert relative_error(y, expected) < 1e-4
    assert relative_error(state, final) < 1e-3


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "lengths"])
def test_both_directions(masked: bool) -> None:
    layer, ahead, behind = (linrnn.S4(3, 4, bidirectional=both, **FLOAT64) for both in (True, False, False))
    perturb(layer)
    weights = layer.state_dict()
    ahead.load_state_dict({**weights, "C": weights["C"][:1]})
    behind.load_state_dict({**weights, "C": weights["C"][1:], "D": torch.zeros(3)})
    u, lengths = torch.randn(2, 30, 3, **FLOAT64), [30, 11] if masked else [30, 30]
    y, state = layer(u, lengths=torch.tensor(lengths) if masked else None)
    assert state is None
    for b, length in enumerate(lengths):
        row = u[b : b + 1, :length]
        assert relative_error(y[b, :length], (ahead(row)[0] + behind(row.flip(1))[0].flip(1))[0]) < 1e-11
        assert not y[b, length:].any()


@DIRECTIONS
def test_gradients(bidirectional: bool) -> None:
    layer = linrnn.S4(2, 2, bidirectional=bidirectional, **FLOAT64)
    perturb(layer)
    u = torch.randn(2, 5, 2, requires_grad=True, **FLOAT64)
    state = None if bidirectional else torch.randn(2, 2, 2, 2, requires_grad=True, **FLOAT64)
    assert gradcheck(layer, u, state)
    assert gradcheck(layer, u, state, lengths=torch.tensor([5, 2]))


@pytest.mark.parametrize("L", [1, 6, 7])
def test_gradients_of_the_operators(L: int) -> None:
    v = torch.randn(2, 3, 2, 4, requires_grad=True, **FLOAT64)
    a = (-torch.rand(2, 2, 4, **FLOAT64) - 0.1).requires_grad_()
    x = torch.randn(2, 3, L // 2 + 1, requires_grad=True, **FLOAT64)
    assert torch.autograd.gradcheck(lambda v, a: s4.cauchy(v, a, L), (v, a))
    assert torch.autograd.gradcheck(lambda x: s4.inverse_fft(x, L), (x,))


def test_the_cauchy_product_by_parts_of_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = linrnn.S4(5, 3, **FLOAT64)
    u = torch.randn(1, 9, 5, **FLOAT64)
    y, expected = layer(u)[0], gradients(layer, layer(u)[0].square().sum())
    monkeypatch.setattr(s4, "CAUCHY_ELEMENTS", 2 * 3 * 5)  # two features at once
    assert relative_error(layer(u)[0], y) < 1e-13
    came = gradients(layer, layer(u)[0].square().sum())
    assert all(relative_error(came[name], expected[name]) < 1e-12 for name in expected)


def test_compiled_equals_eager() -> None:
    """From the first call on, in which PyTorch forgets lazy conjugates."""
    layer = linrnn.S4(3, 4, bidirectional=True)
    u = torch.randn(2, 5, 3, requires_grad=True)
    results = []
    torch.compiler.reset()
    for run in (torch.compile(layer, fullgraph=True, backend="aot_eager"), layer):
        y, _ = run(u, lengths=torch.tensor([5, 2]))
        results.append((y, gradients(layer, y.square().sum(), u)))
    (y_compiled, came), (y, expected) = results
    assert relative_error(y_compiled, y) < 1e-6
    assert all(relative_error(came[name], expected[name]) < 1e-5 for name in expected)


def test_autocast() -> None:
    layer = linrnn.S4(8, 16)
    u = torch.randn(2, 100, 8)
    y, state = layer(u)
    with torch.autocast("cpu", torch.bfloat16):
        y_low, state_low = layer(u)
        y_step, state_step = layer.step(u[:, 0], layer.initial_state(2))
    assert y_low.dtype == y_step.dtype == torch.bfloat16
    assert state_low.dtype == state_step.dtype == torch.float32
    assert relative_error(y_low, y) < 1e-2
    assert torch.equal(state_low, state)


@DIRECTIONS
@pytest.mark.parametrize(("batch", "length"), [(0, 5), (3, 0), (0, 0)])
def test_nothing_in_nothing_out(batch: int, length: int, bidirectional: bool) -> None:
    layer = linrnn.S4(2, 3, bidirectional=bidirectional)
    u = torch.zeros(batch, length, 2, requires_grad=True)
    y, state = layer(u, lengths=torch.zeros(batch, dtype=torch.int64))
    assert y.shape == u.shape
    assert bidirectional or not state.any()
    y.sum().backward()
    if not bidirectional:
        x = torch.randn(batch, 2, 2, 3, requires_grad=True)
        y, state = layer(u, x)
        assert torch.equal(state, x)
        y.sum().backward()


def test_stable_whatever_is_learned() -> None:
    layer = linrnn.S4(2, 4, **FLOAT64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(2 * torch.randn_like(parameter))
    assert np.abs(np.linalg.eigvals(array(layer.to_dense().A))).max() < 1


def test_resets_are_refused() -> None:
    with pytest.raises(ValueError, match="resets: expected None: S4 runs as a convolution, which cannot cut"):
        linrnn.S4(3, 4)(torch.zeros(2, 5, 3), resets=torch.zeros(2, 5, dtype=torch.bool))


def test_parameters_by_name() -> None:
    layer = linrnn.S4(3, 4)
    named = dict(layer.named_parameters())
    assert set(named) == {"a_re_log", "a_im", "p", "delta_log", "B", "C", "D"}
    assert set(layer.recurrent_names) == set(named) - {"C", "D"}


@pytest.mark.parametrize("name", ["kernel", "to_dense"])
def test_forms_of_causal_layers_only(name: str) -> None:
    layer = linrnn.S4(3, 4, bidirectional=True)
    with pytest.raises(ValueError, match=f"{name}: expected a causal S4, got a bidirectional one"):
        getattr(layer, name)(*([5] if name == "kernel" else []))


def test_errors() -> None:
    arguments: dict[str, Any] = {"dt_min": 0.5}
    with pytest.raises(ValueError, match=r"dt_max: expected a step size from dt_min = 0\.5 up, got 0\.1"):
        linrnn.S4(3, 4, **arguments)
    with pytest.raises(ValueError, match="length: expected at least 0, got -1"):
        linrnn.S4(3, 4).kernel(-1)
    assert repr(linrnn.S4(3, 4)) == "S4(3, 4, dt_min=0.001, dt_max=0.1)"
