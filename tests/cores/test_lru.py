import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats
from torch import Tensor, nn

import linrnn
from linrnn.spectrum import LRUParameterization as Parameterization
from tests.helpers import array, eigenvalues, gradients, input_matrix, oracle, output_matrix, relative_error

PARAMETERIZATIONS = ["stable_exp", "exp", "real_imag"]
FLOAT64: dict[str, Any] = {"dtype": torch.float64}
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


@pytest.mark.parametrize("parameterization", PARAMETERIZATIONS)
@pytest.mark.parametrize("normalize", [True, False], ids=["gamma", "plain"])
@DIRECTIONS
def test_the_papers_equation(parameterization: Parameterization, normalize: bool, bidirectional: bool) -> None:
    switches: Any = {"parameterization": parameterization, "normalize": normalize, "bidirectional": bidirectional}
    layer = linrnn.LRU(3, 5, r_min=0.5, r_max=0.99, **switches, **FLOAT64)
    _perturb(layer)  # γ is free once training starts
    u = torch.randn(2, 40, 3, **FLOAT64)
    y, state = layer(u)
    expected, final = oracle(layer, u)
    assert relative_error(y, expected) < 1e-12
    if bidirectional:
        assert state is None
    else:
        assert relative_error(state, final) < 1e-12


def test_the_papers_equation_in_single_precision() -> None:
    layer = linrnn.LRU(6, 40, r_min=0.9, r_max=0.999)
    u = torch.randn(3, 500, 6)
    y, state = layer(u)
    expected, final = oracle(layer, u)
    assert y.dtype == state.dtype == torch.float32
    assert relative_error(y, expected) < 1e-5
    assert relative_error(state, final) < 1e-4  # the phase of λ^k is that of a rounded θ, turned k times


def test_one_state_is_a_filter() -> None:
    layer = linrnn.LRU(1, 1, r_min=0.8, r_max=0.99, **FLOAT64)
    u = torch.randn(1, 300, 1, **FLOAT64)
    cb = input_matrix(layer)[0] * output_matrix(layer)[0]
    expected = signal.lfilter(cb, [1, -eigenvalues(layer)[0]], array(u)[0, :, 0]).real
    assert relative_error((layer(u)[0] - layer.D * u)[0, :, 0], expected) < 1e-11


@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 0.9), (0.5, 0.99), (0.9, 0.99)])
@DIRECTIONS
def test_each_direction_gives_white_noise_unit_variance(r_min: float, r_max: float, bidirectional: bool) -> None:
    layer = linrnn.LRU(128, 256, r_min=r_min, r_max=r_max, bidirectional=bidirectional)
    u = torch.randn(1, 3000, 128)
    with torch.no_grad():
        y = layer(u)[0] - layer.D * u
    assert float(y[:, 500:-500].var()) == pytest.approx(2 if bidirectional else 1, rel=0.1)


