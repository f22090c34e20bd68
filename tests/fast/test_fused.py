"""The fused kernels against their formulas, and the fused block against the plain one."""

import copy
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import linrnn
from linrnn.encoder import Numbers
from linrnn.fast import fused
from linrnn.fast.kernels import elementwise as gpu
from linrnn.fast.kernels import op
from tests.fast.helpers import FORMULAS, moments
from tests.helpers import gradients, relative_error

MASKS = pytest.mark.parametrize("masks", ["for sequences", "for steps", "none"])
MASKED = pytest.mark.parametrize("masked", [True, False], ids=["dropout", "no dropout"])
SHAPES = pytest.mark.parametrize("shape", [(2, 150, 64), (3, 7, 70), (2, 0, 64)], ids=str)


def mask_for(x: Tensor, masked: bool) -> Tensor | None:
    return F.dropout(torch.ones_like(x[:, :1]), 0.3) if masked else None


def mask_and_which(x: Tensor, masks: str) -> tuple[Tensor | None, Tensor | None]:
    """Dropout's factors, and for packed sequences which of 5 rows of them each step has."""
    if masks == "none" or x.shape[1] == 0:
        return None, None
    if masks == "for sequences":
        return mask_for(x, True), None
    return F.dropout(torch.ones(5, 1, x.shape[2]), 0.3), torch.randint(5, x.shape[:2])


@SHAPES
@MASKS
@pytest.mark.parametrize("skip", [True, False], ids=["with x", "without x"])
def test_gelu_kernels_in_the_interpreter(shape: tuple[int, int, int], masks: str, skip: bool) -> None:
    y, x, d, e = (2 * torch.randn(*size) for size in (shape, shape, shape[2:], shape[2:]))
    inputs = [t.double().requires_grad_() for t in (y, x, d, e)]
    mask, which = mask_and_which(y, masks)
    grad = torch.randn(shape)
    expected = fused.gelu_skip(inputs[0], inputs[1] if skip else None, inputs[2], inputs[3], mask, which)
    wanted = torch.autograd.grad((grad * expected).sum(), inputs, allow_unused=True, materialize_grads=True)
    arguments = (y, x if skip else None, d, e, mask, which)
    assert relative_error(gpu.gelu_skip(*arguments), expected) < 1e-6
    grad_y, (grad_e, grad_d) = gpu.gelu_skip_backward(grad, *arguments)
    assert relative_error(grad_y, wanted[0]) < 1e-6
    assert relative_error(grad_e, wanted[3]) < 1e-5
    if skip:
        assert relative_error(grad_d, wanted[2]) < 1e-5
        assert relative_error(grad_y * d, wanted[1]) < 1e-6


@SHAPES
@MASKS
@pytest.mark.parametrize("half", [False, True], ids=["glu", "half_glu"])
def test_glu_kernels_in_the_interpreter(shape: tuple[int, int, int], masks: str, half: bool) -> None:
    width = shape[2] * (1 if half else 2)
    x, g, b, h = (2 * torch.randn(*size) for size in (shape, (*shape[:2], width), (width,), shape))
    inputs = [t.double().requires_grad_() for t in (x, g, b, h)]
    mask, which = mask_and_which(x, masks)
    grad = torch.randn(shape)
    expected = fused.glu_skip(inputs[0], inputs[1], inputs[2], inputs[3] if half else None, mask, which)
    wanted = torch.autograd.grad((grad * expected).sum(), inputs, allow_unused=True, materialize_grads=True)
    out = gpu.glu_skip(x, g, b, h if half else None, mask, which)
    assert relative_error(out, expected) < 1e-6
    real = None if masks == "none" else torch.rand(shape[:2]) < 0.7
    same, near, sums = gpu.glu_skip_moments(x, g, b, h if half else None, mask, which, real)
    assert torch.equal(same, out)
    assert relative_error(near, out.flatten(0, 1)[:1].sum(0)) < 1e-6
    assert relative_error(sums, moments(out.double(), near, real)) < 1e-5
    grad_g, grad_b, grad_h = gpu.glu_skip_backward(grad, g, b, h if half else None, mask, which)
    assert relative_error(grad_g, wanted[1]) < 1e-6
    assert relative_error(grad_b, wanted[2]) < 1e-5
    assert not half or relative_error(grad_h, wanted[3]) < 1e-6


