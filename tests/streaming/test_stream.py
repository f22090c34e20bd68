"""A stream against `Model.step` and whole sequences; its GPU kernels here in Triton's interpreter (see conftest.py)."""

import copy
import gc
import importlib.util
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import linrnn
from linrnn.cores import CORES
from linrnn.fast import fused
from linrnn.recurrence.planes import multiply
from linrnn.streaming import Stream, reference
from linrnn.streaming.weights import fold_apart, fold_model
from tests.helpers import relative_error

SIZES: dict[str, Any] = {"classes": 4, "d_model": 6, "d_state": 5, "depth": 2}
KINDS = [
    pytest.param({"channels": 3}, id="pixels"),
    pytest.param({"vocabulary": 7}, id="tokens"),
    pytest.param({"channels": 3, "vocabulary": 7}, id="both"),
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2, torch.float16: 5e-3}
LENGTH = 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("batch", [1, 5, 11], ids="batch {}".format)
@pytest.mark.parametrize("pooling", ["mean", "all", "last", "none"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("mixing", ["glu", "half_glu", "half_glu2"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_model(
    kind: dict[str, int], mixing: str, norm: str, pooling: str, batch: int, dtype: torch.dtype
) -> None:
    model = _model(dtype, **kind, mixing=mixing, norm=norm, pooling=pooling)
    inputs = _inputs(model, batch)
    _check_steps(Stream(model, batch), model, inputs, TOLERANCE[dtype])
    came = _run(Stream(model, batch), inputs)
    if pooling != "none":
        assert relative_error(came[:, -1], model(inputs)) < TOLERANCE[dtype]
    else:
        assert relative_error(came, model(inputs)) < TOLERANCE[dtype]


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_the_last_norm(norm: str) -> None:
    model = _model(torch.float64, channels=3, norm=norm, last_norm=True)
    _check_steps(Stream(model), model, _inputs(model, 1), 1e-12)


@pytest.mark.parametrize("batch", [1, 11])
@pytest.mark.parametrize("core", [*CORES, "none"])
def test_every_core(core: str, batch: int) -> None:
    sizes = {"depth": 0} if core == "none" else {"core": core}
    model = _model(torch.float64, vocabulary=7, **sizes)
    _check_steps(Stream(model, batch), model, _inputs(model, batch), 1e-12)


@pytest.mark.parametrize(
    "options", [{"parameterization": "exp"}, {"parameterization": "real_imag"}, {"normalize": False}], ids=str
)
def test_every_kind_of_lru(options: dict[str, Any]) -> None:
    model = _model(torch.float64, channels=3, options=options)
    _check_steps(Stream(model), model, _inputs(model, 1), 1e-12)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_matrices_in_half_precision(dtype: torch.dtype, core: str) -> None:
    model = _model(torch.float32, channels=3, core=core)
    stream = Stream(model, 2, dtype=dtype)
    came = _check_steps(stream, model, _inputs(model, 2), TOLERANCE[dtype])
    assert came.dtype == torch.float32
    assert all(state.dtype == torch.float32 for state in stream.state.cores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("batch", [1, 5, 11], ids="batch {}".format)
@pytest.mark.parametrize("core", CORES)
def test_a_single_layer(core: str, batch: int, dtype: torch.dtype) -> None:
    """Against the whole sequence at once in float64, in two parts, the second from a state that was handed over."""
    layer = CORES[core](6, 4, bidirectional=False).double()
    u = torch.randn(batch, LENGTH, 6, dtype=torch.float64)
    expected, final = layer(u)
    layer = layer.to(dtype)
    stream = Stream(layer, batch)
    came = _run(stream, u[:, :4].to(dtype))
    state = stream.state
    stream.reset()
    assert (stream.state == 0).all()
    stream.state = state
    came = torch.cat([came, _run(stream, u[:, 4:].to(dtype))], dim=1)
    assert came.dtype == dtype
    assert relative_error(came, expected) < TOLERANCE[dtype]
    assert relative_error(stream.state, final) < TOLERANCE[dtype]


@pytest.mark.parametrize("batch", [1, 11], ids="batch {}".format)
@pytest.mark.parametrize("core", ["lru", "rnn"])
def test_a_layer_is_refreshed_and_refuses_what_does_not_fit(core: str, batch: int) -> None:
    layer = CORES[core](6, 4, bidirectional=False)
    stream: Any = Stream(layer, batch)
    u = torch.randn(batch, LENGTH, 6)
    before = _run(stream, u)
    torch.nn.init.ones_(layer.D)
    stream.reset()
    assert torch.equal(_run(stream, u), before)
    stream.reset()
    stream.refresh()
    assert relative_error(_run(stream, u), layer(u)[0]) < 1e-5
    with pytest.raises(ValueError, match=r"inputs: expected shape \(batch, d_model\) with d_model = 6, got"):
        stream.step(torch.zeros(batch, 5))
    with pytest.raises(ValueError, match=r"inputs: expected shape .* for a batch of"):
        stream.step(torch.zeros(batch + 1, 6))
    with pytest.raises(ValueError, match="state: expected shape"):
        stream.state = layer.initial_state(batch + 1)
    with pytest.raises(TypeError, match="state: expected a tensor"):
        stream.state = None
    stream.step(torch.zeros(batch, 6))


def test_a_model_in_bfloat16() -> None:
    model = _model(torch.bfloat16, channels=3)
    came = _check_steps(Stream(model, 2), model, _inputs(model, 2), 5e-2)
    assert came.dtype == torch.bfloat16


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("mixing", ["glu", "half_glu"])
def test_the_kernels_of_training(mixing: str, norm: str, monkeypatch: Any) -> None:
    """What is around the products of many sequences on a GPU: the elementwise kernels, and a scan of one step."""
    for module in (fused, reference):
        monkeypatch.setattr(module, "available", lambda _: True)
    monkeypatch.setattr("linrnn.streaming._kernels", lambda *_: reference)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = _model(torch.float32, channels=3, d_model=20, mixing=mixing, norm=norm).to(device)
    _check_steps(Stream(model, 33), model, _inputs(model, 33), 1e-5)
    layer, u = linrnn.LRU(6, 4).to(device), torch.randn(11, LENGTH, 6, device=device)
    assert relative_error(_run(Stream(layer, 11), u), layer(u)[0]) < 1e-5


@pytest.mark.parametrize("batch", [3, 11])
def test_reset(batch: int) -> None:
    model = _model(torch.float64, vocabulary=7)
    inputs = _inputs(model, batch)
    stream = Stream(model, batch)
    first = _run(stream, inputs)
    stream.reset()
    assert torch.equal(_run(stream, inputs), first)
    which = torch.arange(batch) == 1
    stream.reset(which)
    assert stream.state.steps.tolist() == [0 if anew else LENGTH for anew in which]
    again = _run(stream, inputs)
    both = model(torch.cat([inputs, inputs], dim=1))
    assert relative_error(again[:, -1], torch.where(which.unsqueeze(1), model(inputs), both)) < 1e-12


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("batch", [3, 11])
def test_state_goes_both_ways(batch: int, core: str) -> None:
    model = _model(torch.float64, channels=3, core=core)
    inputs = _inputs(model, batch)
    stream = Stream(model, batch)
    _, stream.state = model.chunk(inputs[:, :2])
    _run(stream, inputs[:, 2:4])
    for output, _ in (model.chunk(inputs[:, 4:], stream.state), model.chunk(inputs[:, 4:], _state(stream))):
        assert relative_error(output, model(inputs)) < 1e-12
    twin = Stream(model, batch)
    twin.state = stream.state
    assert torch.equal(_run(twin, inputs[:, 4:]), _run(stream, inputs[:, 4:]))


@pytest.mark.parametrize("batch", [1, 11])
def test_what_was_given_out_stays(batch: int) -> None:
    model = _model(torch.float32, channels=3)
    inputs = _inputs(model, batch)
    stream = Stream(model, batch)
    output, state = stream.step(inputs[:, 0]), stream.state
    kept = [t.clone() for t in (output, *state.cores, state.total, state.steps)]
    stream.step(inputs[:, 1])
    for a, b in zip((output, *state.cores, state.total, state.steps), kept, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("batch", [1, 11])
def test_weights_change_when_refreshed(batch: int, core: str) -> None:
    model = _model(torch.float64, channels=3, core=core)
    inputs = _inputs(model, batch)
    stream = Stream(model, batch)
    before = _run(stream, inputs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    stream.reset()
    assert torch.equal(_run(stream, inputs), before)
    stream.reset()
    stream.refresh()
    _check_steps(stream, model, inputs, 1e-12)


def test_inputs_of_other_makes() -> None:
    model = _model(torch.float32, vocabulary=7)
    tokens = _inputs(model, 3)
    expected = _run(Stream(model, 3), tokens)
    assert torch.equal(_run(Stream(model, 3), tokens.int()), expected)
    model = _model(torch.float32, channels=3)
    numbers = _inputs(model, 3)
    expected = _run(Stream(model, 3), numbers)
    apart = numbers.movedim(1, 0).contiguous().movedim(0, 1).requires_grad_()
    came = _run(Stream(model, 3), apart)
    assert torch.equal(came, expected)
    assert not came.requires_grad


def test_a_nan_stays_in_its_sequence() -> None:
    model = _model(torch.float32, channels=3)
    inputs = _inputs(model, 3)
    inputs[1, 2] = float("nan")
    stream = Stream(model, 3)
    assert _run(stream, inputs)[:, -1].isnan().all(-1).tolist() == [False, True, False]
    stream.reset(torch.tensor([False, True, False]))
    assert _run(stream, inputs[:, 3:]).isfinite().all()


@pytest.mark.parametrize("token", [-1, 7])
def test_a_token_outside_is_refused_and_changes_nothing(token: int) -> None:
    stream = Stream(_model(torch.float32, vocabulary=7), 2)
    with pytest.raises(ValueError, match="inputs: expected tokens from 0 to below the vocabulary"):
        stream.step(torch.tensor([1, token]))
    assert all((state == 0).all() for state in _state(stream).cores)
    assert stream.state.steps.tolist() == [0, 0]


def test_no_copy_that_would_move_the_state_of_the_first() -> None:
    stream = Stream(_model(torch.float32, channels=3))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="Stream: expected no copy; make a new Stream"):
            copied(stream)


def test_errors() -> None:
    model = _model(torch.float32, channels=3)
    bidirectional = _model(torch.float32, channels=3, options={"bidirectional": True})
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (model.blocks[0], {}, TypeError, "model: expected a Model or a Core, got Block"),
        (bidirectional.blocks[0].core, {}, ValueError, "expected a causal core, got a bidirectional one"),
        (bidirectional, {}, ValueError, "expected a causal core, got a bidirectional one"),
        (_model(torch.float32, vocabulary=7, documents=2), {}, ValueError, "Stream: expected a model of one document"),
        (_model(torch.float32, channels=3).train(), {}, RuntimeError, "Stream: expected a model in eval mode"),
        (model, {"batch": 0}, ValueError, "batch: expected at least 1, got 0"),
        (model, {"batch": 2.0}, TypeError, "batch: expected an integer, got 2.0"),
        (model, {"dtype": torch.float64}, ValueError, "dtype: expected None, torch.float32 as the model"),
    ]
    for wrong, options, error, message in refused:
        with pytest.raises(error, match=message):
            Stream(wrong, **options)
    stream: Any = Stream(model, 2)
    for inputs, error, message in (
        ([1.0], TypeError, "inputs: expected a tensor"),
        (torch.zeros(2, 4), ValueError, "channels = 3"),
        (torch.zeros(3, 3), ValueError, r"inputs: expected shape \(2, 3\) for a batch of 2, got \(3, 3\)"),
        (torch.zeros(2, 3, dtype=torch.float64), TypeError, "inputs: expected torch.float32"),
    ):
        with pytest.raises(error, match=message):
            stream.step(inputs)
    for which, error, message in (
        ([0], TypeError, "which: expected a tensor, got list"),
        (torch.tensor([0, 1]), TypeError, "which: expected a tensor of torch.bool, got torch.int64"),
        (torch.tensor([True]), ValueError, r"which: expected shape \(2,\)"),
    ):
        with pytest.raises(error, match=message):
            stream.reset(which)
    with pytest.raises(ValueError, match=r"state.total: expected torch.float64 \(2, 6\), got torch.float64 \(3, 6\)"):
        stream.state = model.initial_state(3)
    with pytest.raises(TypeError, match="state: expected a ModelState"):
        stream.state = None
    model.train()
    with pytest.raises(RuntimeError, match="refresh: expected a model in eval mode"):
        stream.refresh()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("sizes", "dtype", "batch"),
    [
        pytest.param(sizes, dtype, batch, id=f"{sizes}, {dtype}, batch {batch}".replace("torch.", ""))
        for sizes, dtype, batch in [
            ((20, 17, 3), torch.float32, 1),
            ((20, 17, 3), torch.float32, 5),
            ((20, 17, 3), torch.float32, 70),
            ((20, 17, 3), torch.bfloat16, 1),  # the interpreter's `dot` knows no bfloat16
            ((20, 17, 3), torch.float16, 1),
            ((20, 17, 3), torch.float16, 5),
            ((20, 17, 3), torch.float16, 70),
            ((70, 40, 2), torch.float32, 20),  # several pieces of a product
            ((70, 40, 2), torch.float16, 20),
            ((140, 70, 2), torch.float16, 70),
        ]
    ],
)
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"channels": 3, "mixing": "half_glu"}, id="half_glu, pixels"),
        pytest.param({"vocabulary": 7, "pooling": "none"}, id="tokens"),
    ],
)
def test_kernels_of_the_gpu(
    config: dict[str, Any], sizes: tuple[int, int, int], dtype: torch.dtype, batch: int, monkeypatch: Any
) -> None:
    """A whole stream against the model in float64; others change its state and weights between steps."""
    from linrnn.streaming import gpu

    monkeypatch.setattr("linrnn.streaming._kernels", lambda *_: gpu)
    monkeypatch.setattr(gpu, "PROGRAMS", 20)  # else so small a model has no tiles of many rows
    device = "cuda" if torch.cuda.is_available() else "cpu"
    d_model, d_state, depth = sizes
    model = _model(torch.float32, d_model=d_model, d_state=d_state, depth=depth, **config).to(device)
    exact = copy.deepcopy(model).double()
    stream, inputs = Stream(model, batch, dtype=dtype), _inputs(model, batch)
    given = inputs.double() if inputs.is_floating_point() else inputs
    state = exact.initial_state(batch)
    for k in range(4):
        if k == 1:
            state = linrnn.ModelState(tuple(torch.randn_like(x) for x in state.cores), *state[1:])
            stream.state = state
        if k == 2:
            anew = torch.arange(batch, device=device) % 3 == 0
            stream.reset(anew)
            for tensor in (*state.cores, *state[1:]):
                tensor.masked_fill_(anew.view(-1, *[1] * (tensor.dim() - 1)), 0)
        if k == 3:
            for network in (model, exact):
                with torch.no_grad():
                    network.blocks[0].core.get_parameter("D").fill_(0.3)
                    network.blocks[1].norm.bias.fill_(0.4)
            stream.refresh()
        expected, state = exact.step(given[:, k], state)
        assert relative_error(stream.step(inputs[:, k]).cpu(), expected.cpu()) < TOLERANCE[dtype]
        for ours, theirs in zip((*stream.state.cores, *stream.state[1:]), (*state.cores, *state[1:]), strict=True):
            assert relative_error(ours.cpu(), theirs.cpu()) < TOLERANCE[dtype]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_more_channels_and_classes_than_the_kernels_take(monkeypatch: Any) -> None:
    from linrnn.streaming import gpu

    monkeypatch.setattr("linrnn.streaming._kernels", lambda *_: gpu)
    model = _model(torch.float32, channels=gpu.CHANNELS + 1, classes=gpu.CLASSES + 1)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    _check_steps(Stream(model, 2), model, _inputs(model, 2), 1e-5)


