"""S4D and its switches, and DLR, which shares all but λ and B."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal
from torch import Tensor

import linrnn
from linrnn import spectrum
from linrnn.cores import ssm
from linrnn.cores.s4d import InputMultiplier
from tests.cores.systems import FLOAT64, gradcheck, oracle, perturb, steps, vector
from tests.helpers import Array, array, gradients, relative_error

LAYERS = pytest.mark.parametrize("make", [linrnn.S4D, linrnn.DLR])
SPECTRA = pytest.mark.parametrize("init", ["lin", "inv", "legs"])
METHODS = pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def continuous(layer: linrnn.S4D) -> tuple[Array, Array, Array, Array]:
    """a, B, C and Δ from the raw parameters, complex128 (H, N) and float64 (H,)."""
    p = {name: array(parameter) for name, parameter in layer.named_parameters()}
    a = -np.exp(p["a_re_log"]) + 1j * p["a_im"]
    return a, p["B"][0] + 1j * p["B"][1], p["C"][0, 0] + 1j * p["C"][0, 1], np.exp(p["delta_log"])


def real(z: Array) -> Array:
    """Complex (N,) as real 2N x 2N blocks that multiply real and imaginary parts."""
    return np.block([[np.diag(z.real), -np.diag(z.imag)], [np.diag(z.imag), np.diag(z.real)]])


def initial_B(N: int, init: spectrum.S4DInit) -> Array:
    """1, or HiPPO's B in NumPy's eigenvectors of the normal part of HiPPO's A, its parts clipped."""
    if init != "legs":
        return np.ones(N, dtype=complex)
    k = np.arange(2 * N)
    b = np.sqrt(2.0 * k + 1)
    A = -np.tril(np.outer(b, b), -1) - np.diag(k + 1.0)
    normal = A + np.outer(b, b) / 2
    a, V = np.linalg.eig(normal)
    V = V[:, np.argsort(-a.imag)[:N]]
    V = V / np.linalg.norm(V, axis=0) * np.exp(-1j * np.angle(V[0]))
    came: Array = V.conj().T @ b
    bounded: Array = came.real.clip(-2, 2) + 1j * came.imag.clip(-2, 2)
    return bounded


def test_b_of_legs_starts_at_hippos_values_between_bounds() -> None:
    """Unbounded it is 40.8 at the lowest frequency for 32 states."""
    B = array(ssm.initial_B(32, "legs"))
    assert relative_error(B[0] + 1j * B[1], initial_B(32, "legs")) < 1e-10
    assert abs(array(ssm.legs(32).b)).max() == pytest.approx(40.75, abs=0.01)
    assert abs(B).max() == 2
    inside = abs(array(ssm.legs(32).b)) < 2
    assert 10 < inside.sum() < 32
    assert relative_error((B[0] + 1j * B[1])[inside], array(ssm.legs(32).b)[inside]) < 1e-14
    for layer in (linrnn.S4D(3, 32, init="legs", **FLOAT64), linrnn.S4(3, 32, **FLOAT64)):
        assert (array(layer.B) == B[:, None]).all()


@METHODS
@SPECTRA
@pytest.mark.parametrize("L", [1, 300])
def test_the_system_it_stands_for(init: spectrum.S4DInit, discretization: ssm.Discretization, L: int) -> None:
    """SciPy discretizes each feature and runs it."""
    layer = linrnn.S4D(3, 4, init=init, discretization=discretization, **FLOAT64)
    perturb(layer)
    u = torch.randn(1, L, 3, **FLOAT64)
    y, state = layer(u)
    a, B, C, delta = continuous(layer)
    for h in range(3):
        into = np.concatenate([B[h].real, B[h].imag])[:, None]
        out = 2 * np.concatenate([C[h].real, -C[h].imag])[None]
        A_bar, B_bar, *_ = signal.cont2discrete((real(a[h]), into, out, np.zeros((1, 1))), delta[h], discretization)
        D = array(layer.D)[h]
        # SciPy's x_k is our x_{k-1}
        system = (A_bar, B_bar, out @ A_bar, out @ B_bar + D, 1)
        _, expected, x = signal.dlsim(system, array(u)[0, :, h])
        assert relative_error(y[0, :, h], expected[:, 0]) < 1e-10
        final = A_bar @ x[-1] + B_bar[:, 0] * array(u)[0, -1, h]
        assert relative_error(state[0, :, h].flatten(), final) < 1e-10


