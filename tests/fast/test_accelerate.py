"""What `accelerate` gives is the function of the model: outputs, gradients and running statistics, in float64."""

import copy
import itertools
import logging
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

import linrnn
from linrnn import recipes
from linrnn.fast import Accelerated, accelerate, blocks, fused, packs, reason
from linrnn.fast.kernels import ops
from linrnn.fast.packing import packed_length
from tests.fast.helpers import FORMULAS
from tests.helpers import gradients, relative_error

LENGTHS = torch.tensor([16, 3, 9, 1])
TOKENS = ("listops", "text", "retrieval", "recall")
FLOAT64: dict[str, Any] = {"dtype": torch.float64}


def small(recipe: str, **changes: Any) -> linrnn.Model:
    """The model of a recipe with few features, in float64, and with dropout."""
    settings = recipes.get(recipe).model
    fields: dict[str, Any] = {"vocabulary": 9} if recipe in TOKENS else {"channels": 3 if recipe == "scifar" else 1}
    fields |= {"options": {**settings.options, **changes.pop("options", {})}, "mixing": settings.mixing}
    fields["options"].pop("counters", None)
    fields |= {"classes": 4, "d_model": 6, "d_state": 5, "depth": 3, "dropout": 0.3} | changes
    if recipe == "retrieval":
        fields["documents"] = 2
    torch.manual_seed(0)
    return linrnn.Model(linrnn.ModelConfig(**fields)).double()


def batch(model: linrnn.Model, padded: bool = False) -> tuple[Tensor, Tensor | None]:
    config, documents = model.config, () if model.config.documents == 1 else (2,)
    lengths = LENGTHS.view(-1, *[1 for _ in documents]).expand(4, *documents).contiguous() if padded else None
    if config.channels is not None:
        return torch.randn(4, *documents, 16, config.channels, **FLOAT64), lengths
    assert config.vocabulary is not None
    return torch.randint(config.vocabulary, (4, *documents, 16)), lengths


def everything(model: linrnn.Model, run: Any, *inputs: Any, **options: Any) -> list[Tensor]:
    """Output, gradients and running statistics."""
    torch.manual_seed(1)  # the same dropout
    output = run(*inputs, **options)
    return [output, *gradients(model, output.square().sum()).values(), *model.buffers()]


def assert_equal(
    model: linrnn.Model, padded: bool, tolerance: float = 1e-9, packed: int | None = None, **how: Any
) -> None:
    inputs, lengths = batch(model, padded)
    twin = copy.deepcopy(model)
    fast = Accelerated(twin, **{"fuse": True, **how})
    more = {} if packed is None else {"packed_length": packed}
    expected = everything(model, model, inputs, lengths=lengths)
    came = everything(twin, fast, inputs, lengths=lengths, **more)
    for one, other in zip(came, expected, strict=True):
        assert relative_error(one, other) < tolerance


@pytest.mark.parametrize("recipe", recipes.names())
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("c", [1, 4])
def test_every_recipe(recipe: str, padded: bool, c: int) -> None:
    assert_equal(small(recipe), padded, compile=False, chunk=c)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("mixing", ["glu", "half_glu"])
@pytest.mark.parametrize(
    ("parameterization", "normalize"),
    [*itertools.product(["stable_exp", "exp", "real_imag"], [False, True]), ("stable_exp", "fixed")],
)
def test_every_option(
    bidirectional: bool, mixing: Literal["glu", "half_glu"], parameterization: str, normalize: bool | str
) -> None:
    options = {"bidirectional": bidirectional, "parameterization": parameterization, "normalize": normalize}
    for c in (1, 4):
        assert_equal(small("scifar", mixing=mixing, options=options), False, compile=False, chunk=c)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("c", [1, 4])
@pytest.mark.parametrize("recipe", ["scifar", "text", "retrieval"])
def test_both_directions_over_padding(recipe: str, c: int, dropout: float, training: bool) -> None:
    model = small(recipe, options={"bidirectional": True}, dropout=dropout).train(training)
    assert_equal(model, True, compile=False, chunk=c)
    if dropout == 0 and packs(model):
        assert_equal(model, True, packed=56, compile=False, chunk=c)
        assert_equal(model, True, packed=56, compile=False, fuse=False)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("recipe", ["scifar", "text", "retrieval"])
@pytest.mark.parametrize("pooling", ["last", "all"])
def test_other_pooling(recipe: str, padded: bool, pooling: str) -> None:
    assert_equal(small(recipe, pooling=pooling), padded, compile=False)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("recipe", ["scifar", "text"])
