"""The cases of PyTorch's own tests for `nn.GRU`, written for these layers.

From `test/nn/test_packed_sequence.py`: casts, moves, total lengths, both kinds of order, gradients at padding, and data
of more dimensions. From `test_modules.py` with the inputs of `common_modules.py`: the 8 combinations of bias,
batch_first and bidirectional without a batch, with and without a state; repr, pickle, factory arguments, non-contiguous
tensors, first and second derivatives, copies, errors of the constructor and of the call. From `test_nn.py`: sizes of
inputs and states, the zero state, projections, a dropout that is changed, repeated backward passes, empty sequences.

What does not apply, and why:
- The texts of the errors. They name the argument, what was expected and what came, and are ValueError for sizes and
  TypeError for types, where PyTorch has ValueError for a wrong dtype and RuntimeError for wrong sizes.
- Second derivatives of S4D: its convolution has only first derivatives.
- A sequence without steps is an error of nn.GRU; here it has no outputs, and the state stays.
- `proj_size` belongs to nn.LSTM alone and is smaller than hidden_size; here it is a linear map of any width behind the
  last layer, and does not change the state.
- The state has 2 · d_state numbers in float32 or better, which is hidden_size only by default and if it is even.
- Weights by name (`weight_ih_l0`, `all_weights`), tests of pruning and weight norm on these names, and weights that
  move out of their flat buffer (`_flat_weights`, cuDNN's format).
- `nn.GRUCell`: one step is a call with a sequence of one step.
- TorchScript (`torch.jit.script`), quantization, and cuDNN's dropout state.
- Devices in pairs (`test_multiple_device_transfer`, `test_cpu_gpu_parity`), memory formats of images.
"""

import copy
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

import linrnn
from linrnn.nn.stack import Stack
from tests.helpers import relative_error

LAYERS = pytest.mark.parametrize("layer", [linrnn.nn.LRU, linrnn.nn.S5, linrnn.nn.S4D])
SWITCHES = pytest.mark.parametrize(
    ("bias", "batch_first", "bidirectional"), list(itertools.product([False, True], repeat=3))
)
LENGTHS = [5, 3, 3, 2, 2]


@SWITCHES
@LAYERS
@pytest.mark.parametrize("given", [False, True], ids=["zero", "hx"])
def test_without_a_batch(layer: type[Stack], bias: bool, batch_first: bool, bidirectional: bool, given: bool) -> None:
    rnn = layer(2, 4, 2, bias, batch_first, 0.0, bidirectional).double()
    x = torch.randn(3, 2, dtype=torch.float64)
    h_0 = torch.randn_like(rnn.initial_state(1)) if given else None
    output, h_n = rnn(x, None if h_0 is None else h_0.squeeze(1))
    dim = 0 if batch_first else 1
    expected, state = rnn(x.unsqueeze(dim), h_0)
    assert output.shape == (3, 8 if bidirectional else 4)
    assert relative_error(output, expected.squeeze(dim)) < 1e-14
    assert relative_error(h_n, state.squeeze(1)) < 1e-14


@SWITCHES
def test_shapes_are_those_of_gru(bias: bool, batch_first: bool, bidirectional: bool) -> None:
    ours, gru = (kind(3, 4, 2, bias, batch_first, 0.0, bidirectional) for kind in (linrnn.nn.LRU, nn.GRU))
    assert str(ours).splitlines()[1].strip() == str(gru).removeprefix("GRU(").removesuffix(")")
    for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"):
        assert getattr(ours, name) == getattr(gru, name)
    packed = pack_sequence([torch.randn(n, 3) for n in LENGTHS])
    for given in (torch.randn(6, 5, 3), torch.randn(6, 3), torch.randn(1, 1, 3), packed):
        (found, state), (expected, gru_state) = ours(given), gru(given)
        assert state.shape == gru_state.shape
        if isinstance(given, PackedSequence):
            found, expected = found.data, expected.data
        assert found.shape == expected.shape
        h_0 = torch.zeros_like(gru_state)  # as code for nn.GRU makes it
        assert ours(given, h_0)[1].equal(state)


@LAYERS
def test_repr_names_what_is_not_the_default(layer: type[Stack]) -> None:
    rnn = layer(3, 8, 2, False, True, 0.5, True, proj_size=4)
    expected = "3, 8, proj_size=4, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True"
    assert rnn.extra_repr() == expected