@pytest.mark.parametrize("mixing", ["glu", "half_glu"])
def test_weights_apart(mixing: str) -> None:
    """What the states add is known before a step: the same numbers in another order."""
    model = _model(torch.float64, channels=3, mixing=mixing)
    (w, apart), n = (
        (fold_model(model, torch.float64), fold_apart(model, torch.float64)),
        torch.randn(6, dtype=torch.float64),
    )
    for i, state in enumerate(torch.randn(2, 2, 5, dtype=torch.float64)):
        after = multiply(w.lam[i].view(2, 5), state).flatten() + w.B[i] @ n + w.b[i]
        came = apart.CL[i] @ state.flatten() + apart.CB[i] @ n + apart.ce[i]
        assert relative_error(came, w.C[i] @ after + w.d[i] * n + w.e[i]) < 1e-12
    assert all(torch.equal(getattr(apart, name), getattr(w, name)) for name in set(w._fields) & set(apart._fields))


def test_weights_apart_are_rounded_once() -> None:
    model = _model(torch.float32, channels=3)
    exact, low = fold_apart(copy.deepcopy(model).double(), torch.float64), fold_apart(model, torch.bfloat16)
    for name in ("CL", "CB", "B", "W"):
        assert torch.equal(getattr(low, name), getattr(exact, name).to(torch.bfloat16))
    assert low.ce.dtype == low.lam.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 5, 33, 200], ids="batch {}".format)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_gpu(kind: dict[str, int], dtype: torch.dtype, batch: int) -> None:
    """As on the CPU in float64; and again to the same bits, after a reset of the state that the graph works on."""
    model = _model(torch.float64, **kind, d_model=96, d_state=100, depth=3, options={"r_max": 0.99})
    inputs = _inputs(model, batch)
    expected = _run(Stream(model, batch), inputs)
    stream = Stream(model.float().cuda(), batch, dtype=dtype)
    inputs = inputs.float().cuda() if inputs.is_floating_point() else inputs.cuda()
    came = _run(stream, inputs)
    assert relative_error(came.cpu(), expected) < 2 * TOLERANCE[dtype]
    stream.reset()
    assert torch.equal(_run(stream, inputs), came)


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 200, 1024], ids="batch {}".format)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mixing", ["glu", "half_glu"])
def test_whole_tiles_on_the_gpu(mixing: str, dtype: torch.dtype, batch: int) -> None:
    """At the size of the benchmark, whose tiles are larger than those of small models."""
    model = _model(torch.float32, channels=3, d_model=512, d_state=384, depth=6, mixing=mixing).cuda()
    inputs, exact = _inputs(model, batch), copy.deepcopy(model).double()
    stream, state = Stream(model, batch, dtype=dtype), exact.initial_state(batch)
    for step in inputs.unbind(1):
        expected, state = exact.step(step.double(), state)
        assert relative_error(stream.step(step).cpu(), expected.cpu()) < TOLERANCE[dtype]
    for ours, theirs in zip(stream.state.cores, state.cores, strict=True):
        assert relative_error(ours.cpu(), theirs.cpu()) < TOLERANCE[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 33], ids="batch {}".format)
