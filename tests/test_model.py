import copy
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import linrnn
from linrnn.fast import accelerate, packs
from linrnn.util import saved
from tests.helpers import gradients, relative_error

SMALL: dict[str, Any] = {"classes": 4, "d_model": 6, "d_state": 5, "depth": 2}
WIDE: dict[str, Any] = {"classes": 300, "d_model": 200, "d_state": 5, "depth": 1}
CORES = [
    pytest.param({"core": "lru"}, id="lru"),
    pytest.param({"core": "rnn"}, id="tanh"),
    pytest.param({"core": "rnn", "options": {"nonlinearity": "linear"}}, id="linear"),
]
KINDS = [
    pytest.param({"channels": 3}, id="pixels"),
    pytest.param({"vocabulary": 7}, id="tokens"),
    pytest.param({"channels": 3, "vocabulary": 7}, id="both"),
]
NORMS = pytest.mark.parametrize("norm", ["batch", "layer"])
LENGTHS = torch.tensor([9, 0, 4, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("core", CORES)
@NORMS
def test_shapes_and_gradients(kind: dict[str, int], core: dict[str, Any], norm: str) -> None:
    inputs = _inputs(kind)
    for pooling, shape in (("mean", (4, 4)), ("all", (4, 4)), ("last", (4, 4)), ("none", (4, 9, 4))):
        model = _model(**kind, **core, norm=norm, pooling=pooling)
        output = model(inputs, lengths=LENGTHS)
        assert output.shape == shape
        assert all(g.isfinite().all() for g in gradients(model, output.square().sum()).values())


@pytest.mark.parametrize("mixing", ["glu", "half_glu", "half_glu2"])
@NORMS
@pytest.mark.parametrize("kind", KINDS)
def test_the_block_by_hand(kind: dict[str, int], norm: str, mixing: str) -> None:
    model = _model(**kind, norm=norm, mixing=mixing).double().eval()
    _shake(model)
    inputs = _inputs(kind, torch.float64)
    if len(kind) == 2:
        x = inputs[..., :3] @ _parameter(model, "encoder.numbers.weight").T + _parameter(model, "encoder.numbers.bias")
        x = x + _parameter(model, "encoder.tokens.weight")[inputs[..., 3].long()]
    elif "vocabulary" in kind:
        x = _parameter(model, "encoder.weight")[inputs]
    else:
        x = inputs @ _parameter(model, "encoder.weight").T + _parameter(model, "encoder.bias")
    for i, block in enumerate(model.blocks):
        weight, bias = _parameter(model, f"blocks.{i}.norm.weight"), _parameter(model, f"blocks.{i}.norm.bias")
        if norm == "batch":
            buffers = dict(model.named_buffers())
            mean, var = (buffers[f"blocks.{i}.norm.running_{name}"] for name in ("mean", "var"))
        else:
            mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        y, _ = block.core((x - mean) / (var + 1e-5).sqrt() * weight + bias)
        h = F.gelu(y)
        z = h @ _parameter(model, f"blocks.{i}.mixing.weight").T + _parameter(model, f"blocks.{i}.mixing.bias")
        x = x + (
            z[..., :6] * z[..., 6:].sigmoid() if mixing == "glu" else (h if mixing == "half_glu" else y) * z.sigmoid()
        )
    expected = x.mean(1) @ _parameter(model, "head.weight").T + _parameter(model, "head.bias")
    assert relative_error(model(inputs), expected) < 1e-12


@NORMS
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_the_last_norm(norm: str, training: bool) -> None:
    """By hand, from the output of a model without it at every step."""
    model = _model(vocabulary=7, norm=norm, last_norm=True).double()
    steps = _model(vocabulary=7, norm=norm, pooling="none").double()
    _shake(model)
    steps.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("last_norm")})
    steps.head, buffers = torch.nn.Identity(), dict(model.named_buffers())
    running = [buffers[f"last_norm.running_{name}"].clone() for name in ("mean", "var")] if norm == "batch" else []
    model.train(training)
    steps.train(training)
    inputs = _inputs({"vocabulary": 7}, torch.float64)
    rows = [x[:length] for x, length in zip(steps(inputs, lengths=LENGTHS), LENGTHS, strict=True)]
    if norm == "layer":
        rows = [F.layer_norm(row, row.shape[-1:]) for row in rows]
    else:
        together = torch.cat(rows)
        mean, var = (together.mean(0), together.var(0, unbiased=False)) if training else running
        rows = [(row - mean) / (var + 1e-5).sqrt() for row in rows]
    weight, bias = (_parameter(model, f"last_norm.{name}") for name in ("weight", "bias"))
    pooled = torch.stack([(row * weight + bias).sum(0) / max(len(row), 1) for row in rows])
    expected = pooled @ _parameter(model, "head.weight").T + _parameter(model, "head.bias")
    assert relative_error(model(inputs, lengths=LENGTHS), expected) < 1e-12
    if not training:
        _, state = model.chunk(inputs[:, :4])
        for k in range(4, 9):
            output, state = model.step(inputs[:, k], state)
        assert relative_error(output, model(inputs)) < 1e-12