def test_an_output_at_each_step(recipe: str, bidirectional: bool, padded: bool) -> None:
    """Fused too; outputs at padding are arbitrary."""
    model = small(recipe, pooling="none", options={"bidirectional": bidirectional})
    inputs, lengths = batch(model, padded)
    valid = torch.ones(inputs.shape[:2]) if lengths is None else (torch.arange(16) < lengths.unsqueeze(1))
    results = []
    for fuse in (False, True):
        twin = copy.deepcopy(model)
        fast = Accelerated(twin, compile=False, fuse=fuse, chunk=4)

        def run(inputs: Tensor, lengths: Tensor | None, fast: Accelerated = fast) -> Tensor:
            output: Tensor = fast(inputs, lengths=lengths)
            return output * valid.unsqueeze(-1)

        with patch.object(blocks, "run_block", wraps=blocks.run_block) as fused_block:
            fast._block = fused_block
            results.append(everything(twin, run, inputs, lengths))
        assert fused_block.call_count == (3 if fuse else 0)
    for one, other in zip(*results, strict=True):
        assert relative_error(one, other) < 1e-9


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_the_last_norm(padded: bool) -> None:
    """Of the mean over whole sequences most gradients would be zero but for rounding: the norm takes the mean away."""
    pooling = "mean" if padded else "last"
    assert_equal(small("text", last_norm=True, pooling=pooling), padded, compile=False)
    model = small("text", last_norm=True, dropout=0.0)
    assert_equal(model, True, packed=56, compile=False)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_numbers_and_tokens(padded: bool) -> None:
    model = small("scifar", vocabulary=5)
    numbers, lengths = batch(model, padded)
    inputs = torch.cat([numbers, torch.randint(5, (*numbers.shape[:2], 1)).double()], dim=-1)
    results: list[list[Tensor]] = []
    for twin in (copy.deepcopy(model), copy.deepcopy(model)):
        run = Accelerated(twin, compile=False, fuse=True, chunk=4) if results else twin
        results.append(everything(twin, run, inputs, lengths=lengths))
    for one, other in zip(*results, strict=True):
        assert relative_error(one, other) < 1e-9


@pytest.mark.parametrize("core", ["lru", "s5"])
@pytest.mark.parametrize("c", [1, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
def test_packed(core: str, c: int, dropout: float, bidirectional: bool) -> None:
    """Without dropout, whose masks are drawn in another number for packed batches, all is equal."""
    options = {"bidirectional": bidirectional}
    model = small("text", options=options, dropout=dropout) if core == "lru" else _s5(dropout, options)
    if dropout == 0:
        assert_equal(model, True, packed=56, compile=False, chunk=c)
    inputs, lengths = batch(model, True)
    first, second = (
        everything(twin := copy.deepcopy(model), Accelerated(twin, compile=False, fuse=fuse, chunk=c), inputs,
                   lengths=lengths, packed_length=56)
        for fuse in (False, True)
    )  # fmt: skip
    for one, other in zip(first, second, strict=True):
        assert relative_error(one, other) < 1e-9


def _s5(dropout: float, options: dict[str, Any]) -> linrnn.Model:
    fields: dict[str, Any] = {"core": "s5", "options": options, "dropout": dropout}
    return linrnn.Model(linrnn.ModelConfig(vocabulary=9, classes=4, d_model=6, d_state=4, depth=2, **fields)).double()


@pytest.mark.parametrize("recipe", ["text", "pathfinder", "pathx"])
@pytest.mark.parametrize("c", [1, 4])
def test_through_the_operators(recipe: str, c: int) -> None:
    """With the kernels replaced by their formulas: what each hands to the next is right."""
    with patch.object(fused, "available", lambda x: True), patch.multiple(ops, **FORMULAS):
        assert_equal(small(recipe), False, compile=False, chunk=c)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU itself")
@pytest.mark.parametrize(
    ("recipe", "packed", "bidirectional"),
    [
        ("text", True, False),
        ("text", True, True),
        ("retrieval", False, False),
        ("retrieval", False, True),
        ("pathfinder", False, True),
        ("pathx", False, True),
    ],
)
def test_with_the_kernels_in_the_interpreter(recipe: str, packed: bool, bidirectional: bool) -> None:
    """All kernels of a step together, in float32, with dropout unless the masks are drawn in another number."""
    exact = small(recipe, dropout=0.0 if packed else 0.3, options={"bidirectional": bidirectional})
    inputs, lengths = batch(exact, recipe in TOKENS)
    model = copy.deepcopy(exact).float()
    expected = everything(exact, exact, inputs, lengths=lengths)
    more: dict[str, int] = {"packed_length": 56} if packed else {}
    with patch("linrnn.recurrence.backend.triton", lambda device: True):
        fast = Accelerated(model, compile=False, chunk=4)
        assert reason(model) is None
        inputs = inputs.float() if inputs.is_floating_point() else inputs
        came = everything(model, fast, inputs, lengths=lengths, **more)
    for one, other in zip(came, expected, strict=True):
        assert relative_error(one, other) < 1e-4


def test_only_the_first_norm_takes_a_pass_over_memory() -> None:
    calls: list[str] = []

    def noted(name: str) -> Any:
        def formula(*arguments: Any) -> Any:
            calls.append(name if name != "moments" or arguments[2] is None else "known moments")
            return FORMULAS[name](*arguments)

        return formula

    model = small("pathfinder")
    fast = Accelerated(model, compile=False, fuse=True)
    with patch.object(fused, "available", lambda x: True), patch.multiple(ops, **{n: noted(n) for n in FORMULAS}):
        fast(batch(model)[0])
        assert calls == ["moments", *["known moments", "gelu_skip", "glu_skip_moments"] * 3]
        calls.clear()
        model.eval()
        fast(batch(model)[0])
        assert calls == ["gelu_skip", "glu_skip"] * 3


@pytest.mark.parametrize("core", ["s4d", "s4"])
def test_blocks_of_other_cores_share_one_graph(monkeypatch: pytest.MonkeyPatch, core: str) -> None:
    from torch._dynamo.testing import CompileCounter

    config = linrnn.ModelConfig(vocabulary=5, classes=2, d_model=4, d_state=4, depth=3, core=core)
    model, tokens, graphs = linrnn.Model(config), torch.randint(5, (2, 16)), CompileCounter()
    expected = model(tokens)
    monkeypatch.setattr("linrnn.fast.accelerated._compiles", lambda model: True)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=graphs))
    torch.testing.assert_close(accelerate(model)(tokens), expected)
    assert graphs.frame_count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside the compiler