@LAYERS
def test_no_bias_leaves_zero_at_zero(layer: type[Stack]) -> None:
    rnn = layer(3, 4, 2, bias=False, bidirectional=True, proj_size=3)
    assert not [name for name, _ in rnn.named_parameters() if "bias" in name]
    output, h_n = rnn(torch.zeros(5, 2, 3))
    assert not output.any()
    assert not h_n.any()


@LAYERS
def test_pickle(layer: type[Stack]) -> None:
    rnn = layer(3, 4, 2, bidirectional=True)
    x = torch.randn(5, 2, 3)
    for same in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        assert same(x)[0].equal(rnn(x)[0])


@LAYERS
def test_non_contiguous_tensors(layer: type[Stack]) -> None:
    rnn = layer(3, 4, 2)
    x, h_0 = torch.randn(3, 2, 9), torch.randn_like(rnn.initial_state(2))
    x, strided = x.permute(2, 1, 0), torch.stack([h_0, h_0], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    assert rnn(x, strided)[0].equal(rnn(x.contiguous(), h_0)[0])


@pytest.mark.parametrize("bidirectional", [False, True])
@LAYERS
def test_first_and_second_derivatives(layer: type[Stack], bidirectional: bool) -> None:
    rnn = layer(2, 3, 2, bidirectional=bidirectional, d_state=2).double()
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    h_0 = torch.randn_like(rnn.initial_state(2)).requires_grad_()
    assert torch.autograd.gradcheck(rnn, (x, h_0), fast_mode=True)
    if layer is not linrnn.nn.S4D:
        assert torch.autograd.gradgradcheck(rnn, (x, h_0), fast_mode=True)


def test_backward_twice() -> None:
    rnn = linrnn.nn.LRU(3, 4, 2)
    loss = rnn(torch.randn(6, 5, 3))[0].sum()
    loss.backward(retain_graph=True)
    once = {name: p.grad.clone() for name, p in rnn.named_parameters() if p.grad is not None}
    loss.backward()
    for name, p in rnn.named_parameters():
        assert p.grad is not None
        assert relative_error(p.grad, 2 * once[name]) < 1e-5


@pytest.mark.parametrize("proj_size", [0, 2, 9])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections(bidirectional: bool, proj_size: int) -> None:
    rnn = linrnn.nn.LRU(3, 6, 2, bidirectional=bidirectional, proj_size=proj_size)
    output, h_n = rnn(torch.randn(7, 5, 3))
    directions = 2 if bidirectional else 1
    assert output.shape == (7, 5, directions * (proj_size or 6))
    assert h_n.shape == (2 * directions, 5, 6)


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packing_is_kept(enforce_sorted: bool) -> None:
    lengths = LENGTHS if enforce_sorted else [3, 5, 2, 5, 1]  # equal lengths: their order must be kept too
    padded = pad_sequence([torch.randn(n, 3) for n in lengths]).requires_grad_()
    packed = pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=enforce_sorted)
    output, _ = linrnn.nn.LRU(3, 4, 2)(packed)
    assert isinstance(output, PackedSequence)
    assert output.batch_sizes.equal(packed.batch_sizes)
    for found, expected in (
        (output.sorted_indices, packed.sorted_indices),
        (output.unsorted_indices, packed.unsorted_indices),
    ):
        assert found is expected
    assert pad_packed_sequence(output, total_length=8)[0].shape == (8, 5, 4)
    output.data.square().sum().backward()
    assert padded.grad is not None
    for i, length in enumerate(lengths):
        assert padded.grad[:length, i].any(dim=-1).all()
        assert not padded.grad[length:, i].any()


def test_casts_and_moves_of_packed_sequences() -> None:
    rnn = linrnn.nn.LRU(3, 4)
    packed = pack_sequence([torch.randn(n, 3) for n in LENGTHS])
    output, h_n = rnn(packed)
    wide, state = rnn.double()(packed.double())
    assert wide.data.dtype == state.dtype == torch.float64
    assert relative_error(wide.data.float(), output.data) < 1e-5
    assert relative_error(state.float(), h_n) < 1e-5
    assert output.to("cpu") is output
    for other in (packed.float(), packed.long()):
        with pytest.raises(TypeError, match=r"input: expected torch.float64"):
            rnn(other)