def test_one_state_is_a_filter() -> None:
    layer = linrnn.S4D(1, 1, **FLOAT64)
    perturb(layer)
    u = torch.randn(1, 500, 1, **FLOAT64)
    lam, b = (array(x)[0, 0, 0] + 1j * array(x)[1, 0, 0] for x in layer._system())
    C = array(layer.C)[0, 0, 0, 0] + 1j * array(layer.C)[0, 1, 0, 0]
    expected = 2 * signal.lfilter([C * b], [1, -lam], array(u)[0, :, 0]).real
    assert relative_error((layer(u)[0] - layer.D * u)[0, :, 0], expected) < 1e-11


@pytest.mark.parametrize("init", ["lin", "inv"])
def test_eigenvalues_start_at_the_closed_forms(init: spectrum.S4DInit) -> None:
    N = 8
    layer = linrnn.S4D(5, N, init=init, **FLOAT64)
    n, M = np.arange(N), 2 * N
    imag = math.pi * n if init == "lin" else M / math.pi * (M / (2 * n + 1) - 1)
    delta = np.exp(array(layer.delta_log))
    assert ((delta >= 0.001) & (delta <= 0.1)).all()
    expected = np.exp(delta[:, None] * (-0.5 + 1j * imag)).ravel()
    assert layer.eigenvalues().shape == (5 * N,)
    assert relative_error(layer.eigenvalues(), expected) < 1e-12


@METHODS
@SPECTRA
def test_where_the_switches_start(init: spectrum.S4DInit, discretization: ssm.Discretization) -> None:
    """First order: Δ·B in place of B̄. Decoupled: a second Δ, equal to the first, and so the same map."""
    layers: dict[tuple[InputMultiplier, bool], linrnn.S4D] = {}
    for multiplier in ("exact", "first_order"):
        for decoupled in (False, True):
            torch.manual_seed(7)
            layers[multiplier, decoupled] = linrnn.S4D(
                4,
                6,
                init=init,
                discretization=discretization,
                input_multiplier=multiplier,
                decoupled=decoupled,
                **FLOAT64,
            )
    a, B, _, delta = continuous(layers["exact", False])
    assert relative_error(B, np.tile(initial_B(6, init), (4, 1))) < 1e-12
    z = delta[:, None] * a
    multipliers = {"zoh": (np.exp(z) - 1) / a, "bilinear": delta[:, None] / (1 - z / 2)}
    lam = {"zoh": np.exp(z), "bilinear": (1 + z / 2) / (1 - z / 2)}[discretization]
    for (multiplier, decoupled), layer in layers.items():
        expected = (multipliers[discretization] if multiplier == "exact" else delta[:, None] + 0 * a) * B
        came = [array(x)[0] + 1j * array(x)[1] for x in layer._system()]
        assert relative_error(came[0], lam) < 1e-12
        assert relative_error(came[1], expected) < 1e-10
        assert (layer.delta_B_log is not None) == decoupled
        if layer.delta_B_log is not None:
            assert torch.equal(layer.delta_B_log, layer.delta_log)


@pytest.mark.parametrize("multiplier", ["exact", "first_order"])
def test_decoupled_step_sizes_move_apart(multiplier: InputMultiplier) -> None:
    """The one changes λ only, the other B̄ only."""
    layer = linrnn.S4D(2, 3, input_multiplier=multiplier, decoupled=True, **FLOAT64)
    lam, b = (x.detach() for x in layer._system())
    assert layer.delta_B_log is not None
    with torch.no_grad():
        layer.delta_B_log.add_(0.5)
    assert torch.equal(layer._system()[0], lam)
    assert not torch.equal(layer._system()[1], b)
    with torch.no_grad():
        layer.delta_B_log.sub_(0.5)
        layer.delta_log.add_(0.5)
    assert not torch.equal(layer._system()[0], lam)
    torch.testing.assert_close(layer._system()[1], b)