@pytest.mark.parametrize("kind", [{"channels": 40}, {"vocabulary": 40}], ids=["pixels", "tokens"])
def test_weights_start_with_a_variance_of_one_over_their_inputs(kind: dict[str, int]) -> None:
    torch.manual_seed(0)
    model = linrnn.Model(linrnn.ModelConfig(channels=kind.get("channels"), vocabulary=kind.get("vocabulary"), **WIDE))
    for name, inputs in (("encoder", 40), ("blocks.0.mixing", 200), ("head", 200)):
        parameters = dict(model.get_submodule(name).named_parameters())
        assert float(parameters.pop("weight").detach().std()) == pytest.approx(inputs**-0.5, rel=0.05)
        assert not any(bias.any() for bias in parameters.values())


def test_depth_zero_is_encoder_and_head() -> None:
    model = _model(channels=3, depth=0)
    inputs = _inputs({"channels": 3})
    assert relative_error(model(inputs), model.head(model.encoder(inputs).mean(1))) < 1e-6


@pytest.mark.parametrize("documents", [1, 2])
def test_padding_is_read_like_any_step_where_all_are_pooled(documents: int) -> None:
    """What padding holds makes no difference: it is symbol 0, and counts in the norm and in the mean."""
    model = _model(vocabulary=7, pooling="all", documents=documents).double()
    shape = (3, 9) if documents == 1 else (3, 2, 9)
    tokens, lengths = torch.randint(1, 7, shape), torch.randint(1, 9, shape[:-1])
    padding = torch.arange(9) >= lengths.unsqueeze(-1)
    expected = model(tokens.masked_fill(padding, 0))
    assert torch.equal(model(tokens, lengths=lengths), expected)
    over_real = _model(vocabulary=7, documents=documents).double()
    over_real.load_state_dict(model.state_dict())
    assert relative_error(over_real(tokens, lengths=lengths), expected) > 1e-3
    assert not packs(model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
@pytest.mark.parametrize("core", [*CORES, pytest.param({"options": {"bidirectional": True}}, id="bidirectional")])
@NORMS
def test_padding_changes_nothing(kind: dict[str, int], pooling: str, core: dict[str, Any], norm: str) -> None:
    """Neither what it holds nor how much there is: outputs, gradients and statistics stay."""
    model = _model(**kind, **core, norm=norm, pooling=pooling).double()
    inputs = _inputs(kind, torch.float64)
    padding = torch.arange(9) >= LENGTHS.unsqueeze(1)
    results = []
    for poison, extra in ((0, 0), (-1, 0), (1000, 5), (float("nan") if "channels" in kind else 10**9, 2)):
        twin = copy.deepcopy(model)
        padded = inputs.clone()
        padded[padding] = poison
        padded = torch.cat([padded, padded.new_full((4, extra, *inputs.shape[2:]), poison)], dim=1)
        output = twin(padded, lengths=LENGTHS)
        if pooling == "none":
            output = torch.where(padding.unsqueeze(-1), 0, output[:, :9])
        results.append([output, *gradients(twin, output.square().sum()).values(), *twin.buffers()])
    for other in results[1:]:
        assert all(relative_error(a, b) < 1e-10 for a, b in zip(other, results[0], strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_sequence_is_classified_as_if_alone(kind: dict[str, int]) -> None:
    model = _model(**kind).double().eval()
    inputs = _inputs(kind, torch.float64)
    together = model(inputs, lengths=LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        assert relative_error(together[b : b + 1], model(inputs[b : b + 1, :length])) < 1e-10


def test_dropout_masks_are_tied_over_time() -> None:
    torch.manual_seed(0)
    block: Any = _model(channels=3, dropout=0.5, d_model=64).blocks[0]
    ones = torch.ones(8, 20, 64)
    dropped = block._drop(ones)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert float((dropped == 0).float().mean()) == pytest.approx(0.5, abs=0.1)
    assert not torch.equal(dropped[0], dropped[1])


def test_dropout_in_the_block() -> None:
    """With an output mask tied over time, a feature is either left as it came in, at all steps, or at none."""
    torch.manual_seed(0)
    model = _model(channels=3, dropout=0.5, depth=1, d_model=32, norm="layer")
    x = torch.randn(4, 20, 32)
    changed = (model.blocks[0](x)[0] != x).float().mean(1)
    assert set(changed.unique().tolist()) == {0.0, 1.0}
    assert 0.3 < float(changed.mean()) < 0.7
    assert (model.eval().blocks[0](x)[0] != x).all()


def test_dropout_before_the_mixing() -> None:
    """half_glu gates h itself, so a feature dropped there is left at all steps: the two masks make a quarter pass."""
    torch.manual_seed(0)
    model = _model(channels=3, dropout=0.5, depth=1, d_model=128, norm="layer", mixing="half_glu")
    x = torch.randn(8, 5, 128)
    changed = (model.blocks[0](x)[0] != x).float().mean(1)
    assert float(changed.mean()) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("lengths", [None, torch.tensor([[9, 4], [1, 9], [0, 3]])], ids=["whole", "lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_retrieval_by_hand(kind: dict[str, int], lengths: Tensor | None) -> None:
    model = _model(**kind, documents=2).double().eval()
    inputs = torch.stack([_inputs(kind, torch.float64)[:3] for _ in range(2)], dim=1)
    single = _model(**kind, classes=6).double().eval()
    single.load_state_dict(model.state_dict(), strict=False)
    single.head = nn.Identity()  # the pooled features of one document
    a, b = (single(inputs[:, i], lengths=None if lengths is None else lengths[:, i]) for i in range(2))
    hidden = torch.cat([a, b, a - b, a * b], dim=1) @ _parameter(model, "head.0.weight").T
    hidden = F.gelu(hidden + _parameter(model, "head.0.bias"))
    expected = hidden @ _parameter(model, "head.2.weight").T + _parameter(model, "head.2.bias")
    assert relative_error(model(inputs, lengths=lengths), expected) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("core", CORES)
@NORMS
def test_step_equals_parallel(kind: dict[str, int], core: dict[str, Any], norm: str) -> None:
    pooled = _model(**kind, **core, norm=norm).double().eval()
    _shake(pooled)
    stepwise = _model(**kind, **core, norm=norm, pooling="none").double().eval()
    stepwise.load_state_dict(pooled.state_dict())
    inputs = _inputs(kind, torch.float64)
    states = [model.initial_state(4) for model in (pooled, stepwise)]
    whole = stepwise(inputs)
    for k in range(9):
        y, states[0] = pooled.step(inputs[:, k], states[0])
        assert relative_error(y, pooled(inputs[:, : k + 1])) < 1e-10  # the prediction from the prefix
        y, states[1] = stepwise.step(inputs[:, k], states[1])
        assert relative_error(y, whole[:, k]) < 1e-10


@settings(deadline=None, max_examples=20)
@given(
    cuts=st.lists(st.integers(0, 9), max_size=4),
    kind=st.sampled_from([{"channels": 3}, {"vocabulary": 7}, {"channels": 3, "vocabulary": 7}]),
    core=st.sampled_from(["lru", "rnn"]),
    pooling=st.sampled_from(["mean", "all", "last", "none"]),
)
def test_chunks_equal_the_whole(cuts: list[int], kind: dict[str, int], core: str, pooling: str) -> None:
    model = _model(**kind, core=core, pooling=pooling).double().eval()
    inputs = _inputs(kind, torch.float64)
    cuts, outputs, state = sorted(cuts), [], None
    for start, stop in zip([0, *cuts], [*cuts, 9], strict=True):
        output, state = model.chunk(inputs[:, start:stop], state)
        outputs.append(output)
        if pooling != "none" and stop:
            assert relative_error(output, model(inputs[:, :stop])) < 1e-10
    if pooling == "none":
        assert relative_error(torch.cat(outputs, dim=1), model(inputs)) < 1e-10


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_chunks_with_lengths(pooling: str) -> None:
    """Sequences that end in different chunks: those that have ended keep their prediction."""
    model = _model(channels=3, pooling=pooling).double().eval()
    inputs = _inputs({"channels": 3}, torch.float64)
    state = None
    for start, stop in ((0, 3), (3, 7), (7, 9)):
        output, state = model.chunk(inputs[:, start:stop], state, lengths=(LENGTHS - start).clamp(0, stop - start))
    assert relative_error(output, model(inputs, lengths=LENGTHS)) < 1e-10


@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
def test_training_by_chunks_with_layer_norm(pooling: str) -> None:
    model = _model(channels=3, norm="layer", pooling=pooling).double()
    x = torch.randn(4, 9, 3, dtype=torch.float64)
    first, state = model.chunk(x[:, :5])
    second, _ = model.chunk(x[:, 5:], state)
    whole = model(x)
    output = torch.cat([first, second], dim=1) if pooling == "none" else second
    assert relative_error(output, whole) < 1e-12
    found, expected = gradients(model, output.square().sum()), gradients(model, whole.square().sum())
    assert all(relative_error(found[name], expected[name]) < 1e-10 for name in expected)
    cut = state.detach()
    assert not any(part.requires_grad for part in (*cut.cores, cut.total, cut.steps))
    again, _ = model.chunk(x[:, 5:], cut)
    assert again.equal(second)
    truncated = gradients(model, again.square().sum())
    assert not truncated["encoder.weight"].equal(found["encoder.weight"])


@pytest.mark.parametrize("documents", [1, 2])
def test_lengths_as_a_list(documents: int) -> None:
    model = _model(channels=3, documents=documents).eval()
    x = torch.randn(4, *[2] * (documents - 1), 9, 3)
    lengths: Any = [9, 0, 4, 1] if documents == 1 else [[9, 2], [0, 1], [4, 4], [1, 9]]
    expected = model(x, lengths=torch.tensor(lengths))
    assert model(x, lengths=lengths).equal(expected)
    assert model(x, lengths=np.array(lengths)).equal(expected)
    assert model(x[:0], lengths=lengths[:0] if documents == 1 else torch.zeros(0, 2).long()).shape == (0, 4)
    assert accelerate(model)(x, lengths=lengths).equal(expected)
    if documents == 1:
        assert model.chunk(x, lengths=lengths)[0].equal(model.chunk(x, lengths=torch.tensor(lengths))[0])
        core = model.blocks[0].core
        u = torch.randn(4, 9, 6)
        assert core(u, lengths=lengths)[0].equal(core(u, lengths=torch.tensor(lengths))[0])


def test_pooling_of_the_last_step() -> None:
    """The output at the last valid step; a sequence without steps is classified from zeros. Steps and chunks agree."""
    model, stepwise = (_model(channels=3, pooling=pooling).double().eval() for pooling in ("last", "none"))
    stepwise.load_state_dict(model.state_dict())
    inputs = _inputs({"channels": 3}, torch.float64)
    outputs = stepwise(inputs, lengths=LENGTHS)
    expected = torch.stack(
        [outputs[b, n - 1] if n else _parameter(model, "head.bias") for b, n in enumerate(LENGTHS.tolist())]
    )
    assert relative_error(model(inputs, lengths=LENGTHS), expected) < 1e-10
    state = model.initial_state(4)
    for k in range(9):
        output, state = model.step(inputs[:, k], state)
        assert relative_error(output, stepwise(inputs)[:, k]) < 1e-10
    none = torch.zeros(4, dtype=torch.int64)
    assert torch.equal(model.chunk(inputs, state, lengths=none)[0], output), "without new steps it keeps the last"


def test_numbers_and_tokens_in_half_precision() -> None:
    """Tokens come as float32, which holds their ids; bfloat16 would round 301 to 302."""
    model = _model(channels=1, vocabulary=302).bfloat16().eval()
    tokens = torch.tensor([[300.0], [301.0]])
    inputs = torch.stack([torch.zeros(2, 1), tokens], dim=-1)
    one, other = model.encoder(inputs)
    assert not torch.equal(one, other)
    assert model(inputs).dtype == torch.bfloat16
    assert {name for name, _ in model.encoder.named_parameters()} == {"numbers.weight", "numbers.bias", "tokens.weight"}


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
def test_packed_sequences_equal_the_separate_ones(bidirectional: bool) -> None:
    model = _model(vocabulary=7, pooling="none", options={"bidirectional": bidirectional}).double().eval()
    inputs = _inputs({"vocabulary": 7})[:1]
    resets = torch.zeros(1, 9, dtype=torch.bool)
    resets[0, [0, 2, 7]] = True
    expected = torch.cat([model(inputs[:, a:b]) for a, b in ((0, 2), (2, 7), (7, 9))], dim=1)
    assert relative_error(model(inputs, resets=resets), expected) < 1e-10


def test_recurrent_parameters() -> None:
    model = _model(channels=3)
    expected = {f"blocks.{i}.core.{n}" for i in (0, 1) for n in ("nu_log", "theta_log", "gamma_log", "B")}
    ids = {id(p) for p in model.recurrent_parameters()}
    assert {name for name, p in model.named_parameters() if id(p) in ids} == expected


@pytest.mark.parametrize("kind", KINDS)
@NORMS
def test_compiled_equals_eager(kind: dict[str, int], norm: str) -> None:
    model = _model(**kind, norm=norm)
    inputs = _inputs(kind)
    torch.compiler.reset()
    results = []
    for compiled in (False, True):
        twin = copy.deepcopy(model)
        run: Any = torch.compile(twin, fullgraph=True, backend="aot_eager") if compiled else twin
        output = run(inputs, lengths=LENGTHS)
        results.append([output, *gradients(twin, output.square().sum()).values(), *twin.buffers()])
    assert all(relative_error(a, b) < 1e-4 for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("core", CORES)
@NORMS
def test_autocast(kind: dict[str, int], core: dict[str, Any], norm: str) -> None:
    model = _model(**kind, **core, norm=norm)
    inputs = _inputs(kind)
    expected = copy.deepcopy(model)(inputs, lengths=LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(inputs, lengths=LENGTHS)
        assert relative_error(output, expected) < 0.1
        _, state = model.eval().chunk(inputs)
        assert model.step(inputs[:, 0], state)[0].isfinite().all()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert all(g.isfinite().all() for g in gradients(model, output.float().square().sum()).values())


@pytest.mark.parametrize("row", [None, 1024], ids=["padded", "packed"])
def test_autocast_leaves_means_alone(row: int | None) -> None:
    """Where the features are exact in half precision, so is the output: means of long sequences differ by little."""
    model = linrnn.Model(linrnn.ModelConfig(vocabulary=4, classes=3, d_model=8, d_state=1, depth=0))
    model.encoder.load_state_dict({"weight": torch.randn(4, 8).bfloat16().float()})
    tokens, lengths = torch.randint(4, (3, 500)), torch.tensor([500, 3, 321])
    with torch.autocast("cpu", torch.bfloat16):
        packed: Any = {} if row is None else {"packed_length": row}
        output = accelerate(model)(tokens, lengths=lengths, **packed)
    torch.testing.assert_close(output, model(tokens, lengths=lengths))


@pytest.mark.parametrize("kind", KINDS)
def test_whole_model_in_bfloat16(kind: dict[str, int]) -> None:
    model = _model(**kind).bfloat16()
    inputs = _inputs(kind, torch.bfloat16)
    assert model(inputs, lengths=LENGTHS).dtype == torch.bfloat16
    output, state = model.eval().chunk(inputs)
    assert output.dtype == model.step(inputs[:, 0], state)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"channels": 3, "mixing": "half_glu", "norm": "layer", "dropout": 0.1}, id="pixels"),
        pytest.param({"vocabulary": 7, "documents": 2}, id="retrieval"),
        pytest.param({"vocabulary": 7, "options": {"r_min": 0.9, "bidirectional": True}}, id="options"),
        pytest.param({"vocabulary": 7, "core": "rnn", "pooling": "none"}, id="rnn"),
    ],
)
def test_save_and_load(tmp_path: Path, config: dict[str, Any]) -> None:
    model = _model(**config)
    inputs = _inputs(config)
    if model.config.documents == 2:
        inputs = torch.stack([inputs, inputs.flip(0)], dim=1)
    model(inputs)  # so that the running statistics are not the initial ones
    model.save(tmp_path / "a" / "b")
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["config.json", "model.safetensors"]
    loaded = linrnn.load(tmp_path / "a" / "b")
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(inputs), model.eval()(inputs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["float64", "bfloat16"])
def test_loading_keeps_the_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    model = _model(channels=3).to(dtype).eval()
    inputs = _inputs({"channels": 3}, dtype)
    model.save(tmp_path)
    assert torch.equal(linrnn.load(tmp_path)(inputs), model(inputs))


def test_saving_over_an_older_model(tmp_path: Path) -> None:
    _model(channels=3).save(tmp_path)
    newer = _model(channels=3, d_model=8).eval()
    newer.save(tmp_path)
    inputs = _inputs({"channels": 3})
    assert torch.equal(linrnn.load(tmp_path)(inputs), newer(inputs))


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_files(tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _model(channels=3).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(OSError, match="no space left"):
        _model(channels=3).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_config_that_cannot_be_written_leaves_the_old_files(tmp_path: Path) -> None:
    _model(channels=3).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TypeError):
        _model(channels=3, options={"dtype": torch.float64}).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_missing_file(tmp_path: Path) -> None:
    """The file of the weights is a whole model; one by others needs the config."""
    model = _model(channels=3).eval()
    model.save(tmp_path)
    (tmp_path / "config.json").unlink()
    inputs = _inputs({"channels": 3})
    assert torch.equal(linrnn.load(tmp_path)(inputs), model(inputs))
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match=r"folder: expected config\.json in"):
        linrnn.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"folder: expected model\.safetensors in"):
        linrnn.load(tmp_path)


def test_weights_with_a_bit_flipped(tmp_path: Path) -> None:
    _model(channels=3).save(tmp_path)
    weights = tmp_path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ValueError, match=r"folder: expected the weights of config.json in .*: the checksum differs"):
        linrnn.load(tmp_path)


def test_weights_written_by_others_have_no_checksum(tmp_path: Path) -> None:
    model = _model(channels=3).eval()
    model.save(tmp_path)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    inputs = _inputs({"channels": 3})
    assert torch.equal(linrnn.load(tmp_path)(inputs), model(inputs))


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights(tmp_path: Path, keep: int) -> None:
    _model(channels=3).save(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"folder: expected the weights of config.json in .*model\.safetensors"):
        linrnn.load(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, 2]", "7", '{"hidden_size": 768}', '{"channels": 3}', "\x00"],
    ids=["empty", "cut", "list", "number", "foreign", "incomplete", "binary"],
)
def test_a_foreign_config(tmp_path: Path, text: str) -> None:
    _model(channels=3).save(tmp_path)
    (tmp_path / "config.json").write_text(text)
    expected = r"folder: expected (a model's config in .*config\.json, got values that fit no model|.* with \w+ = )"
    with pytest.raises(ValueError, match=expected):
        linrnn.load(tmp_path)
    safetensors.torch.save_file(_model(channels=3).state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"folder: expected a model's config in .*, got values that fit no model"):
        linrnn.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"d_model": 7}, {"depth": 1}, {"depth": 3}, {"core": "rnn"}, {"channels": 2}, {"options": {"normalize": False}}],
    ids=lambda change: "-".join(change),
)
def test_a_config_that_does_not_fit_the_weights(tmp_path: Path, change: dict[str, Any]) -> None:
    _model(channels=3).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=rf"folder: expected .* with {next(iter(change))} = .*, got "):
        linrnn.load(tmp_path)
    safetensors.torch.save_file(_model(channels=3).state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"folder: expected the weights of config\.json"):
        linrnn.load(tmp_path)


