"""The layers against the paper's equation, one sequence and one step at a time in float64."""

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence

import linrnn
from linrnn.nn.stack import Stack
from tests.helpers import Array, array, gradients, lru_sequence, relative_error

LAYERS = pytest.mark.parametrize("layer", [linrnn.nn.LRU, linrnn.nn.S5, linrnn.nn.S4D])
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "both"])
FEW = pytest.mark.parametrize(  # what takes seconds: by default for one case only
    ("layer", "bidirectional"),
    [
        (linrnn.nn.LRU, True),
        pytest.param(linrnn.nn.LRU, False, marks=pytest.mark.slow),
        pytest.param(linrnn.nn.S5, True, marks=pytest.mark.slow),
        pytest.param(linrnn.nn.S4D, True, marks=pytest.mark.slow),
    ],
)
NORMS = pytest.mark.parametrize("norm", ["layer", "batch"])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("proj_size", [0, 4])
@pytest.mark.parametrize("mixing", ["glu", "half_glu", "half_glu2"])
@NORMS
@DIRECTIONS
def test_by_hand(bidirectional: bool, norm: Any, mixing: Any, proj_size: int, bias: bool) -> None:
    rnn = linrnn.nn.LRU(
        3,
        5,
        2,
        bias,
        bidirectional=bidirectional,
        norm=norm,
        mixing=mixing,
        proj_size=proj_size,
        d_state=7,
        r_min=0.5,
        r_max=0.9,
    )
    shaken(rnn)
    x = torch.randn(9, 3, dtype=torch.float64)
    h_0 = torch.randn(4 if bidirectional else 2, 14, dtype=torch.float64)
    output, h_n = rnn(x, h_0)
    expected, final = by_hand(rnn, mixing, array(x), array(h_0))
    assert output.shape == (9, (2 if bidirectional else 1) * (proj_size or 5))
    assert relative_error(output, expected) < 1e-12
    assert relative_error(h_n, final) < 1e-12


@LAYERS
@DIRECTIONS
@NORMS
def test_packed_sequences_equal_the_separate_ones(layer: type[Stack], bidirectional: bool, norm: Any) -> None:
    rnn = shaken(layer(3, 6, 2, bidirectional=bidirectional, norm=norm, batch_first=True))
    sequences = [torch.randn(n, 3, dtype=torch.float64) for n in (4, 9, 1, 9, 6)]
    h_0 = torch.randn_like(rnn.initial_state(5))
    output, h_n = rnn(pack_sequence(sequences, enforce_sorted=False), h_0)
    padded, lengths = pad_packed_sequence(output, batch_first=True)
    assert lengths.tolist() == [4, 9, 1, 9, 6]
    for i, sequence in enumerate(sequences):
        alone, state = rnn(sequence, h_0[:, i])
        assert relative_error(padded[i, : lengths[i]], alone) < 1e-12
        assert relative_error(h_n[:, i], state) < 1e-12