@SPECTRA
def test_dlr_starts_as_s4d(init: spectrum.S4DInit) -> None:
    torch.manual_seed(3)
    s4d = linrnn.S4D(3, 4, init=init, **FLOAT64)
    torch.manual_seed(3)
    dlr = linrnn.DLR(3, 4, init=init, **FLOAT64)
    u = torch.randn(2, 50, 3, **FLOAT64)
    assert relative_error(dlr.eigenvalues(), s4d.eigenvalues()) < 1e-12
    assert relative_error(dlr(u)[0], s4d(u)[0]) < 1e-11


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_call_equals_the_system(data: st.DataObject) -> None:
    """State, lengths and resets in any combination: each sequence as if it ran alone."""
    torch.manual_seed(data.draw(st.integers(0, 1000), label="seed"))
    make: Any = data.draw(st.sampled_from([linrnn.S4D, linrnn.DLR]), label="layer")
    layer = make(data.draw(st.integers(1, 3), label="H"), data.draw(st.integers(1, 4), label="N"), **FLOAT64)
    perturb(layer)
    batch, length = data.draw(st.integers(0, 3), label="batch"), data.draw(st.integers(0, 12), label="length")
    length = length + 250 if data.draw(st.booleans(), label="long") else length
    lengths = data.draw(st.none() | st.lists(st.integers(0, length), min_size=batch, max_size=batch), label="lengths")
    resets = torch.rand(batch, length) < 0.2 if data.draw(st.booleans(), label="resets") else None
    given_state = data.draw(st.booleans(), label="state")
    state = torch.randn(batch, *layer.state_shape, **FLOAT64) if given_state else None
    u = torch.randn(batch, length, layer.d_model, **FLOAT64)
    y, final = layer(
        u, state, lengths=None if lengths is None else torch.tensor(lengths, dtype=torch.int64), resets=resets
    )
    expected, expected_final = oracle(layer, u, state, lengths, resets)
    assert relative_error(y, expected) < 1e-10
    assert relative_error(vector(layer, final), expected_final) < 1e-10


@LAYERS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_step_equals_parallel(make: Any, dtype: torch.dtype) -> None:
    layer = make(3, 8, dtype=dtype)
    u, state = torch.randn(2, 200, 3, dtype=dtype), torch.randn(2, 2, 3, 8, dtype=dtype)
    y, final = layer(u, state)
    expected, expected_final = steps(layer, u, state)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert y.dtype == final.dtype == dtype
    assert relative_error(y, expected) < tolerance
    assert relative_error(final, expected_final) < tolerance


def test_step_equals_parallel_where_phases_turn_fast() -> None:
    """S4D-Inv's Im a reaches thousands, of which single precision keeps the phase of λ but not that of Δ·a·k."""
    layer = linrnn.S4D(4, 64, init="inv", dt_min=0.05)
    u = torch.randn(1, 1000, 4)
    assert relative_error(layer(u)[0], steps(layer, u, layer.initial_state(1))[0]) < 1e-5


@pytest.mark.parametrize("masks", ["none", "lengths", "resets"])
@LAYERS
def test_both_directions(make: Any, masks: str) -> None:
    """As one layer that runs from the start, and one with the second C that runs from the end."""
    layer, ahead, behind = (make(3, 4, bidirectional=both, **FLOAT64) for both in (True, False, False))
    perturb(layer)
    weights = layer.state_dict()
    ahead.load_state_dict({**weights, "C": weights["C"][:1]})
    behind.load_state_dict({**weights, "C": weights["C"][1:], "D": torch.zeros(3)})
    u = torch.randn(2, 140, 3, **FLOAT64)
    lengths = [140, 61] if masks == "lengths" else [140, 140]
    resets = torch.zeros(2, 140, dtype=torch.bool)
    resets[0, 50] = resets[1, 139] = resets[1, 10] = masks == "resets"
    arguments = {"none": {}, "lengths": {"lengths": torch.tensor(lengths)}, "resets": {"resets": resets}}
    y, state = layer(u, **arguments[masks])
    assert state is None
    for b, row in enumerate(u):
        cuts = [0, *resets[b].nonzero().flatten().tolist(), lengths[b]]
        for start, stop in itertools.pairwise(cuts):
            piece = row[start:stop].unsqueeze(0)
            expected = ahead(piece)[0] + behind(piece.flip(1))[0].flip(1)
            assert relative_error(y[b, start:stop], expected[0]) < 1e-11
        assert not y[b, lengths[b] :].any()


