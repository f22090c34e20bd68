"""The fused kernels against their formulas, and the fused block against the plain one."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linrnn import norm
from linrnn.fast import fused
from linrnn.fast.kernels import elementwise as gpu
from linrnn.fast.kernels import ops
from tests.fast.helpers import FORMULAS, moments
from tests.helpers import relative_error

MASKS = pytest.mark.parametrize("masks", ["for sequences", "for steps", "none"])
MASKED = pytest.mark.parametrize("masked", [True, False], ids=["dropout", "no dropout"])
SHAPES = pytest.mark.parametrize("shape", [(2, 150, 64), (3, 7, 70), (2, 0, 64)], ids=str)


def mask_for(x: Tensor, masked: bool) -> Tensor | None:
    return F.dropout(torch.ones_like(x[:, :1]), 0.3) if masked else None


def mask_and_segment(x: Tensor, masks: str) -> tuple[Tensor | None, Tensor | None]:
    """Dropout's factors, and for packed sequences segment of 5 rows of them each step has."""
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
    mask, segment = mask_and_segment(y, masks)
    grad = torch.randn(shape)
    expected = fused.gelu_skip(inputs[0], inputs[1] if skip else None, inputs[2], inputs[3], mask, segment)
    wanted = torch.autograd.grad((grad * expected).sum(), inputs, allow_unused=True, materialize_grads=True)
    arguments = (y, x if skip else None, d, e, mask, segment)
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
    mask, segment = mask_and_segment(x, masks)
    grad = torch.randn(shape)
    expected = fused.glu_skip(inputs[0], inputs[1], inputs[2], inputs[3] if half else None, mask, segment)
    wanted = torch.autograd.grad((grad * expected).sum(), inputs, allow_unused=True, materialize_grads=True)
    out = gpu.glu_skip(x, g, b, h if half else None, mask, segment)
    assert relative_error(out, expected) < 1e-6
    valid = None if masks == "none" else torch.rand(shape[:2]) < 0.7
    same, near, sums = gpu.glu_skip_moments(x, g, b, h if half else None, mask, segment, valid)
    assert torch.equal(same, out)
    assert relative_error(near, out.flatten(0, 1)[:1].sum(0)) < 1e-6
    assert relative_error(sums, moments(out.double(), near, None, valid)) < 1e-5
    grad_g, grad_b, grad_h = gpu.glu_skip_backward(grad, g, b, h if half else None, mask, segment)
    assert relative_error(grad_g, wanted[1]) < 1e-6
    assert relative_error(grad_b, wanted[2]) < 1e-5
    assert not half or relative_error(grad_h, wanted[3]) < 1e-6


@SHAPES
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_moments_in_the_interpreter(shape: tuple[int, int, int], padded: bool) -> None:
    x, near = 30 + torch.randn(shape), 30 + torch.randn(shape[2])
    valid = torch.rand(shape[:2]) < 0.7 if padded else None
    chosen = x.double() if valid is None else x.double()[valid]
    apart = (chosen - near).reshape(-1, shape[2])
    for came, power in zip(gpu.moments(x, near, valid), (1, 2), strict=True):
        assert relative_error(came, apart.pow(power).sum(0)) < 1e-5
    near, formulas, steps = fused.moments(x.double(), valid)
    assert int(steps) == len(chosen.reshape(-1, shape[2]))
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
    mask, segment = mask_and_segment(x, masks)
    valid = torch.rand(shape[:2]) < 0.7 if padded else None
    of_out, of_sums = torch.randn(shape), torch.randn(2, 70)
    near = None
    answers = []
    for exact in (False, True):
        leaves = [(t.double() if exact else t.clone()).requires_grad_() for t in (x, g, b, h)]
        glu = (*leaves[:3], leaves[3] if half else None, mask, segment)
        if exact:
            assert near is not None
            out = FORMULAS["glu_skip"](*glu)
            sums = moments(out, near, None, valid)
        else:
            out, near, known = ops.glu_skip_moments(*glu, valid)
            sums = ops.moments(out, near, known.detach(), valid)
            assert torch.equal(sums, known)
        loss = (of_out * out).sum() + (of_sums * sums).sum()
        answers.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    for came, expected in zip(*answers, strict=True):
        assert relative_error(came, expected) < 1e-5


def test_the_operator_with_moments_is_registered_correctly() -> None:
    x, g, b = (torch.randn(*size, requires_grad=True) for size in ((2, 9, 64), (2, 9, 128), (128,)))
    torch.library.opcheck(ops.glu_skip_moments, (x, g, b, None, None, None, torch.rand(2, 9) < 0.7))
    known, valid = torch.randn(2, 64), torch.rand(2, 9) < 0.7
    for sums in (None, known):
        torch.library.opcheck(ops.moments, (x, x.detach()[0, 0], sums, valid))


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
    """Beyond the order of sums; one is wider than H, segment gives it more rows than steps."""
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
    valid = torch.rand(3, 333, device="cuda") < 0.7
    cases += [(_spread, (x, each)) for each in (valid, None)]
    cases += [(_glu_and_spread, (x, g, b, None, mask, None, each)) for each in (valid, None)]
    cases += [(_glu_and_spread, (x, g[..., :192].contiguous(), b[:192].clone(), h, mask, None, valid))]
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


def _glu_and_spread(*arguments: Any) -> Tensor:
    given = [*arguments, norm.valid_steps(arguments[0], arguments[-1])]
    out, known = fused.glu_skip_moments(*given)
    return out + fused.moments(out, arguments[-1], known).sums.sum(0) / 999


def _spread(x: Tensor, valid: Tensor | None) -> Tensor:
    return fused.moments(x, valid).sums.sum(0) / 999 * torch.ones_like(x)


@pytest.mark.gpu
def test_the_operators_are_registered_correctly() -> None:
    x, g, d = (
        torch.randn(2, 40, 64, device="cuda"),
        torch.randn(2, 40, 128, device="cuda"),
        torch.randn(64, device="cuda"),
    )
    torch.library.opcheck(ops.gelu_skip, (x, x.clone(), d, d.clone(), None, None))
    torch.library.opcheck(ops.glu_skip, (x, g, torch.randn(128, device="cuda"), None, None, None))
    torch.library.opcheck(ops.glu_skip_moments, (x, g, torch.randn(128, device="cuda"), None, None, None, None))