@DIRECTIONS
def test_initial_statistics(bidirectional: bool) -> None:
    H, N = 80, 100
    layer = linrnn.LRU(H, N, bidirectional=bidirectional)
    for planes, variance in ((layer.B.movedim(0, 1), 1 / (2 * H)), (layer.C, 1 / N)):  # C of each direction
        for plane in planes.unbind(1):
            assert stats.kstest(array(plane).ravel() / math.sqrt(variance), "norm").pvalue > 0.01
    D = array(linrnn.LRU(2000, 1).D)
    assert D.shape == (2000,)
    assert stats.kstest(D, "norm").pvalue > 0.01


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_call_equals_the_oracle(data: st.DataObject) -> None:
    """State, lengths and resets in any combination, at any size: each sequence as if it ran alone."""
    layer, u = _draw(data)
    batch, length, _ = u.shape
    resets = data.draw(st.none() | _flags(batch, length), label="resets")
    lengths = data.draw(st.none() | st.lists(st.integers(0, length), min_size=batch, max_size=batch), label="lengths")
    given_state = not layer.bidirectional and data.draw(st.booleans(), label="state")
    state = torch.randn(batch, *layer.state_shape, **FLOAT64) if given_state else None
    y, final = layer(
        u, state, lengths=None if lengths is None else torch.tensor(lengths, dtype=torch.int64), resets=resets
    )
    expected, expected_final = oracle(layer, u, state, lengths, resets)
    assert relative_error(y, expected) < 1e-10
    if not layer.bidirectional:
        assert relative_error(final, expected_final) < 1e-10


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_step_equals_parallel(data: st.DataObject) -> None:
    layer, u = _draw(data, bidirectional=False)
    state = layer.initial_state(len(u))
    assert not state.any()
    y, final = layer(u)
    for k in range(u.shape[1]):
        y_k, state = layer.step(u[:, k], state)
        assert relative_error(y_k, y[:, k]) < 1e-10
    assert relative_error(state, final) < 1e-10


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_splitting_anywhere_equals_the_whole(data: st.DataObject) -> None:
    layer, u = _draw(data, bidirectional=False)
    cuts = sorted(data.draw(st.lists(st.integers(0, u.shape[1]), max_size=3), label="cuts"))
    outputs: list[Tensor] = []
    state: Any = None
    for start, stop in zip([0, *cuts], [*cuts, u.shape[1]], strict=True):
        y, state = layer(u[:, start:stop], state)
        outputs.append(y)
    whole, final = layer(u)
    assert relative_error(torch.cat(outputs, dim=1), whole) < 1e-12
    assert relative_error(state, final) < 1e-12


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_packed_sequences_equal_the_separate_ones(data: st.DataObject) -> None:
    layer, _ = _draw(data)
    lengths = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4), label="lengths")
    separate = [torch.randn(1, n, layer.d_model, **FLOAT64) for n in lengths]
    packed = torch.cat(separate, dim=1)
    resets = torch.zeros(1, packed.shape[1], dtype=torch.bool)
    resets[0, np.cumsum([0, *lengths[:-1]])] = True
    expected = torch.cat([layer(u)[0] for u in separate], dim=1)
    assert relative_error(layer(packed, resets=resets)[0], expected) < 1e-12


@DIRECTIONS
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e300], ids=["nan", "inf", "huge"])
def test_padding_is_never_read(bidirectional: bool, poison: float) -> None:
    layer = linrnn.LRU(3, 4, bidirectional=bidirectional, **FLOAT64)
    lengths = [7, 0, 12, 1]
    u = torch.randn(4, 12, 3, **FLOAT64)
    for row, length in zip(u, lengths, strict=True):
        row[length:] = poison
    u.requires_grad_()
    weights = torch.randn(4, 12, 3, **FLOAT64)
    y, state = layer(u, lengths=torch.tensor(lengths))
    came = gradients(layer, (y * weights).sum() + (0 if state is None else state.square().sum()), u)

    alone = [row[:length].detach().unsqueeze(0).requires_grad_() for row, length in zip(u, lengths, strict=True)]
    loss = torch.zeros((), **FLOAT64)
    for b, row in enumerate(alone):
        y_alone, state_alone = layer(row)
        loss = loss + (y_alone[0] * weights[b, : lengths[b]]).sum()
        assert relative_error(y[b, : lengths[b]], y_alone[0]) < 1e-12
        assert not y[b, lengths[b] :].any()
        if state is not None:
            assert relative_error(state[b], state_alone[0]) < 1e-12
            loss = loss + state_alone.square().sum()
    expected = gradients(layer, loss, *alone)
    for name, _ in layer.named_parameters():
        assert relative_error(came[name], expected[name]) < 1e-12, name
    for b in range(len(lengths)):
        assert relative_error(came["0"][b, : lengths[b]], expected[str(b)][0]) < 1e-12
        assert not came["0"][b, lengths[b] :].any()