@pytest.mark.parametrize("format", [0, 1])
def test_older_formats_are_read(tmp_path: Path, format: int) -> None:
    model = _model(channels=3).eval()
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["format"] == 1
    if format == 0:  # before there were versions
        del config["format"]
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    inputs = _inputs({"channels": 3})
    assert torch.equal(linrnn.load(tmp_path)(inputs), model(inputs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"format": 2, "memory": 7, "extra": None},
            "format: expected at most 1, got 2, with the unknown fields 'extra', 'memory'; a newer",
        ),
        ({"memory": 7}, "format: expected at most 1, got 1, with the unknown fields 'memory'; a newer"),
        ({"format": 2}, "format: expected at most 1, got 2; a newer linrnn may read it: pip install --upgrade linrnn"),
        ({"format": "new"}, "format: expected at most 1, got 'new'"),
    ],
)
def test_newer_formats_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    model = _model(channels=3)
    saved.write_model(tmp_path, model.config.to_dict() | change, model.state_dict())
    with pytest.raises(ValueError, match=message):
        linrnn.load(tmp_path)


def test_tied_weights_are_saved_once_and_tied_again(tmp_path: Path) -> None:
    model = _model(vocabulary=7, classes=7, pooling="none")
    model.head.weight = model.encoder.weight
    model.blocks[1].mixing = model.blocks[0].mixing
    model.eval().save(tmp_path)
    names = safetensors.torch.load_file(tmp_path / "model.safetensors").keys()
    assert model.state_dict().keys() - names == {"head.weight", "blocks.1.mixing.weight", "blocks.1.mixing.bias"}
    loaded = linrnn.load(tmp_path)
    assert loaded.head.weight is loaded.encoder.weight
    assert loaded.blocks[1].mixing.weight is loaded.blocks[0].mixing.weight
    assert len(list(loaded.parameters())) == len(list(model.parameters()))
    inputs = _inputs({"vocabulary": 7})
    assert torch.equal(loaded(inputs), model(inputs))
    _model(vocabulary=7, classes=7, pooling="none").save(tmp_path)
    assert linrnn.load(tmp_path).head.weight is not linrnn.load(tmp_path).encoder.weight