@LAYERS
def test_padding_is_never_read(make: Any) -> None:
    layer = make(3, 4, **FLOAT64)
    u, lengths = torch.randn(3, 12, 3, **FLOAT64), torch.tensor([7, 0, 12])
    y, state = layer(u, lengths=lengths)
    u[0, 7:], u[1] = math.nan, math.inf
    y_poisoned, state_poisoned = layer(u, lengths=lengths)
    assert torch.equal(y, y_poisoned)
    assert torch.equal(state, state_poisoned)


@pytest.mark.parametrize("length", [0, 1, 130])
@LAYERS
def test_kernel_is_the_impulse_response(make: Any, length: int) -> None:
    layer = make(3, 4, **FLOAT64)
    perturb(layer)
    impulses = torch.zeros(3, length, 3, **FLOAT64)
    impulses[:, :1] = torch.eye(3).unsqueeze(1)
    response, _ = layer(impulses)  # (input, step, output)
    assert relative_error(layer.kernel(length), response.movedim(0, 2)) < 1e-12


def test_long_kernels_keep_their_phase() -> None:
    layer = linrnn.S4D(2, 6, init="inv")
    lam, b = (array(x)[0] + 1j * array(x)[1] for x in layer._system())  # as rounded: what the kernel is the kernel of
    C = array(layer.C)[0, 0] + 1j * array(layer.C)[0, 1]
    powers = np.exp(np.arange(5000)[:, None, None] * np.log(lam))
    expected = 2 * (C * powers * b).sum(-1).real
    expected[0] += array(layer.D)
    assert relative_error(layer.kernel(5000).diagonal(dim1=1, dim2=2), expected) < 3e-7


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"a_re_log", "a_im", "delta_log", "B"}),
        ({"decoupled": True}, {"a_re_log", "a_im", "delta_log", "delta_B_log", "B"}),
    ],
    ids=["shared", "decoupled"],
)
def test_recurrent_parameters(options: dict[str, Any], names: set[str]) -> None:
    layer = linrnn.S4D(3, 4, **options)
    named = dict(layer.named_parameters())
    assert set(named) == names | {"C", "D"}
    assert [p is named[name] for p, name in zip(layer.recurrent_parameters(), layer.recurrent_names, strict=True)]
    assert set(layer.recurrent_names) == names
    assert set(linrnn.DLR(3, 4).recurrent_names) == {"nu_log", "theta", "B"}


@pytest.mark.parametrize(
    "options",
    [{}, {"discretization": "bilinear", "decoupled": True}, {"bidirectional": True}],
    ids=["default", "bilinear", "bidirectional"],
)
def test_gradients(options: dict[str, Any]) -> None:
    layer = linrnn.S4D(2, 2, **options, **FLOAT64)
    perturb(layer)
    u = torch.randn(2, 3, 2, requires_grad=True, **FLOAT64)
    state = None if layer.bidirectional else torch.randn(2, 2, 2, 2, requires_grad=True, **FLOAT64)
    assert gradcheck(layer, u, state)
    if not options:
        assert gradcheck(layer, u, state, lengths=torch.tensor([3, 1]))
        assert gradcheck(layer, u, state, resets=torch.tensor([[False, True, False]] * 2))


def test_gradients_over_chunks() -> None:
    """Against those of the scan, which resets call."""
    layer = linrnn.S4D(2, 3, **FLOAT64)
    u = torch.randn(2, 300, 2, requires_grad=True, **FLOAT64)
    state = torch.randn(2, 2, 2, 3, requires_grad=True, **FLOAT64)
    weights = torch.randn(2, 300, 2, **FLOAT64)

    def loss(resets: Tensor | None) -> dict[str, Tensor]:
        y, final = layer(u, state, lengths=torch.tensor([300, 200]), resets=resets)
        return gradients(layer, (y * weights).sum() + final.square().sum(), u, state)

    came, expected = loss(None), loss(torch.zeros(2, 300, dtype=torch.bool))
    assert all(relative_error(came[name], expected[name]) < 1e-10 for name in expected)