@pytest.mark.parametrize("config", [{}, {"norm": "layer"}, {"core": "rnn"}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_way_on_the_gpu(dtype: torch.dtype, config: dict[str, Any], batch: int) -> None:
    model = _model(dtype, channels=3, **config).cuda()
    inputs = _inputs(model, batch)
    stream = Stream(model, batch)
    _check_steps(stream, model, inputs, TOLERANCE[dtype])
    with torch.no_grad():
        model.head.get_parameter("weight").normal_()
        model.blocks[0].mixing.weight.normal_()
    stream.refresh()
    stream.reset()
    _check_steps(stream, model, inputs, TOLERANCE[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 33], ids="batch {}".format)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_layer_on_the_gpu(dtype: torch.dtype, batch: int) -> None:
    layer = linrnn.LRU(96, 100, r_max=0.99)
    u = torch.randn(batch, LENGTH, 96)
    expected, final = layer(u)
    stream = Stream(layer.cuda(), batch, dtype=dtype)
    gc.collect()
    junk = [torch.full((size,), 1e9, device="cuda") for size in (96, 100, 200) for _ in range(20)]  # over what is free
    assert relative_error(_run(stream, u.cuda()).cpu(), expected) < TOLERANCE[dtype]
    del junk
    assert relative_error(stream.state.cpu(), final) < TOLERANCE[dtype]


def _check_steps(stream: Stream, model: linrnn.Model, inputs: Tensor, tolerance: float) -> Tensor:
    """Step by step as the model does, outputs and states; the last output."""
    state = model.initial_state(len(inputs))
    for step in inputs.unbind(1):
        expected, state = model.step(step, state)
        came = stream.step(step)
        assert relative_error(came.cpu(), expected.cpu()) < tolerance
    for ours, theirs in zip((*stream.state.cores, *stream.state[1:]), (*state.cores, *state[1:]), strict=True):
        assert ours.dtype == theirs.dtype
        assert relative_error(ours.cpu(), theirs.cpu()) < tolerance
    return came


def _run(stream: Stream, inputs: Tensor) -> Tensor:
    return torch.stack([stream.step(step) for step in inputs.unbind(1)], dim=1)


def _state(stream: Stream) -> linrnn.ModelState:
    state: linrnn.ModelState = stream.state
    return state


def _model(dtype: torch.dtype, **config: Any) -> linrnn.Model:
    """In eval mode, with every number away from where it starts."""
    model = linrnn.Model(linrnn.ModelConfig(**SIZES | config)).eval()
    with torch.no_grad():
        for block in model.blocks:
            for tensor in (*block.norm.parameters(), *block.norm.buffers()):
                if tensor.is_floating_point():
                    tensor.uniform_(0.5, 1.5)
            block.mixing.bias.normal_()
        for name, parameter in model.head.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return model.to(dtype)


def _inputs(model: linrnn.Model, batch: int) -> Tensor:
    parameter = next(model.parameters())
    channels, vocabulary = model.config.channels, model.config.vocabulary
    tokens = torch.randint(vocabulary or 1, (batch, LENGTH), device=parameter.device)
    if channels is None:
        return tokens
    numbers = torch.randn(batch, LENGTH, channels, device=parameter.device).to(parameter.dtype)
    return numbers if vocabulary is None else torch.cat([numbers, tokens.to(numbers.dtype).unsqueeze(-1)], dim=-1)