def test_a_parameter_that_is_another_by_name_only_is_refused(tmp_path: Path) -> None:
    model = _model(vocabulary=7, classes=7, pooling="none")
    model.head.weight = model.encoder.weight
    for shared in ('{"head.weight": "nowhere"}', '{"head.weight": 7}', "[]", '{"head.weight": "head.bias"}'):
        model.save(tmp_path)
        path = tmp_path / "model.safetensors"
        weights = safetensors.torch.load_file(path)
        safetensors.torch.save_file(weights, path, {"shared": shared})
        with pytest.raises(ValueError, match="folder: expected"):
            linrnn.load(tmp_path)


def test_the_weights_are_plain_safetensors(tmp_path: Path) -> None:
    model = _model(channels=3)
    model.save(tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        pytest.param({"channels": None}, ValueError, "channels, vocabulary: expected at least one", id="no-input"),
        pytest.param({"channels": 0}, ValueError, "channels: expected at least 1, got 0", id="channels"),
        pytest.param({"classes": 0}, ValueError, "classes: expected at least 1, got 0", id="classes"),
        pytest.param({"d_model": -1}, ValueError, "d_model: expected at least 1, got -1", id="d_model"),
        pytest.param({"d_state": 0}, ValueError, "d_state: expected at least 1, got 0", id="d_state"),
        pytest.param({"depth": -1}, ValueError, "depth: expected at least 0, got -1", id="depth"),
        pytest.param({"d_model": 2.5}, TypeError, "d_model: expected an integer, got 2.5", id="float"),
        pytest.param({"depth": True}, TypeError, "depth: expected an integer, got True", id="bool"),
        pytest.param({"classes": "4"}, TypeError, "classes: expected an integer, got '4'", id="text"),
        pytest.param({"core": "gru2"}, ValueError, "core: expected 'lru' or .*, got 'gru2'", id="core"),
        pytest.param(
            {"mixing": "mlp"}, ValueError, "mixing: expected 'glu' or 'half_glu' or 'half_glu2', got 'mlp'", id="mixing"
        ),
        pytest.param({"norm": "rms"}, ValueError, "norm: expected 'batch' or 'layer', got 'rms'", id="norm"),
        pytest.param(
            {"pooling": "max"},
            ValueError,
            "pooling: expected 'mean' or 'all' or 'last' or 'none', got 'max'",
            id="pooling",
        ),
        pytest.param({"documents": 3}, ValueError, "documents: expected 1 or 2, got 3", id="documents"),
        pytest.param({"dropout": 1.0}, ValueError, "dropout: expected a probability .*, got 1.0", id="dropout"),
        pytest.param({"dropout": -0.1}, ValueError, "dropout: expected a probability .*, got -0.1", id="negative"),
        pytest.param({"dropout": float("nan")}, ValueError, "dropout: expected .*, got nan", id="dropout-nan"),
        pytest.param(
            {"documents": 2, "pooling": "none"},
            ValueError,
            "pooling: expected 'mean', 'all' or 'last' for two documents",
            id="two-unpooled",
        ),
    ],
)
def test_config_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.ModelConfig(**{"channels": 3, **SMALL, **change})