@pytest.mark.parametrize(("masks", "bidirectional"), [("none", True), ("lengths", False), ("resets", False)])
def test_compiled_equals_eager(masks: str, bidirectional: bool) -> None:
    layer = linrnn.S4D(3, 4, bidirectional=bidirectional)
    u = torch.randn(2, 10, 3, requires_grad=True)
    arguments = {
        "none": {},
        "lengths": {"lengths": torch.tensor([10, 4])},
        "resets": {"resets": torch.rand(2, 10) < 0.3},
    }
    results = []
    torch.compiler.reset()
    for run in (torch.compile(layer, fullgraph=True, backend="aot_eager"), layer):
        y, state = run(u, **arguments[masks])
        results.append((y, gradients(layer, y.square().sum() + (0 if state is None else state.sum()), u)))
    (y_compiled, came), (y, expected) = results
    assert relative_error(y_compiled, y) < 1e-6
    assert all(relative_error(came[name], expected[name]) < 1e-6 for name in expected)


@LAYERS
def test_autocast(make: Any) -> None:
    layer = make(8, 16)
    u = torch.randn(2, 200, 8)
    y, state = layer(u)
    with torch.autocast("cpu", torch.bfloat16):
        y_low, state_low = layer(u)
        y_step, state_step = layer.step(u[:, 0], layer.initial_state(2))
        y_on, _ = layer(u[:, :3].bfloat16(), state_low)
    assert y_low.dtype == y_step.dtype == y_on.dtype == torch.bfloat16
    assert state_low.dtype == state_step.dtype == torch.float32
    assert relative_error(y_low, y) < 1e-2
    assert torch.equal(state_low, state)  # all but the output is in single precision
    assert relative_error(y_step, y[:, 0]) < 1e-2
    y_low.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_whole_layer_in_low_precision(dtype: torch.dtype) -> None:
    layer = linrnn.S4D(8, 16).to(dtype)
    u = torch.randn(2, 200, 8, dtype=dtype)
    y, state = layer(u)
    expected, final = oracle(layer, u)
    assert y.dtype == dtype
    assert state.dtype == torch.float32
    assert relative_error(y, expected) < 1e-2
    assert relative_error(vector(layer, state), final) < 1e-4
    assert (layer.eigenvalues().abs() < 1).all()


@DIRECTIONS
@pytest.mark.parametrize(("batch", "length"), [(0, 5), (3, 0), (0, 0)])
def test_nothing_in_nothing_out(batch: int, length: int, bidirectional: bool) -> None:
    layer = linrnn.S4D(2, 3, bidirectional=bidirectional)
    u = torch.zeros(batch, length, 2, requires_grad=True)
    y, state = layer(u, lengths=torch.zeros(batch, dtype=torch.int64))
    assert y.shape == u.shape
    assert bidirectional or not state.any()
    y.sum().backward()


def test_training_keeps_no_vandermonde_matrix() -> None:
    """The largest tensor kept is far smaller than H·N·L complex numbers."""
    H, N, L = 8, 16, 4096
    layer = linrnn.S4D(H, N)
    sizes: list[int] = []

    def keep(x: Tensor) -> Tensor:
        sizes.append(x.untyped_storage().nbytes())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        layer(torch.randn(1, L, H))
    assert max(sizes) < H * N * L * 8 / 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": "log"}, "init: expected 'lin' or 'inv' or 'legs', got 'log'"),
        ({"discretization": "euler"}, "discretization: expected 'zoh' or 'bilinear', got 'euler'"),
        ({"input_multiplier": "none"}, "input_multiplier: expected 'exact' or 'first_order', got 'none'"),
        ({"dt_min": -1.0}, "dt_min: expected a step size above 0, got -1.0"),
    ],
    ids=["init", "discretization", "multiplier", "step-size"],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linrnn.S4D(3, 4, **options)


@pytest.mark.parametrize("name", ["kernel", "to_dense"])
@LAYERS
def test_forms_of_causal_layers_only(make: Any, name: str) -> None:
    layer = make(3, 4, bidirectional=True)
    with pytest.raises(ValueError, match=f"{name}: expected a causal {make.__name__}, got a bidirectional one"):
        getattr(layer, name)(*([5] if name == "kernel" else []))
    with pytest.raises(ValueError, match="length: expected at least 0, got -1"):
        make(3, 4).kernel(-1)


def test_repr_names_the_switches() -> None:
    text = repr(linrnn.S4D(3, 4, init="legs", discretization="bilinear", decoupled=True, dt_max=0.5))
    assert all(word in text for word in ("3, 4", "'legs'", "'bilinear'", "'exact'", "decoupled=True", "dt_max=0.5"))