def test_padding_equals_the_packing_of_nn_rnn() -> None:
    """An LRU with real eigenvalues is a linear RNN; a ReLU RNN on positive numbers is one too."""
    layer = linrnn.LRU(2, 3, parameterization="real_imag", normalize=False, **FLOAT64)
    rnn: Any = torch.nn.RNN(2, 3, nonlinearity="relu", bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        lam, B = torch.rand(3, **FLOAT64), torch.rand(3, 2, **FLOAT64)
        layer.lam.copy_(torch.stack([lam, torch.zeros(3)]))
        layer.B.copy_(torch.stack([B, torch.zeros(3, 2)]))
        rnn.weight_hh_l0.copy_(torch.diag(lam))
        rnn.weight_ih_l0.copy_(B)
    u, lengths = torch.rand(3, 9, 2, **FLOAT64), torch.tensor([4, 9, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(u, lengths, batch_first=True, enforce_sorted=False)
    _, expected = rnn(packed)
    assert relative_error(layer(u, lengths=lengths)[1][:, 0], expected[0]) < 1e-12


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_lengths_of_any_integer_type(dtype: torch.dtype) -> None:
    layer = linrnn.LRU(2, 3, **FLOAT64)
    u, lengths = torch.randn(3, 5, 2, **FLOAT64), [3, 0, 5]
    y, state = layer(u, lengths=torch.tensor(lengths, dtype=dtype))
    expected, final = oracle(layer, u, lengths=lengths)
    assert relative_error(y, expected) < 1e-12
    assert relative_error(state, final) < 1e-12


@pytest.mark.parametrize(("batch", "length"), [(0, 5), (3, 0), (0, 0)])
@DIRECTIONS
def test_nothing_in_nothing_out(batch: int, length: int, bidirectional: bool) -> None:
    layer = linrnn.LRU(2, 3, bidirectional=bidirectional)
    u = torch.zeros(batch, length, 2, requires_grad=True)
    y, state = layer(u, lengths=torch.zeros(batch, dtype=torch.int64))
    assert y.shape == u.shape
    assert bidirectional or not state.any()
    y.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in (layer.B, layer.C, layer.D))


@pytest.mark.parametrize("parameterization", PARAMETERIZATIONS)
def test_eigenvalues(parameterization: Parameterization) -> None:
    layer = linrnn.LRU(2, 20, parameterization=parameterization, **FLOAT64)
    assert layer.eigenvalues().dtype == torch.complex128
    assert relative_error(layer.eigenvalues(), eigenvalues(layer)) < 1e-14
    assert linrnn.LRU(2, 3).eigenvalues().dtype == torch.complex64


@pytest.mark.parametrize("length", [0, 1, 2, 50])
@pytest.mark.parametrize("parameterization", PARAMETERIZATIONS)
def test_kernel_is_the_impulse_response(length: int, parameterization: Parameterization) -> None:
    layer = linrnn.LRU(3, 4, parameterization=parameterization, **FLOAT64)
    _perturb(layer)
    impulses = torch.zeros(3, length, 3, **FLOAT64)
    impulses[:, :1] = torch.eye(3).unsqueeze(1)
    response, _ = layer(impulses)  # (input, step, output)
    assert relative_error(layer.kernel(length), response.movedim(0, 2)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_long_kernels_keep_their_phase(dtype: torch.dtype) -> None:
    layer = linrnn.LRU(2, 6, r_min=0.9995, r_max=0.99999, dtype=dtype)
    lam = array(layer.eigenvalues())  # as rounded: what the kernel is the kernel of
    powers = np.exp(np.arange(5000)[:, None] * np.log(lam))
    expected = np.einsum("on,kn,ni->koi", output_matrix(layer), powers, input_matrix(layer)).real
    expected[0] += np.diag(array(layer.D))
    assert relative_error(layer.kernel(5000), expected) < (1e-6 if dtype == torch.float32 else 1e-10)


def test_kernel_of_a_vanishing_eigenvalue() -> None:
    layer = linrnn.LRU(1, 1, parameterization="real_imag", normalize=False, **FLOAT64)
    with torch.no_grad():
        for parameter, value in ((layer.lam, 0), (layer.B, 1), (layer.C, 0.5), (layer.D, 0)):
            parameter.fill_(value)
        layer.C[:, 1].neg_()  # (1 + i)·(1 - i)/2 = 1
    assert layer.kernel(3).flatten().tolist() == [1, 0, 0]


@pytest.mark.parametrize("parameterization", PARAMETERIZATIONS)
def test_to_dense_against_scipy(parameterization: Parameterization) -> None:
    layer = linrnn.LRU(3, 4, r_max=0.95, parameterization=parameterization, **FLOAT64)
    _perturb(layer)
    A, B, C, D = (array(m) for m in layer.to_dense())
    assert (A.shape, B.shape, C.shape, D.shape) == ((8, 8), (8, 3), (3, 8), (3, 3))
    u = torch.randn(1, 100, 3, **FLOAT64)
    # SciPy's x_k is our x_{k-1}: y_k = C·(A·x_{k-1} + B·u_k) + D·u_k
    _, expected, _ = signal.dlsim((A, B, C @ A, C @ B + D, 1), array(u)[0])
    assert relative_error(layer(u)[0][0], expected) < 1e-11


@pytest.mark.parametrize("normalize", [True, False], ids=["gamma", "plain"])
@pytest.mark.parametrize(
    ("parameterization", "names"),
    [("stable_exp", {"nu_log", "theta_log"}), ("exp", {"nu", "theta"}), ("real_imag", {"lam"})],
    ids=PARAMETERIZATIONS,
)
def test_parameters_by_name(parameterization: Parameterization, names: set[str], normalize: bool) -> None:
    layer = linrnn.LRU(3, 4, parameterization=parameterization, normalize=normalize)
    recurrent = names | {"B"} | ({"gamma_log"} if normalize else set())
    named = dict(layer.named_parameters())
    assert set(named) == recurrent | {"C", "D"}
    assert {name for name, p in named.items() if any(p is q for q in layer.recurrent_parameters())} == recurrent
    assert len(layer.recurrent_parameters()) == len(recurrent)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gamma_of_each_step(bidirectional: bool) -> None:
    """`fixed`: whatever λ is learned, B is scaled by sqrt(1 - |λ|²), and ν has its gradient."""
    made = [linrnn.LRU(3, 5, r_min=0.5, normalize=n, bidirectional=bidirectional, **FLOAT64) for n in ("fixed", False)]
    fixed, plain = made
    assert fixed.gamma_log is None
    assert fixed.recurrent_names == plain.recurrent_names
    with torch.no_grad():
        fixed.nu_log.add_(torch.randn(5, **FLOAT64))  # far from where it started
    nu = fixed.nu_log.detach().clone().requires_grad_()
    gamma = (1 - torch.exp(-2 * torch.exp(nu))).sqrt()
    learned = {name: p.detach() for name, p in fixed.learned().items()} | {"nu_log": nu}
    expected = {**learned, "B": learned["B"] * gamma.unsqueeze(-1)}
    u = torch.randn(2, 7, 3, **FLOAT64)
    y, _ = fixed(u)
    theirs, _ = torch.func.functional_call(plain, expected, (u,))
    assert relative_error(y, theirs) < 1e-12
    (gradient,) = torch.autograd.grad(theirs.square().sum(), nu)
    assert relative_error(gradients(fixed, y.square().sum())["nu_log"], gradient) < 1e-10


def test_gamma_of_each_step_needs_a_stable_core() -> None:
    with pytest.raises(ValueError, match="normalize: expected true or false"):
        linrnn.LRU(3, 5, normalize="fixed", parameterization="exp")
    with pytest.raises(ValueError, match="normalize: expected true, false or 'fixed'"):
        linrnn.LRU(3, 5, normalize="always")  # type: ignore[arg-type]


@pytest.mark.parametrize("parameterization", PARAMETERIZATIONS)
@DIRECTIONS
def test_gradients(parameterization: Parameterization, bidirectional: bool) -> None:
    layer = linrnn.LRU(2, 3, parameterization=parameterization, bidirectional=bidirectional, **FLOAT64)
    u = torch.randn(2, 6, 2, requires_grad=True, **FLOAT64)
    state: Any = None if bidirectional else torch.randn(2, 2, 3, requires_grad=True, **FLOAT64)
    lengths, resets = torch.tensor([6, 4]), torch.rand(2, 6) < 0.3
    names, parameters = zip(*layer.named_parameters(), strict=True)
    for masks in ({}, {"lengths": lengths}, {"resets": resets}, {"lengths": lengths, "resets": resets}):

        def call(u: Tensor, state: Tensor | None, *parameters: Tensor, masks: Any = masks) -> Any:
            named = dict(zip(names, parameters, strict=True))
            y, final = torch.func.functional_call(layer, named, (u, state), masks)
            return y if bidirectional else (y, final)

        assert torch.autograd.gradcheck(call, (u, state, *parameters)), masks.keys()


@pytest.mark.parametrize("masks", ["none", "lengths", "resets"])
@DIRECTIONS
def test_compiled_equals_eager(masks: str, bidirectional: bool) -> None:
    layer = linrnn.LRU(3, 4, bidirectional=bidirectional)
    u = torch.randn(2, 10, 3, requires_grad=True)
    arguments = {
        "none": {},
        "lengths": {"lengths": torch.tensor([10, 4])},
        "resets": {"resets": torch.rand(2, 10) < 0.3},
    }
    results = []
    torch.compiler.reset()
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        y, state = run(u, **arguments[masks])
        loss = y.square().sum() + (0 if state is None else state.sum())
        results.append((y, gradients(layer, loss, u)))
    (y, expected), (y_compiled, came) = results
    assert relative_error(y_compiled, y) < 1e-6
    assert all(relative_error(came[name], expected[name]) < 1e-6 for name in expected)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "lengths"])
@DIRECTIONS
def test_export_with_a_dynamic_length(bidirectional: bool, masked: bool) -> None:
    layer = linrnn.LRU(3, 4, bidirectional=bidirectional).eval()
    dynamic: dict[str, Any] = {"u": {1: torch.export.Dim("length")}}
    lengths: dict[str, Tensor] = {}
    if masked:
        dynamic["lengths"], lengths = None, {"lengths": torch.tensor([7, 3])}
    program = torch.export.export(layer, (torch.randn(2, 16, 3),), lengths, dynamic_shapes=dynamic).module()
    for length in (7, 40):
        u = torch.randn(2, length, 3)
        for came, expected in zip(program(u, **lengths), layer(u, **lengths), strict=True):
            assert (came is None and expected is None) or relative_error(came, expected) < 1e-6


@pytest.mark.parametrize("strict", [False, True])
def test_export_of_a_step_with_a_dynamic_batch(strict: bool) -> None:
    """While exporting, the size of the batch is a symbol."""

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core = linrnn.LRU(3, 4)

        def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
            return self.core.step(u, self.core.initial_state(u.shape[0]))

    model, dynamic = First().eval(), {"u": {0: torch.export.Dim("batch")}}
    program = torch.export.export(model, (torch.randn(2, 3),), dynamic_shapes=dynamic, strict=strict).module()
    u = torch.randn(7, 3)
    for came, expected in zip(program(u), model(u), strict=True):
        assert relative_error(came, expected) < 1e-6


def test_autocast() -> None:
    layer = linrnn.LRU(8, 16, r_min=0.9, r_max=0.999)
    u = torch.randn(2, 200, 8)
    y, state = layer(u)
    with torch.autocast("cpu", torch.bfloat16):
        y_low, state_low = layer(u)
        y_step, state_step = layer.step(u[:, 0], layer.initial_state(2))
        y_on, _ = layer(u[:, :3].bfloat16(), state_low)  # what another layer would give it
    assert y_low.dtype == y_step.dtype == y_on.dtype == torch.bfloat16
    assert state_low.dtype == state_step.dtype == torch.float32
    assert relative_error(y_low, y) < 2e-2
    assert relative_error(state_low, state) < 2e-2
    assert relative_error(y_step, y[:, 0]) < 2e-2
    y_low.float().sum().backward()
    assert all(
        p.grad is not None and p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters()
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_whole_layer_in_low_precision(dtype: torch.dtype) -> None:
    """Products and storage are rounded; Λ and the state are not, or λ = 0.999 would already be 1."""
    layer = linrnn.LRU(8, 16, r_min=0.9, r_max=0.999).to(dtype)
    u = torch.randn(2, 200, 8, dtype=dtype)
    y, state = layer(u)
    expected, final = oracle(layer, u)  # from the same rounded parameters
    assert y.dtype == dtype
    assert state.dtype == layer.initial_state(2).dtype == torch.float32
    assert relative_error(y, expected) < 2e-2
    assert relative_error(state, final) < 2e-2
    assert (layer.eigenvalues().abs() < 1).all()
    y_on, _ = layer.step(u[:, 0], state)
    assert relative_error(y_on, oracle(layer, u[:, :1], state)[0][:, 0]) < 2e-2


def test_with_lengths_the_final_state_has_the_precision_of_stored_states() -> None:
    layer = linrnn.LRU(8, 16, r_min=0.9, r_max=0.999).to(torch.bfloat16)
    u = torch.randn(2, 50, 8, dtype=torch.bfloat16)
    state = layer(u, lengths=torch.tensor([50, 50]))[1]
    assert state.dtype == torch.float32
    torch.testing.assert_close(state, layer(u)[1], rtol=2**-8, atol=0)


def test_state_dict_round_trip_and_deepcopy() -> None:
    layer, other = linrnn.LRU(3, 4), linrnn.LRU(3, 4)
    u = torch.randn(2, 10, 3)
    twin = copy.deepcopy(layer)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(u)[0], layer(u)[0])
    assert torch.equal(twin(u)[0], layer(u)[0])
    with torch.no_grad():
        twin.nu_log.add_(1)
    assert not torch.equal(twin(u)[0], layer(u)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_million_streamed_steps(dtype: torch.dtype) -> None:
    """A constant input of 1 drives every state to b·(1 - λ^k) / (1 - λ), and never past twice its modulus' bound."""
    layer = linrnn.LRU(1, 4, dtype=dtype)
    with torch.no_grad():
        layer.nu_log.fill_(math.log(-math.log(0.99999)))
        layer.theta_log.copy_(torch.tensor([0.01, 0.1, 1.0, 3.0]).log())
    lam, b = array(layer.eigenvalues()), input_matrix(layer)[:, 0]
    assert np.abs(lam).max() == pytest.approx(0.99999, abs=1e-6)
    state, steps = layer.initial_state(1), 0
    u = torch.ones(1, 50_000, 1, dtype=dtype)
    with torch.no_grad():
        for _ in range(20):
            y, state = layer(u, state)
            steps += u.shape[1]
            came = array(state)[0, 0] + 1j * array(state)[0, 1]
            expected = b * (1 - np.exp(steps * np.log(lam))) / (1 - lam)
            assert relative_error(came, expected) < (1e-2 if dtype == torch.float32 else 1e-8)
            assert y.isfinite().all()
            assert float(y.abs().max()) <= 2 * np.sum(np.abs(output_matrix(layer) * b / (1 - lam))) + float(
                layer.D.detach().abs()
            )
    assert steps == 1_000_000


@DIRECTIONS
def test_training_keeps_at_most_three_tensors_of_the_states_size(bidirectional: bool) -> None:
    layer = linrnn.LRU(32, 16, bidirectional=bidirectional)
    u = torch.randn(4, 50, 32, requires_grad=True)  # itself of the states' size, and counted
    kept: dict[int, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        if x.untyped_storage().nbytes() >= 4 * 50 * 2 * 16 * 4:
            kept[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        layer(u)
    assert 2 <= len(kept) <= 3


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_same_inputs_same_bits() -> None:
    layer = linrnn.LRU(8, 64, r_max=0.99)
    u = torch.randn(3, 300, 8, requires_grad=True)
    results = []
    for _ in range(3):
        y, state = layer(u)
        results.append([y, state, *gradients(layer, y.square().sum() + state.sum(), u).values()])
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.usefixtures("threads")
def test_same_bits_with_any_number_of_threads(batch: int) -> None:
    layer = linrnn.LRU(1, 200, r_max=0.99)
    inputs = [torch.randn(batch, 300, 200, dtype=torch.complex64), layer.eigenvalues().detach()]
    results = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        leaves = [x.clone().requires_grad_() for x in inputs]
        x, final = linrnn.scan(*leaves)
        loss = x.abs().square().sum(dim=1).sum() + final.abs().sum()
        results.append([x, final, *torch.autograd.grad(loss, leaves)])
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def test_inputs_of_any_layout() -> None:
    layer = linrnn.LRU(3, 4, **FLOAT64)
    u = torch.randn(5, 3, 7, **FLOAT64).movedim(1, 2)[::2]
    assert not u.is_contiguous()
    assert relative_error(layer(u)[0], oracle(layer, u)[0]) < 1e-12


def test_repr_names_the_switches() -> None:
    text = repr(linrnn.LRU(3, 4, r_min=0.5, parameterization="exp", bidirectional=True))
    assert all(word in text for word in ("3, 4", "r_min=0.5", "'exp'", "bidirectional=True"))


def _draw(data: st.DataObject, bidirectional: bool | None = None) -> tuple[linrnn.LRU, Tensor]:
    """A layer and its input, of any size."""
    torch.manual_seed(data.draw(st.integers(0, 1000), label="seed"))
    batch, length = data.draw(st.integers(0, 3), label="batch"), data.draw(st.integers(0, 12), label="length")
    layer = linrnn.LRU(
        data.draw(st.integers(1, 4), label="H"),
        data.draw(st.integers(1, 5), label="N"),
        r_max=0.95,
        parameterization=data.draw(st.sampled_from(PARAMETERIZATIONS), label="parameterization"),
        normalize=data.draw(st.booleans(), label="normalize"),
        bidirectional=data.draw(st.booleans(), label="bidirectional") if bidirectional is None else bidirectional,
        dtype=torch.float64,
    )
    return layer, torch.randn(batch, length, layer.d_model, **FLOAT64)


def _flags(batch: int, length: int) -> st.SearchStrategy[Tensor]:
    row = st.lists(st.booleans(), min_size=length, max_size=length)
    rows = st.lists(row, min_size=batch, max_size=batch)
    return rows.map(lambda flags: torch.tensor(flags, dtype=torch.bool).view(batch, length))


@torch.no_grad()
def _perturb(layer: linrnn.LRU) -> None:
    if layer.gamma_log is not None:
        layer.gamma_log.add_(torch.randn_like(layer.gamma_log))