@pytest.mark.parametrize(
    ("recipe", "layout", "bidirectional"),
    [
        ("text", "whole", False),
        ("text", "packed", False),
        ("text", "packed", True),
        ("retrieval", "padded", False),
        ("retrieval", "padded", True),
        ("pathfinder", "whole", True),
        ("pathx", "whole", True),
    ],
)
def test_compiled(recipe: str, layout: str, bidirectional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three small graphs, of which one serves every block but the first of pixels, whose encoder is folded in."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    monkeypatch.setattr(
        "linrnn.fast.accelerated.torch.compile", partial(torch.compile, backend=backend, fullgraph=True)
    )
    with patch.object(fused, "available", lambda x: True), patch.multiple(ops, **FORMULAS):
        model = small(recipe, dropout=0.0, options={"bidirectional": bidirectional})
        assert_equal(model, layout != "whole", packed=56 if layout == "packed" else None, chunk=2)
    assert len(graphs) == 3


@pytest.mark.parametrize(
    ("recipe", "bidirectional"), [("text", False), ("text", True), ("scifar", True), ("pathfinder", True)]
)
def test_half_precision(recipe: str, bidirectional: bool) -> None:
    """Within rounding of the exact model, and no further from it than the model under autocast."""
    options = {"max_phase": 0.3, "bidirectional": bidirectional}
    exact = small(recipe, dropout=0.0, d_model=32, options=options)
    inputs, lengths = batch(exact, recipe != "pathfinder")
    truth = everything(exact, exact, inputs, lengths=lengths)
    errors = []
    for fast in (False, True):
        model = copy.deepcopy(exact).float()
        model.load_state_dict(exact.state_dict())
        run = Accelerated(model, compile=False, fuse=True) if fast else model
        with torch.autocast("cpu", torch.bfloat16):
            came = everything(model, run, inputs.float() if inputs.is_floating_point() else inputs, lengths=lengths)
        errors.append([relative_error(a.double(), b.double()) for a, b in zip(came, truth, strict=True)])
    for plain, accelerated in zip(*errors, strict=True):
        assert accelerated < max(0.05, 2 * plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "need an NVIDIA GPU and Triton, and the model is on cpu"),
        ({"core": "rnn", "options": {}}, "only LRUs and S5 are fused, and the core is 'rnn'"),
        ({"norm": "layer"}, "only batch norm folds"),
    ],
)
def test_the_reason_in_words(change: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture) -> None:
    config: dict[str, Any] = {"channels": 1, "classes": 2, "d_model": 4, "d_state": 3, "pooling": "none"}
    model = linrnn.Model(linrnn.ModelConfig(**config | change))
    assert words in str(reason(model))
    with caplog.at_level(logging.INFO):
        assert accelerate(model) is model
    assert words in caplog.text


def test_blocks_that_differ_are_not_fused() -> None:
    model: Any = small("scifar")
    model.blocks[1].core = linrnn.LRU(6, 5, parameterization="exp", **FLOAT64)
    assert "the blocks differ" in str(reason(model))