def test_config_is_frozen() -> None:
    config = linrnn.ModelConfig(channels=3, **SMALL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.depth = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param({"r_max": 2.0}, ValueError, "r_max: expected .*, got 2.0", id="value"),
        pytest.param({"radius": 2.0}, TypeError, "radius", id="name"),
    ],
)
def test_wrong_options_of_the_core(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _model(channels=3, options=options)


@pytest.mark.parametrize(
    ("config", "call", "error", "message"),
    [
        pytest.param(
            {"channels": 3},
            {"inputs": torch.zeros(2, 9)},
            ValueError,
            r"inputs: expected shape .*got \(2, 9\)",
            id="rank",
        ),
        pytest.param(
            {"channels": 3},
            {"inputs": torch.zeros(2, 9, 4)},
            ValueError,
            r"inputs: expected .*channels = 3, got \(2, 9, 4\)",
            id="width",
        ),
        pytest.param(
            {"channels": 3},
            {"inputs": torch.zeros(2, 9, 3).long()},
            TypeError,
            "inputs: expected torch.float32, as the parameters, got torch.int64",
            id="integer-pixels",
        ),
        pytest.param(
            {"channels": 3},
            {"inputs": torch.zeros(2, 9, 3).double()},
            TypeError,
            "inputs: expected torch.float32.*got torch.float64",
            id="double-pixels",
        ),
        pytest.param(
            {"channels": 3},
            {"inputs": torch.zeros(2, 9, 3, device="meta")},
            ValueError,
            "inputs: expected .*cpu.*meta",
            id="device",
        ),
        pytest.param(
            {"vocabulary": 7},
            {"inputs": torch.zeros(2, 9)},
            TypeError,
            "inputs: expected integer tokens .*, got torch.float32",
            id="float-tokens",
        ),
        pytest.param(
            {"vocabulary": 7},
            {"inputs": torch.zeros(2, 9, 1).long()},
            ValueError,
            r"inputs: expected shape \(batch, length\), got \(2, 9, 1\)",
            id="token-rank",
        ),
        pytest.param(
            {"vocabulary": 7},
            {"inputs": torch.zeros(2, 9).long(), "lengths": torch.tensor([10, 1])},
            ValueError,
            "lengths: expected from 0 to 9, .*got 10",
            id="too-long",
        ),
        pytest.param(
            {"vocabulary": 7},
            {"inputs": torch.zeros(2, 9).long(), "lengths": torch.tensor([-1, 1])},
            ValueError,
            "lengths: expected from 0 to 9, .*got -1",
            id="negative-length",
        ),
        pytest.param(
            {"vocabulary": 7},
            {"inputs": torch.zeros(2, 9).long(), "lengths": torch.tensor([1.0, 1.0])},
            TypeError,
            "lengths: expected integers, got torch.float32",
            id="float-lengths",
        ),
        pytest.param(
            {"vocabulary": 7},
            {"inputs": torch.zeros(2, 9).long(), "resets": torch.zeros(2, 9).bool()},
            ValueError,
            r"resets: expected None, or a model of one document with pooling='none', got \(2, 9\)",
            id="pooled-resets",
        ),
        pytest.param(
            {"vocabulary": 7, "pooling": "none"},
            {"inputs": torch.zeros(2, 9).long(), "resets": torch.zeros(2, 9)},
            TypeError,
            "resets: expected torch.bool, got torch.float32",
            id="float-resets",
        ),
        pytest.param(
            {"vocabulary": 7, "pooling": "none"},
            {"inputs": torch.zeros(2, 9).long(), "resets": torch.zeros(2, 8).bool()},
            ValueError,
            r"resets: expected shape \(2, 9\).*got \(2, 8\)",
            id="resets-shape",
        ),
        pytest.param(
            {"vocabulary": 7, "documents": 2},
            {"inputs": torch.zeros(2, 9).long()},
            ValueError,
            r"inputs: expected two documents, .*got \(2, 9\)",
            id="one-document",
        ),
        pytest.param(
            {"vocabulary": 7, "documents": 2},
            {"inputs": torch.zeros(2, 3, 9).long()},
            ValueError,
            r"inputs: expected two documents, .*got \(2, 3, 9\)",
            id="three-documents",
        ),
        pytest.param(
            {"vocabulary": 7, "documents": 2},
            {"inputs": torch.zeros(2, 2, 9).long(), "lengths": torch.tensor([9, 9])},
            ValueError,
            r"lengths: expected shape \(2, 2\) .*got \(2,\)",
            id="lengths-of-one-document",
        ),
        pytest.param(
            {"vocabulary": 7, "documents": 2},
            {"inputs": torch.zeros(2, 2, 9).long(), "resets": torch.zeros(2, 2, 9).bool()},
            ValueError,
            "resets: expected None, or a model of one document",
            id="resets-of-two-documents",
        ),
    ],
)
def test_call_errors(config: dict[str, Any], call: dict[str, Tensor], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _model(**config)(**call)


@pytest.mark.parametrize("token", [7, -1])
def test_a_real_token_outside_the_vocabulary(token: int) -> None:
    with pytest.raises(ValueError, match=f"inputs: expected tokens from 0 to 6, got {token}"):
        _model(vocabulary=7)(torch.tensor([[0, token, 2]]))


def test_streaming_in_training_mode_is_refused() -> None:
    model = _model(channels=3)
    with pytest.raises(RuntimeError, match=r"step: expected a model in eval mode: call model\.eval\(\) first"):
        model.step(torch.zeros(2, 3), model.initial_state(2))
    with pytest.raises(RuntimeError, match=r"chunk: expected a model in eval mode, or a model with norm='layer': call"):
        model.chunk(torch.zeros(2, 5, 3))


def test_streaming_a_bidirectional_model_is_refused() -> None:
    model = _model(channels=3, options={"bidirectional": True}).eval()
    with pytest.raises(ValueError, match="bidirectional"):
        model.initial_state(2)
    with pytest.raises(ValueError, match="bidirectional"):
        model.chunk(torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match="bidirectional"):
        model.step(torch.zeros(2, 3), _model(channels=3).initial_state(2))


def test_streaming_two_documents_is_refused() -> None:
    model = _model(vocabulary=7, documents=2).eval()
    with pytest.raises(ValueError, match="chunk: expected a model of one document, got one of two"):
        model.chunk(torch.zeros(2, 9).long())
    with pytest.raises(ValueError, match="step: expected a model of one document, got one of two"):
        model.step(torch.zeros(2).long(), _model(vocabulary=7).initial_state(2))


@pytest.mark.parametrize("inputs", [torch.zeros(2, 5, 3), torch.zeros(2, 4)], ids=["rank", "width"])
def test_step_inputs(inputs: Tensor) -> None:
    model = _model(channels=3).eval()
    with pytest.raises(ValueError, match=r"inputs: expected shape \(batch, channels\) with channels = 3, got"):
        model.step(inputs, model.initial_state(2))


@pytest.mark.parametrize("kind", KINDS)
@NORMS
def test_torch_func(kind: dict[str, int], norm: str) -> None:
    """Gradients of each sequence against a loop, and tangents against differences."""
    model = _model(**kind, norm=norm).double().eval()
    _shake(model)
    inputs = _inputs(kind, torch.float64)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    direction = {name: torch.randn_like(parameter) for name, parameter in parameters.items()}

    def loss(parameters: dict[str, Tensor], inputs: Tensor, lengths: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(model, parameters, (inputs,), {"lengths": lengths})
        return output.pow(3).sum()

    def shifted(h: float) -> Tensor:
        return loss({name: x + h * direction[name] for name, x in parameters.items()}, inputs, LENGTHS)

    samples = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(
        parameters, inputs.unsqueeze(1), LENGTHS.unsqueeze(1)
    )
    for i in range(4):
        alone = gradients(model, model(inputs[i : i + 1], lengths=LENGTHS[i : i + 1]).pow(3).sum())
        for name, truth in alone.items():
            assert relative_error(samples[name][i], truth) < 1e-10
    tangent = torch.func.jvp(lambda x: loss(x, inputs, LENGTHS), (parameters,), (direction,))[1]
    assert relative_error(tangent, (shifted(1e-6) - shifted(-1e-6)) / 2e-6) < 1e-6


def _model(**config: Any) -> linrnn.Model:
    return linrnn.Model(linrnn.ModelConfig(**SMALL | config))


def _inputs(kind: dict[str, Any], dtype: torch.dtype = torch.float32) -> Tensor:
    """Four sequences of nine steps."""
    tokens = torch.randint(7, (4, 9)) if "vocabulary" in kind else None
    numbers = torch.randn(4, 9, 3, dtype=dtype) if "channels" in kind else None
    if tokens is None or numbers is None:
        given = numbers if tokens is None else tokens
        assert given is not None
        return given
    return torch.cat([numbers, tokens.to(dtype).unsqueeze(-1)], dim=-1)


def _parameter(model: nn.Module, name: str) -> Tensor:
    return model.get_parameter(name).detach()


@torch.no_grad()
def _shake(model: linrnn.Model) -> None:
    """Norms that do something, as after training."""
    for norm in (*(block.norm for block in model.blocks), *((model.last_norm,) if model.last_norm else ())):
        for x in (*norm.parameters(), *norm.buffers()):
            if x.is_floating_point():
                x.copy_(torch.rand_like(x) + 0.5)
