from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

import linrnn
from linrnn.cores import ssm
from tests.cores.systems import FLOAT64, gradcheck, oracle, perturb, steps, vector
from tests.helpers import Array, array, relative_error

DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def continuous(layer: linrnn.S5) -> tuple[Array, Array, Array, Array]:
    """a (N,), B (N, H), C (H, N) and Δ (N,) from the raw parameters."""
    p = {name: array(parameter) for name, parameter in layer.named_parameters()}
    a = -np.exp(p["a_re_log"]) + 1j * p["a_im"]
    return a, p["B"][0] + 1j * p["B"][1], p["C"][:, 0] + 1j * p["C"][:, 1], np.exp(p["delta_log"])


@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_the_system_it_stands_for(discretization: ssm.Discretization) -> None:
    """Each state is a system of two real ones with its own step size, which SciPy discretizes; it then runs all."""
    H, N = 3, 4
    layer = linrnn.S5(H, N, blocks=2, discretization=discretization, **FLOAT64)
    perturb(layer)
    a, B, C, delta = continuous(layer)
    A_bar, B_bar, out = np.zeros((2 * N, 2 * N)), np.zeros((2 * N, H)), np.zeros((H, 2 * N))
    for n in range(N):
        pair = slice(2 * n, 2 * n + 2)
        A = np.array([[a[n].real, -a[n].imag], [a[n].imag, a[n].real]])
        into = np.stack([B[n].real, B[n].imag])
        A_bar[pair, pair], B_bar[pair], *_ = signal.cont2discrete(
            (A, into, np.eye(2), np.zeros((2, H))), delta[n], discretization
        )
        out[:, pair] = 2 * np.stack([C[:, n].real, -C[:, n].imag], axis=1)
    u = torch.randn(1, 200, H, **FLOAT64)
    y, state = layer(u)
    system = (A_bar, B_bar, out @ A_bar, out @ B_bar + np.diag(array(layer.D)), 1)
    _, expected, x = signal.dlsim(system, array(u)[0])
    assert relative_error(y[0], expected) < 1e-10
    final = A_bar @ x[-1] + B_bar @ array(u)[0, -1]
    assert relative_error(state[0].T.flatten(), final) < 1e-10


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_starts_from_blocks_of_hippo(blocks: int) -> None:
    """With the conjugates, diag(a) is the block-diagonal normal part of HiPPO-LegS in the basis of its eigenvectors."""
    N = 8
    layer = linrnn.S5(3, N, blocks=blocks, **FLOAT64)
    size = 2 * N // blocks
    A, _ = (array(x) for x in ssm.hippo_legs(size))
    p = np.sqrt(np.arange(size) + 0.5)
    normal = A + np.outer(p, p)
    a, *_, delta = continuous(layer)
    V = array(torch.block_diag(*[ssm.legs(N // blocks).V] * blocks))
    came = 2 * ((V * a) @ V.conj().T).real
    assert relative_error(came, np.kron(np.eye(blocks), normal)) < 1e-12
    assert relative_error(layer.eigenvalues(), np.exp(delta * a)) < 1e-12
    assert ((delta >= 0.001) & (delta <= 0.1)).all()


def test_b_starts_real_in_the_basis_of_the_system() -> None:
    """V·B over all states, which is twice a real part over those kept, is N(0, 1/2N)."""
    H, N = 20, 40
    layer = linrnn.S5(H, N, blocks=2, **FLOAT64)
    V = array(torch.block_diag(*[ssm.legs(N // 2).V] * 2))
    _, B, C, _ = continuous(layer)
    B0 = 2 * (V @ B).real
    assert stats.kstest(B0.ravel() * np.sqrt(2 * N), "norm").pvalue > 0.01
    # C = C₀·V with complex C₀, of which this is the part in the space of the states kept
    assert np.var(C.real) == pytest.approx(1 / (2 * N), rel=0.15)
    assert np.var(C.imag) == pytest.approx(1 / (2 * N), rel=0.15)


def test_b_starts_as_published_at_the_size_of_listops() -> None:
    """JAX's lecun_normal of shape (2N, H) has the fan-in 2N; a unitary matrix leaves half of it to each part."""
    B = array(linrnn.S5(128, 128, blocks=16).B)
    assert B.std() == pytest.approx(256**-0.5 / 2**0.5, rel=0.02)  # 0.0442


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_any_call_equals_the_system(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000), label="seed"))
    layer = linrnn.S5(data.draw(st.integers(1, 4), label="H"), data.draw(st.integers(1, 5), label="N"), **FLOAT64)
    perturb(layer)
    batch, length = data.draw(st.integers(0, 3), label="batch"), data.draw(st.integers(0, 12), label="length")
    lengths = data.draw(st.none() | st.lists(st.integers(0, length), min_size=batch, max_size=batch), label="lengths")
    resets = torch.rand(batch, length) < 0.2 if data.draw(st.booleans(), label="resets") else None
    state = torch.randn(batch, *layer.state_shape, **FLOAT64) if data.draw(st.booleans(), label="state") else None
    u = torch.randn(batch, length, layer.d_model, **FLOAT64)
    y, final = layer(
        u, state, lengths=None if lengths is None else torch.tensor(lengths, dtype=torch.int64), resets=resets
    )
    expected, expected_final = oracle(layer, u, state, lengths, resets)
    assert relative_error(y, expected) < 1e-10
    assert relative_error(vector(layer, final), expected_final) < 1e-10


def test_step_equals_parallel() -> None:
    layer = linrnn.S5(3, 8)
    u, state = torch.randn(2, 200, 3), torch.randn(2, 2, 8)
    (y, final), (expected, expected_final) = layer(u, state), steps(layer, u, state)
    assert relative_error(y, expected) < 1e-5
    assert relative_error(final, expected_final) < 1e-5


def test_both_directions() -> None:
    layer, ahead, behind = (linrnn.S5(3, 4, bidirectional=both, **FLOAT64) for both in (True, False, False))
    weights = layer.state_dict()
    ahead.load_state_dict({**weights, "C": weights["C"][..., :4]})
    behind.load_state_dict({**weights, "C": weights["C"][..., 4:], "D": torch.zeros(3)})
    u = torch.randn(2, 30, 3, **FLOAT64)
    y, state = layer(u)
    assert state is None
    assert relative_error(y, ahead(u)[0] + behind(u.flip(1))[0].flip(1)) < 1e-12


@pytest.mark.parametrize("length", [0, 1, 40])
def test_kernel_is_the_impulse_response(length: int) -> None:
    layer = linrnn.S5(3, 4, **FLOAT64)
    impulses = torch.zeros(3, length, 3, **FLOAT64)
    impulses[:, :1] = torch.eye(3).unsqueeze(1)
    response, _ = layer(impulses)
    assert relative_error(layer.kernel(length), response.movedim(0, 2)) < 1e-12


@DIRECTIONS
def test_gradients(bidirectional: bool) -> None:
    layer = linrnn.S5(2, 3, bidirectional=bidirectional, **FLOAT64)
    u = torch.randn(2, 6, 2, requires_grad=True, **FLOAT64)
    state = None if bidirectional else torch.randn(2, 2, 3, requires_grad=True, **FLOAT64)
    assert gradcheck(layer, u, state)
    assert gradcheck(layer, u, state, lengths=torch.tensor([6, 4]), resets=torch.rand(2, 6) < 0.3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision(dtype: torch.dtype) -> None:
    layer = linrnn.S5(8, 16).to(dtype)
    u = torch.randn(2, 100, 8, dtype=dtype)
    y, state = layer(u)
    expected, _ = oracle(layer, u)
    assert y.dtype == dtype
    assert state.dtype == torch.float32
    assert relative_error(y, expected) < 2e-2
    assert (layer.eigenvalues().abs() < 1).all()


def test_in_a_model_of_batch_norm() -> None:
    """The model folds the norm into the layer where it can, as for an LRU: the same numbers."""
    config = linrnn.ModelConfig(vocabulary=5, classes=3, d_model=4, d_state=6, depth=2, core="s5")
    model = linrnn.Model(config).eval()
    tokens = torch.randint(5, (2, 20))
    state = model.initial_state(2)
    for k in range(20):
        output, state = model.step(tokens[:, k], state)
    assert relative_error(output, model(tokens)) < 1e-4


def test_parameters_by_name() -> None:
    layer = linrnn.S5(3, 4)
    named = dict(layer.named_parameters())
    assert set(named) == {"a_re_log", "a_im", "delta_log", "B", "C", "D"}
    assert set(layer.recurrent_names) == set(named) - {"C", "D"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"blocks": 3}, ValueError, "blocks: expected a divisor of d_state = 4, got 3"),
        ({"blocks": 0}, ValueError, "blocks: expected at least 1, got 0"),
        ({"blocks": 2.0}, TypeError, "blocks: expected an integer, got 2.0"),
        ({"dt_max": 0.0001}, ValueError, "dt_max: expected a step size from dt_min = 0.001 up, got 0.0001"),
    ],
    ids=["uneven", "none", "float", "step-sizes"],
)
def test_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.S5(3, 4, **options)


@pytest.mark.parametrize("name", ["kernel", "to_dense"])
def test_forms_of_causal_layers_only(name: str) -> None:
    layer = linrnn.S5(3, 4, bidirectional=True)
    with pytest.raises(ValueError, match=f"{name}: expected a causal S5, got a bidirectional one"):
        getattr(layer, name)(*([5] if name == "kernel" else []))


def test_repr_names_the_switches() -> None:
    assert repr(linrnn.S5(3, 4, blocks=2)) == "S5(3, 4, blocks=2, discretization='zoh', dt_min=0.001, dt_max=0.1)"