@pytest.mark.parametrize("packed", [None, 56], ids=["padded", "packed"])
@pytest.mark.parametrize("c", [1, 4])
def test_a_scan_from_the_end_does_not_read_padding(c: int, packed: int | None) -> None:
    """Whatever the inputs hold there."""
    model = small("text", options={"bidirectional": True}, vocabulary=None, channels=3)
    inputs, lengths = batch(model, True)
    assert lengths is not None
    results = []
    for garbage in (0.0, float("nan")):
        for sequence, length in zip(inputs, lengths.tolist(), strict=True):
            sequence[length:] = garbage
        fast = Accelerated(copy.deepcopy(model), compile=False, fuse=True, chunk=c)
        results.append(everything(fast.model, fast, inputs, lengths=lengths, packed_length=packed))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_what_does_not_fit_goes_through_the_model() -> None:
    """Resets, and a time for each step."""
    config = linrnn.ModelConfig(channels=1, classes=2, d_model=4, d_state=3, depth=2, pooling="none")
    model, x = linrnn.Model(config), torch.randn(2, 9, 1)
    resets = torch.rand(2, 9) < 0.3
    fast, dt = Accelerated(model, fuse=True, compile=False), torch.rand(2, 9) + 0.5
    assert torch.equal(fast(x, resets=resets), model(x, resets=resets))
    assert torch.equal(fast(x, dt=dt), model(x, dt=dt))
    assert not torch.equal(model(x, dt=dt), model(x))
    for options in ({"resets": resets}, {"dt": dt}):
        with pytest.raises(ValueError, match="packed_length: expected None, or a batch without resets and dt"):
            fast(x, packed_length=16, **options)


def test_the_parameters_are_the_models_own() -> None:
    model = small("text")
    fast = accelerate(model)
    assert isinstance(fast, Accelerated)
    assert packs(model)
    assert {id(p) for p in fast.parameters()} == {id(p) for p in model.parameters()}
    with torch.no_grad():
        model.head.bias.fill_(7)  # type: ignore[operator]
    inputs, lengths = batch(model.eval(), True)
    assert float(fast(inputs, lengths=lengths, packed_length=56).detach().mean()) == pytest.approx(7, abs=3)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("both", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("case", ["pixels", "tokens", "documents", "packed", "half_glu", "s5"])
def test_on_a_gpu(case: str, both: bool, dtype: torch.dtype, compile: bool) -> None:
    """Outputs and gradients of the kernels against float64 on the CPU."""
    torch.manual_seed(0)
    tokens = case in ("tokens", "documents", "packed")
    fields: dict[str, Any] = {"vocabulary": 9} if tokens else {"channels": 3}
    fields |= {"documents": 2} if case == "documents" else {}
    fields |= {"mixing": "half_glu"} if case == "half_glu" else {}
    fields |= {"core": "s5"} if case == "s5" else {}
    options: dict[str, Any] = {"bidirectional": both}
    if case != "s5":
        options |= {"r_min": 0.5, "r_max": 0.99}
    config = linrnn.ModelConfig(classes=4, d_model=128, d_state=64, depth=3, options=options, **fields)
    model = linrnn.Model(config)
    shape = (8, 2, 512) if case == "documents" else (8, 512)
    inputs = torch.randint(9, shape) if tokens else torch.randn(*shape, 3)
    lengths = torch.randint(1, 513, shape[:-1]) if tokens else None
    exact = copy.deepcopy(model).double()
    truth = exact(inputs if tokens else inputs.double(), lengths=lengths)
    expected = gradients(exact, truth.square().sum())
    on_gpu = copy.deepcopy(model).cuda()
    fast = accelerate(on_gpu, compile=compile)
    assert isinstance(fast, Accelerated)
    assert reason(on_gpu) is None
    packed: dict[str, int] = {}
    if case == "packed":
        assert lengths is not None
        packed["packed_length"] = int(packed_length(lengths)) + 64
    half = dtype == torch.bfloat16
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        given = None if lengths is None else lengths.cuda()
        output = fast(inputs.cuda(), lengths=given, **packed)
    came = gradients(on_gpu, output.float().square().sum())
    assert relative_error(output.float().cpu(), truth) < (0.05 if half else 1e-4)
    plain = copy.deepcopy(model).cuda()
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        usual = gradients(plain, plain(inputs.cuda(), lengths=given).float().square().sum())
    for name, gradient in expected.items():
        far, near = (relative_error(found[name].cpu(), gradient) for found in (came, usual))
        assert far < max(0.1 if half else 2e-3, 2.5 * near), name


def test_every_parameter_is_trained() -> None:
    model = small("pathx")
    output = Accelerated(model, fuse=True, compile=False, chunk=4)(batch(model)[0])
    output.square().sum().backward()
    assert all(isinstance(p, nn.Parameter) and p.grad is not None for p in model.parameters())