ONE = torch.randn(5, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"input_size": 0}, ValueError, "input_size: expected at least 1, got 0"),
        ({"input_size": -1}, ValueError, "input_size"),
        ({"input_size": 3.0}, TypeError, "input_size: expected an integer, got 3.0"),
        ({"input_size": "10"}, TypeError, "input_size"),
        ({"hidden_size": 0}, ValueError, "hidden_size"),
        ({"hidden_size": 4.0}, TypeError, "hidden_size"),
        ({"num_layers": 0}, ValueError, "num_layers"),
        ({"num_layers": 1.5}, TypeError, "num_layers"),
        ({"bias": 0}, TypeError, "bias: expected true or false, got 0"),
        ({"bias": "True"}, TypeError, "bias"),
        ({"batch_first": 1}, TypeError, "batch_first"),
        ({"batch_first": "False"}, TypeError, "batch_first"),
        ({"bidirectional": 1}, TypeError, "bidirectional"),
        ({"dropout": -0.1}, ValueError, "dropout: expected a probability"),
        ({"dropout": 1.1}, ValueError, "dropout"),
        ({"dropout": True}, TypeError, "dropout"),
        ({"dropout": "0.1"}, TypeError, "dropout"),
        ({"proj_size": -1}, ValueError, "proj_size"),
        ({"d_state": 0}, ValueError, "d_state"),
        ({"norm": "group"}, ValueError, "norm: expected 'batch' or 'layer', got 'group'"),
        ({"mixing": "mlp"}, ValueError, "mixing: expected 'glu' or 'half_glu' or 'half_glu2', got 'mlp'"),
        ({"nonlinearity": "tanh"}, TypeError, "nonlinearity"),
        ({"r_min": 2.0}, ValueError, "r_min"),
        ({"counters": 9}, ValueError, "counters: expected at most d_state = 2"),
    ],
    ids=str,
)
def test_errors_of_the_constructor(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.nn.LRU(**{"input_size": 3, "hidden_size": 4} | arguments)


@pytest.mark.parametrize(
    ("input", "hx", "error", "message"),
    [
        (ONE[..., :2], None, ValueError, r"input: expected 3 features \(input_size\), got 2"),
        (ONE[0, 0], None, ValueError, r"input: expected 2 dimensions, or 3 with a batch, got \(3,\)"),
        (ONE[None], None, ValueError, "input"),
        (
            ONE.double(),
            None,
            TypeError,
            r"input: expected torch.float32, .*input\.to\(torch.float32\), got torch.float64",
        ),
        (ONE.long(), None, TypeError, "input"),
        (ONE.tolist(), None, TypeError, "input: expected a tensor, got list"),
        (ONE.to("meta"), None, ValueError, "input: expected a tensor on cpu"),
        (ONE, torch.zeros(2, 2, 5), ValueError, r"hx: expected shape \(2, 2, 4\)"),
        (ONE, torch.zeros(2, 3, 4), ValueError, r"hx: expected shape \(2, 2, 4\)"),
        (ONE, torch.zeros(1, 2, 4), ValueError, r"hx: expected shape \(2, 2, 4\)"),
        (ONE, torch.zeros(2, 4), ValueError, r"hx: expected 3 dimensions"),
        (ONE[0], torch.zeros(2, 1, 4), ValueError, r"hx: expected 2 dimensions"),
        (ONE[0], torch.zeros(2, 5), ValueError, r"hx: expected shape \(2, 4\) .*got \(2, 5\)"),
        (ONE, torch.zeros(2, 2, 4).double(), TypeError, "hx: expected torch.float32"),
        (ONE, torch.zeros(2, 2, 4).long(), TypeError, "hx"),
        (ONE, torch.zeros(2, 2, 4, device="meta"), ValueError, "hx: expected a tensor on cpu"),
        (ONE, (torch.zeros(2, 2, 4), torch.zeros(2, 2, 4)), TypeError, "hx: expected a tensor, got tuple"),
        (pack_sequence([ONE]), None, ValueError, "input: expected packed sequences of vectors"),
        (pack_sequence([ONE[:, 0], ONE[:, 1]]), torch.zeros(2, 3, 4), ValueError, r"hx: expected shape \(2, 2, 4\)"),
        (pack_sequence([ONE[:, 0, :2]]), None, ValueError, r"input: expected 3 features"),
    ],
    ids=lambda x: "x".join(map(str, x.shape)) if isinstance(x, Tensor) else None,
)
def test_errors_of_the_call(input: Any, hx: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.nn.LRU(3, 4, 2)(input, hx)