@SHAPES
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_moments_in_the_interpreter(shape: tuple[int, int, int], padded: bool) -> None:
    x, near = 30 + torch.randn(shape), 30 + torch.randn(shape[2])
    real = torch.rand(shape[:2]) < 0.7 if padded else None
    chosen = x.double() if real is None else x.double()[real]
    apart = (chosen - near).reshape(-1, shape[2])
    for came, power in zip(gpu.moments(x, near, real), (1, 2), strict=True):
        assert relative_error(came, apart.pow(power).sum(0)) < 1e-5
    near, *formulas = fused.moments(x.double(), real)
    apart = (chosen - near).reshape(-1, shape[2])
    for formula, power in zip(formulas, (1, 2), strict=True):
        assert relative_error(formula, apart.pow(power).sum(0)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("where", ["in x", "in the bias"])
def test_a_small_variance_beside_a_large_mean(dtype: torch.dtype, where: str) -> None:
    """Of what is stored: in bfloat16, whole numbers. Sums of squares in float32 would be wrong by a hundredth."""
    x, g = torch.randn(2, 500, 64), torch.randn(2, 500, 128)
    b = torch.zeros(128)
    if where == "in x":
        x += 1000
    else:
        b[:64] = 1000
        g[..., 64:] = 50  # open gates
    out, near, (total, square) = gpu.glu_skip_moments(x.to(dtype), g.to(dtype), b, None, None, None, None)
    steps = out.double().flatten(0, 1)
    assert relative_error(near + total / 1000, steps.mean(0)) < 1e-6
    assert relative_error(square / 1000 - (total / 1000).square(), steps.var(0, correction=0)) < 1e-5


@pytest.mark.parametrize("half", [False, True], ids=["glu", "half_glu"])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
@MASKS
def test_gradients_of_glu_and_its_moments(masks: str, padded: bool, half: bool) -> None:
    """Kernels and autograd together, against autograd through the formula in float64."""
    shape, width = (2, 21, 70), 70 if half else 140
    x, g, b, h = (torch.randn(*size) for size in (shape, (*shape[:2], width), (width,), shape))
    mask, which = mask_and_which(x, masks)
    real = torch.rand(shape[:2]) < 0.7 if padded else None
    of_out, of_sums = torch.randn(shape), torch.randn(2, 70)
    near = None
    answers = []
    for exact in (False, True):
        leaves = [(t.double() if exact else t.clone()).requires_grad_() for t in (x, g, b, h)]
        glu = (*leaves[:3], leaves[3] if half else None, mask, which)
        if exact:
            assert near is not None
            out = FORMULAS["glu_skip"](*glu)
            sums = moments(out, near, real)
        else:
            out, near, sums = op.glu_skip_moments(*glu, real)
        loss = (of_out * out).sum() + (of_sums * sums).sum()
        answers.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    for came, expected in zip(*answers, strict=True):
        assert relative_error(came, expected) < 1e-5


def test_the_operator_with_moments_is_registered_correctly() -> None:
    x, g, b = (torch.randn(*size, requires_grad=True) for size in ((2, 9, 64), (2, 9, 128), (128,)))
    torch.library.opcheck(op.glu_skip_moments, (x, g, b, None, None, None, torch.rand(2, 9) < 0.7))


@pytest.mark.parametrize("packed", [False, True], ids=["", "packed"])
def test_only_the_first_norm_takes_a_pass_of_its_own(packed: bool) -> None:
    config = linrnn.ModelConfig(channels=3, classes=4, d_model=6, d_state=8, depth=4)
    model = linrnn.Model(config).double()
    calls: list[str] = []

    def noted(name: str) -> Any:
        def formula(*arguments: Any) -> Any:
            calls.append(name)
            return FORMULAS[name](*arguments)

        return formula

    def run() -> list[str]:
        calls.clear()
        with (
            patch("linrnn.model.fused.available", lambda x: True),
            patch.multiple(op, **{n: noted(n) for n in FORMULAS}),
        ):
            model(
                torch.randn(2, 16, 3, dtype=torch.float64),
                lengths=torch.tensor([16, 9]) if packed else None,
                row=40 if packed else None,
            )
        return [name for name in calls if name != "gelu_skip"]

    assert run() == ["moments", *["glu_skip_moments"] * 3, "glu_skip"]
    model.eval()
    assert run() == ["glu_skip"] * 4


def test_far_from_zero_gelu_is_exact() -> None:
    z = torch.cat([torch.linspace(-12, 12, 481), torch.tensor([-1e4, 1e4, 0.0])]).view(1, 1, -1)
    zero, grad = torch.zeros(z.shape[2]), torch.ones_like(z)
    wide = z.double().requires_grad_()
    expected = F.gelu(wide)
    assert (gpu.gelu_skip(z, None, zero, zero, None, None) - expected).abs().max() < 2e-6
    came, _ = gpu.gelu_skip_backward(grad, z, None, zero, zero, None, None)
    assert (came - torch.autograd.grad(expected.sum(), wide)[0]).abs().max() < 2e-6


def test_gelu_in_half_precision_is_exact_to_1e_5() -> None:
    """Sums over one step are what is rounded to half precision, before it is."""
    z = torch.linspace(-12, 12, 1201).bfloat16().view(1, 1, -1)
    zero, grad = torch.zeros(z.shape[2]), torch.ones_like(z)
    wide = z.double().requires_grad_()
    expected = F.gelu(wide)
    _, (came, _) = gpu.gelu_skip_backward(grad, z, None, zero, zero, None, None)
    assert (came - torch.autograd.grad(expected.sum(), wide)[0].flatten()).abs().max() < 1.2e-5
    out = gpu.gelu_skip(z, None, zero, zero, None, None)
    assert ((out - expected).abs() <= 1.2e-5 + 2**-7 * expected.abs()).all()


@pytest.mark.parametrize("tile", [(64, 16, 64, 4, 1), (256, 8, 8, 4, 1), (128, 4, 32, 4, 3)], ids=str)
def test_no_tile_changes_what_comes_out(tile: tuple[int, ...]) -> None:
    """Beyond the order of sums; one is wider than H, which gives it more rows than steps."""
    y, x, grad = (torch.randn(2, 70, 128) for _ in range(3))
    g, b, d, e = (torch.randn(*size) for size in ((2, 70, 256), (256,), (128,), (128,)))

    def everything() -> list[Tensor]:
        gelu, glu = (y, x, d, e, None, None), (g, b, None, None, None)
        results = [gpu.gelu_skip(*gelu), *gpu.gelu_skip_backward(grad, *gelu)]
        results += [gpu.glu_skip(x, *glu), *gpu.glu_skip_backward(grad, *glu)[:2], gpu.moments(x, d, None)]
        return [*results, *gpu.glu_skip_moments(x, *glu, None)]

    expected = everything()
    with patch.dict(gpu.TILES, {kernel: gpu.Tile(*tile) for kernel in gpu.TILES}):
        came = everything()
    for a, wanted in zip(came, expected, strict=True):
        assert relative_error(a, wanted) < 1e-6


@pytest.mark.parametrize("kind", ["pixels", "pixels as a product", "tokens"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("mixing", ["glu", "half_glu"])
@pytest.mark.parametrize("lengths", [None, torch.tensor([16, 3, 9, 1])], ids=["whole", "padded"])
@pytest.mark.parametrize("c", [1, 4])
@pytest.mark.parametrize("packed", [False, True], ids=["", "packed"])
def test_the_fused_block_is_the_plain_one(
    kind: str, bidirectional: bool, mixing: Any, lengths: Tensor | None, c: int, packed: bool
) -> None:
    """Outputs, gradients and running statistics, by the formulas of the kernels in double precision."""
    options = {"bidirectional": bidirectional}
    reads: dict[str, Any] = {"vocabulary": 9} if kind == "tokens" else {"channels": 3}
    config = linrnn.ModelConfig(
        classes=4,
        d_model=6,
        d_state=8,
        depth=2,
        dropout=0.3,
        mixing=mixing,
        options=options,
        **reads,
    )
    model = linrnn.Model(config).double()
    inputs = torch.randint(9, (4, 16)) if kind == "tokens" else torch.randn(4, 16, 3, dtype=torch.float64)
    if packed and (bidirectional or lengths is None):
        pytest.skip("only causal models, and sequences with lengths, are packed")
    results = []
    for fast in (False, True):
        twin = copy.deepcopy(model)
        torch.manual_seed(1)  # the same dropout
        with (
            patch("linrnn.model.fused.available", lambda x, fast=fast: fast),
            patch.multiple(op, **FORMULAS),
            patch.object(linrnn.LRU, "_chunk", lambda self, u, fast=fast: c if fast else 1),
            patch.object(Numbers, "factors", _factors if fast and kind == "pixels as a product" else lambda *_: None),
        ):
            output = twin(inputs, lengths=lengths, row=56 if packed else None)
        results.append([output, *gradients(twin, output.square().sum()).values(), *twin.buffers()])
    for came, expected in zip(*results, strict=True):
        assert relative_error(came, expected) < 1e-9


def _factors(encoder: Numbers, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """As those in half precision."""
    return F.pad(inputs, (0, 1), value=1.0), torch.cat([encoder.weight, encoder.bias.unsqueeze(1)], dim=1)


def test_blocks_that_differ_are_not_fused() -> None:
    """Their weights cannot be made together."""
    config = linrnn.ModelConfig(channels=3, classes=4, d_model=6, d_state=8, depth=2)
    model: Any = linrnn.Model(config).double()
    inputs = torch.randn(4, 16, 3, dtype=torch.float64)
    with patch("linrnn.model.fused.available", lambda x: True):
        assert model._prepared(torch.randn(4, 16, 6), None) is not None
        model.blocks[1].core = linrnn.LRU(6, 8, parameterization="exp", dtype=torch.float64)
        output = model(inputs)
    assert relative_error(output, model(inputs)) < 1e-12


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@MASKED
def test_the_operators_on_a_gpu(dtype: torch.dtype, masked: bool) -> None:
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    x, y, h = (torch.randn(3, 333, 192, device="cuda", dtype=dtype) for _ in range(3))
    g = torch.randn(3, 333, 384, device="cuda", dtype=dtype)
    d, e, b = (torch.randn(n, device="cuda") for n in (192, 192, 384))
    mask = mask_for(x, masked)
    weights = torch.randn(3, 333, 192, device="cuda", dtype=torch.float64)
    cases: list[tuple[Any, tuple[Tensor | None, ...]]] = [
        (fused.gelu_skip, (y, x, d, e, mask)),
        (fused.gelu_skip, (y, None, d, e, mask)),
        (fused.glu_skip, (x, g, b, None, mask)),
        (fused.glu_skip, (x, g[..., :192].contiguous(), b[:192].clone(), h, mask)),
    ]
    real = torch.rand(3, 333, device="cuda") < 0.7
    cases += [(_spread, (x, each)) for each in (real, None)]
    cases += [(_glu_and_spread, (x, g, b, None, mask, None, each)) for each in (real, None)]
    cases += [(_glu_and_spread, (x, g[..., :192].contiguous(), b[:192].clone(), h, mask, None, real))]
    for function, arguments in cases:
        answers = []
        for exact in (False, True):
            tensors = [
                None if t is None else (t.double() if exact and t.is_floating_point() else t.clone()) for t in arguments
            ]
            leaves = [t.requires_grad_() for t in tensors[:4] if t is not None and t.is_floating_point()]
            out = function(*tensors)
            answers.append([out, *torch.autograd.grad((weights * out).sum(), leaves, allow_unused=True)])
        for came, expected in zip(*answers, strict=True):
            assert (came is None) == (expected is None)
            assert came is None or relative_error(came.cpu(), expected.cpu()) < tolerance


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
def test_pixels_compiled(c: int, bidirectional: bool) -> None:
    """In half precision, as on a GPU, by the formulas of the kernels."""
    with (
        patch("linrnn.model.fused.available", lambda x: True),
        patch("linrnn.encoder.compiled", lambda inputs: True),
        patch.multiple(op, **FORMULAS),
        patch.object(linrnn.LRU, "_chunk", lambda self, u: c),
    ):
        _compile_pixels(24, bidirectional, "cpu", "aot_eager")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize(("H", "bidirectional"), [(64, False), (64, True), (320, False), (320, True)])
def test_pixels_compiled_on_a_gpu(H: int, bidirectional: bool) -> None:
    _compile_pixels(H, bidirectional, "cuda", "inductor")


def _compile_pixels(H: int, bidirectional: bool, device: str, backend: str) -> None:
    """Where the first layer goes into the weights of the first block: outputs and gradients against float64."""
    options = {"bidirectional": bidirectional}
    config = linrnn.ModelConfig(channels=3, classes=4, d_model=H, d_state=32, depth=2, options=options)
    model, inputs = linrnn.Model(config), torch.randn(4, 256, 3)
    exact = copy.deepcopy(model).double()
    with patch("linrnn.model.fused.available", lambda x: False):
        truth = exact(inputs.double())
    model = model.to(device)
    torch._dynamo.reset()
    with torch.autocast(device, torch.bfloat16):
        output = torch.compile(model, fullgraph=True, backend=backend)(inputs.to(device))
    assert relative_error(output.cpu(), truth) < 0.02
    came, expected = gradients(model, output.square().sum()), gradients(exact, truth.square().sum())
    for name in ("encoder.weight", "encoder.bias", "blocks.0.norm.weight", "blocks.0.core.B", "blocks.0.core.C"):
        assert relative_error(came[name].cpu(), expected[name]) < 0.05, name


def _glu_and_spread(*arguments: Any) -> Tensor:
    out, (_, total, square) = fused.glu_skip_moments(*arguments)
    return out + (total / 999 + square / 999)


def _spread(x: Tensor, real: Tensor | None) -> Tensor:
    _, total, square = fused.moments(x, real)
    return (total / 999 + square / 999) * torch.ones_like(x)


@pytest.mark.gpu
def test_the_operators_are_registered_correctly() -> None:
    x, g, d = (
        torch.randn(2, 40, 64, device="cuda"),
        torch.randn(2, 40, 128, device="cuda"),
        torch.randn(64, device="cuda"),
    )
    torch.library.opcheck(op.gelu_skip, (x, x.clone(), d, d.clone(), None, None))
    torch.library.opcheck(op.glu_skip, (x, g, torch.randn(128, device="cuda"), None, None, None))
    torch.library.opcheck(op.glu_skip_moments, (x, g, torch.randn(128, device="cuda"), None, None, None, None))