def test_padding_is_no_part_of_the_batch_statistics() -> None:
    rnn = shaken(linrnn.nn.LRU(3, 6, norm="batch")).train()
    same = copy.deepcopy(rnn)
    short, long = torch.randn(2, 3, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    rnn(pack_sequence([long, short]))
    normed = same.encoder(torch.cat([long, short]))
    same.blocks[0].norm(normed.unsqueeze(0))
    for name, buffer in rnn.named_buffers():
        assert relative_error(buffer, same.get_buffer(name)) < 1e-12


@LAYERS
@pytest.mark.parametrize("training", [False, True])
def test_parts_equal_the_whole(layer: type[Stack], training: bool) -> None:
    rnn = shaken(layer(3, 6, 2, d_state=5)).train(training)
    x = torch.randn(11, 2, 3, dtype=torch.float64)
    whole, final = rnn(x)
    state, parts = None, []
    for part in x.split([1, 4, 6]):
        output, state = rnn(part, state)
        parts.append(output)
    assert state is not None
    assert relative_error(torch.cat(parts), whole) < 1e-12
    assert relative_error(state, final) < 1e-12


@LAYERS
@DIRECTIONS
def test_layouts_and_the_zero_state(layer: type[Stack], bidirectional: bool) -> None:
    rnn = shaken(layer(3, 6, 2, bidirectional=bidirectional))
    batch_first = copy.deepcopy(rnn)
    batch_first.batch_first = True
    x = torch.randn(4, 8, 3, dtype=torch.float64)
    output, h_n = batch_first(x)
    assert output.shape == (4, 8, 12 if bidirectional else 6)
    assert output.is_contiguous()
    for same, state in (rnn(x.transpose(0, 1)), rnn(x.transpose(0, 1), rnn.initial_state(4))):
        assert same.is_contiguous()
        assert relative_error(same.transpose(0, 1), output) < 1e-14
        assert relative_error(state, h_n) < 1e-14
    alone, state = rnn(x[2])
    assert relative_error(alone, output[2]) < 1e-12
    assert relative_error(state, h_n[:, 2]) < 1e-12


@pytest.mark.parametrize("hidden_size", [6, 7])
@pytest.mark.parametrize("layer", [linrnn.nn.LRU, linrnn.nn.S5])
def test_the_state_has_as_many_numbers_as_the_state_of_a_gru(layer: type[Stack], hidden_size: int) -> None:
    h_n = layer(3, hidden_size, 2)(torch.randn(5, 4, 3))[1]
    assert h_n.shape == (2, 4, hidden_size + hidden_size % 2)
    assert h_n.is_contiguous()


def test_dropout_is_in_all_layers_but_the_last() -> None:
    with pytest.warns(UserWarning, match="one layer"):
        linrnn.nn.LRU(3, 4, dropout=0.5)
    rnn = linrnn.nn.LRU(3, 64, 3, dropout=0.3)
    assert [block.dropout for block in rnn.blocks] == [0.3, 0.3, 0.0]
    x = torch.randn(5, 2, 3)
    assert not rnn(x)[0].equal(rnn(x)[0])
    assert rnn.eval()(x)[0].equal(rnn(x)[0])
    rnn.train().dropout = 0.0
    assert rnn(x)[0].equal(rnn(x)[0])
    everything = linrnn.nn.LRU(3, 64, 2, dropout=1.0)
    encoded = everything.encoder(x).transpose(0, 1)
    expected = everything.blocks[1](encoded)[0].transpose(0, 1)
    assert relative_error(everything(x)[0], expected) < 1e-6


@LAYERS
@DIRECTIONS
def test_gradients_reach_all_parameters_and_the_state(layer: type[Stack], bidirectional: bool) -> None:
    rnn = layer(3, 6, 2, bidirectional=bidirectional, proj_size=2)
    h_0 = torch.randn_like(rnn.initial_state(4)).requires_grad_()
    output, h_n = rnn(torch.randn(8, 4, 3), h_0)
    for gradient in gradients(rnn, output.square().sum() + h_n.square().sum(), h_0).values():
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0


@LAYERS
@pytest.mark.parametrize(
    "options", [{}, {"proj_size": 4, "bias": False, "norm": "batch", "mixing": "half_glu"}], ids=str
)
def test_as_a_model_they_stream_and_are_saved(layer: type[Stack], options: Any, tmp_path: Path) -> None:
    rnn = shaken(layer(3, 6, 2, batch_first=True, d_state=5, dropout=0.5, **options))
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    expected, _ = rnn(x)
    model = rnn.to_model()
    assert relative_error(model(x), expected) < 1e-12
    stream = linrnn.Stream(model, batch=2)
    assert relative_error(torch.stack([stream.step(x[:, k]) for k in range(9)], dim=1), expected) < 1e-12
    model.save(tmp_path)
    assert relative_error(linrnn.load(tmp_path)(x), expected) < 1e-12
    model.encoder.weight.data.zero_()
    assert rnn(x)[0].equal(expected)


def test_both_directions_are_no_model() -> None:
    with pytest.raises(ValueError, match="to_model: expected causal layers"):
        linrnn.nn.LRU(3, 6, bidirectional=True).to_model()


@LAYERS
def test_one_seed_gives_one_layer(layer: type[Stack]) -> None:
    def weights(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return layer(3, 6, 2, bidirectional=True).state_dict()

    first, same, other = weights(1), weights(1), weights(2)
    assert all(first[name].equal(same[name]) for name in first)
    assert not all(first[name].equal(other[name]) for name in first)


@LAYERS
def test_weights_are_loaded_and_copied(layer: type[Stack]) -> None:
    rnn, other = layer(3, 6, 2), layer(3, 6, 2)
    x = torch.randn(5, 2, 3)
    file = io.BytesIO()
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other(x)[0].equal(rnn(x)[0])
    assert copy.deepcopy(rnn)(x)[0].equal(rnn(x)[0])


@LAYERS
@DIRECTIONS
def test_new_weights(layer: type[Stack], bidirectional: bool) -> None:
    rnn = layer(3, 6, 2, bidirectional=bidirectional, device="meta")
    assert all(p.is_meta for p in rnn.parameters())
    rnn.to_empty(device="cpu")
    with torch.no_grad():
        for p in rnn.parameters():
            p.fill_(torch.nan)
    rnn.reset_parameters()
    assert all(p.isfinite().all() for p in rnn.parameters())
    assert rnn(torch.randn(5, 3))[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    rnn = linrnn.nn.LRU(3, 6, 2, dtype=dtype)
    assert {p.dtype for p in rnn.parameters()} == {dtype}
    x = torch.randn(5, 2, 3, dtype=dtype)
    output, h_n = rnn(x, torch.zeros(2, 2, 6, dtype=dtype))  # a state in the dtype of the input, as for nn.GRU
    assert output.dtype == dtype
    assert h_n.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@LAYERS
@DIRECTIONS
def test_autocast(layer: type[Stack], bidirectional: bool) -> None:
    rnn = layer(3, 16, 2, bidirectional=bidirectional)
    x = torch.randn(20, 4, 3)
    expected, state = rnn(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, h_n = rnn(x)
    assert h_n.dtype == torch.float32
    assert relative_error(output.float(), expected) < 0.05
    assert relative_error(h_n, state) < 0.05
    output.float().sum().backward()


@FEW
def test_compiled_equals_eager(layer: type[Stack], bidirectional: bool) -> None:
    torch._dynamo.reset()
    rnn = layer(3, 6, 2, bidirectional=bidirectional)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    x = torch.randn(9, 4, 3)
    expected, state = rnn(x)
    output, h_n = compiled(x)
    assert relative_error(output, expected) < 1e-5
    assert relative_error(h_n, state) < 1e-5
    found, known = gradients(rnn, output.square().sum()), gradients(rnn, expected.square().sum())
    assert all(relative_error(found[name], known[name]) < 1e-4 for name in known)


@FEW
def test_exported_with_any_batch_and_length(layer: type[Stack], bidirectional: bool) -> None:
    rnn = layer(3, 6, 2, bidirectional=bidirectional, batch_first=True).eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    args = (torch.randn(2, 9, 3), rnn.initial_state(2))
    shapes = ({0: batch, 1: length}, {1: batch})
    program = torch.export.export(rnn, args, dynamic_shapes=shapes).module()
    x, state = torch.randn(4, 30, 3), torch.randn_like(rnn.initial_state(4))
    for found, expected in zip(program(x, state), rnn(x, state), strict=True):
        assert relative_error(found, expected) < 1e-5


def test_empty_inputs() -> None:
    rnn = linrnn.nn.LRU(3, 6, 2)
    output, h_n = rnn(torch.randn(0, 2, 3))
    assert output.shape == (0, 2, 6)
    assert h_n.equal(rnn.initial_state(2))
    output, h_n = rnn(torch.randn(4, 0, 3))
    assert output.shape == (4, 0, 6)
    assert h_n.shape == (2, 0, 6)


def test_it_learns_to_remember() -> None:
    """The sign of the first step after 40 steps of noise."""
    rnn, head = linrnn.nn.LRU(1, 16, 2, batch_first=True), torch.nn.Linear(16, 1)
    groups = linrnn.param_groups(torch.nn.ModuleList([rnn, head]), lr=0.01)
    optimizer = torch.optim.AdamW(groups)
    losses = []
    for _ in range(120):
        x = torch.randn(32, 40, 1)
        loss = F.binary_cross_entropy_with_logits(head(rnn(x)[0][:, -1]), (x[:, 0] > 0).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.3


def shaken(rnn: Stack) -> Any:
    """In float64 and evaluation, with norms and biases that are not 1 and 0."""
    rnn.double().eval()
    with torch.no_grad():
        for name, tensor in (*rnn.named_parameters(), *rnn.named_buffers()):
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            elif "norm" in name or "bias" in name:
                tensor.copy_(torch.randn_like(tensor) if tensor.is_floating_point() else tensor)
    return rnn


def by_hand(rnn: Any, mixing: str, x: Array, h_0: Array) -> tuple[Array, Array]:
    """One sequence (length, input_size)."""
    values = {name: array(tensor) for name, tensor in rnn.state_dict().items()}

    def linear(name: str, x: Array) -> Array:
        return np.asarray(x @ values[f"{name}.weight"].T + values.get(f"{name}.bias", 0))

    def gelu(x: Array) -> Array:
        return array(F.gelu(torch.from_numpy(x)))

    x, states = linear("encoder", x), []
    for layer, block in enumerate(rnn.blocks):
        name = f"blocks.{layer}.norm"
        if isinstance(block.norm, torch.nn.LayerNorm):
            mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        else:
            mean, var = values[f"{name}.running_mean"], values[f"{name}.running_var"]
        z = (x - mean) / np.sqrt(var + 1e-5) * values[f"{name}.weight"] + values.get(f"{name}.bias", 0)
        if rnn.bidirectional:
            y, ahead = lru_sequence(block.core.cores[0], z, h_0[2 * layer].reshape(2, -1))
            back, start = lru_sequence(block.core.cores[1], z[::-1], h_0[2 * layer + 1].reshape(2, -1))
            y, found = y + back[::-1], [ahead, start]
        else:
            y, final = lru_sequence(block.core, z, h_0[layer].reshape(2, -1))
            found = [final]
        states += [state.reshape(-1) for state in found]
        h = gelu(y)
        m = linear(f"blocks.{layer}.mixing", h)
        value, gate = np.split(m, 2, axis=-1) if mixing == "glu" else (h if mixing == "half_glu" else y, m)
        x = x + value / (1 + np.exp(-gate))
    return linear("projection", x) if rnn.proj_size else x, np.stack(states)


def test_padded_batches_by_the_utilities_of_pytorch() -> None:
    """Padding on the right changes no output before it, as with nn.GRU."""
    rnn = shaken(linrnn.nn.LRU(3, 6, 2, batch_first=True))
    sequences = [torch.randn(n, 3, dtype=torch.float64) for n in (4, 9)]
    output, _ = rnn(pad_sequence(sequences, batch_first=True))
    assert relative_error(output[0, :4], rnn(sequences[0])[0]) < 1e-12
