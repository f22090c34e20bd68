"""The matrices over chunks, and the norm folded into them, against the layer step by step."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linrnn
from linrnn.fast.chunks import chunk_size, core_weights
from linrnn.fast.fold import Folded, apply, fold, two_products
from linrnn.recurrence import backend
from linrnn.spectrum import LRUParameterization
from tests.helpers import Operations, gradients, oracle, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def folded(layer: linrnn.LRU, scale: Tensor, shift: Tensor, c: int, dtype: torch.dtype = torch.float64) -> Folded:
    return fold(core_weights([layer], c, dtype)[0], scale, shift)


def output(core: Folded, x: Tensor, offsets: Tensor | None = None) -> Tensor:
    """The layer's output, step by step."""
    y = (apply(core, x, offsets) + core.offset).view(x.shape)
    return y if core.skip is None else y + core.skip * x


def vectors(**options: Any) -> tuple[Tensor, Tensor]:
    """A scale and a shift."""
    scale, shift = torch.randn(2, 6, **FLOAT64, **options)
    return scale, shift


@pytest.mark.parametrize("c", [1, 2, 4, 16])
@pytest.mark.parametrize("parameterization", ["stable_exp", "exp", "real_imag"])
@DIRECTIONS
def test_the_papers_equation(c: int, parameterization: LRUParameterization, bidirectional: bool) -> None:
    layer = linrnn.LRU(
        6, 5, r_min=0.5, r_max=0.99, parameterization=parameterization, bidirectional=bidirectional, **FLOAT64
    )
    u = torch.randn(2, 48, 6, **FLOAT64)
    expected, _ = oracle(layer, u)
    assert relative_error(output(folded(layer, torch.ones(6), torch.zeros(6), c), u), expected) < 1e-12


@pytest.mark.parametrize("c", [1, 2, 4, 8])
@pytest.mark.parametrize("offsets", [None, [0, 8, 40, 48]], ids=["batch", "packed"])
@DIRECTIONS
def test_outputs_and_gradients_with_a_norm_folded_in(c: int, offsets: list[int] | None, bidirectional: bool) -> None:
    layer = linrnn.LRU(6, 5, r_min=0.5, r_max=0.99, bidirectional=bidirectional, **FLOAT64)
    x = torch.randn(1, 48, 6, **FLOAT64, requires_grad=True)
    scale, shift = (t.requires_grad_() for t in vectors())
    resets = torch.zeros(1, 48, dtype=torch.bool)
    resets[0, offsets[:-1] if offsets else [0]] = True
    seed = torch.randn(1, 48, 6, **FLOAT64)
    came = output(folded(layer, scale, shift, c), x, None if offsets is None else torch.tensor(offsets) // c)
    expected, _ = layer(scale * x + shift, resets=resets)
    assert relative_error(came, expected) < 1e-12
    found, truth = (gradients(layer, (seed * y).sum(), x, scale, shift) for y in (came, expected))
    for name, gradient in truth.items():
        assert relative_error(found[name], gradient) < 1e-11, name


@pytest.mark.parametrize("c", [1, 4])
@DIRECTIONS
def test_an_encoder_folded_in(c: int, bidirectional: bool) -> None:
    layer, (scale, shift) = linrnn.LRU(6, 5, bidirectional=bidirectional, **FLOAT64), vectors()
    v, matrix = torch.randn(2, 16, 3, **FLOAT64), torch.randn(6, 3, **FLOAT64)
    core = fold(core_weights([layer], c, torch.float64)[0], scale, shift, matrix)
    y = (apply(core, v) + core.offset).view(2, 16, 6)
    x = v @ matrix.T
    expected, _ = layer(scale * x + shift)
    assert relative_error(y if core.skip is None else y + core.skip * x, expected) < 1e-12


@pytest.mark.parametrize(
    ("core", "options"),
    [
        (linrnn.LRU, {}),
        (linrnn.LRU, {"parameterization": "exp", "normalize": False}),
        (linrnn.LRU, {"parameterization": "real_imag"}),
        (linrnn.S5, {}),
    ],
    ids=["LRU", "exp", "real_imag", "S5"],
)
@DIRECTIONS
@pytest.mark.parametrize("c", [1, 2, 4])
def test_weights_of_layers_made_together(
    core: type[linrnn.LRU], options: dict[str, Any], bidirectional: bool, c: int
) -> None:
    """The weights of each layer are the definition's, and so are the gradients."""
    layers = nn.ModuleList(core(3, 5, bidirectional=bidirectional, **options, **FLOAT64) for _ in range(3))
    made = core_weights(list(layers), c, torch.float64)  # type: ignore[arg-type]
    came = [part for weights in made for part in (weights.lam, weights.input_weight, weights.state_weight)]
    expected = [part for layer in layers for part in defined(layer, c)]
    seeds = [torch.randn_like(part) for part in expected]
    D = torch.cat([layer.D for layer in layers])  # type: ignore[misc]  # for c = 1 it is not in these weights
    results = []
    for parts in (came, expected):
        loss = torch.stack([(seed * part).sum() for seed, part in zip(seeds, parts, strict=True)]).sum()
        results.append([*parts, *gradients(layers, loss + D.sum()).values()])
    for one, other in zip(*results, strict=True):
        assert one.shape == other.shape
        assert relative_error(one, other) < 1e-12


def defined(layer: Any, c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Λ^c, and what multiplies the inputs and the states of a chunk, in complex numbers and block by block."""
    planes = layer.system()
    lam, B, D, steps = torch.complex(*planes.lam), torch.complex(*planes.B), torch.diag(planes.D), range(c)
    Cs = torch.complex(*planes.C.movedim(1, 0)).conj().split(len(lam), dim=1)

    def K(i: int, j: int) -> Tensor:
        total = D if i == j else torch.zeros_like(D)
        for C, d in zip(Cs, (i - j, j - i), strict=False):
            total = total + (C * lam**d @ B).real if d >= 0 else total
        return total

    into = [torch.cat([lam[:, None] ** (c - 1 - j) * B for j in steps], dim=1)]
    into.append(torch.cat([lam[:, None] ** j * B for j in steps], dim=1))
    input_weight = [torch.cat([matrix.real, matrix.imag]) for matrix in into[: len(Cs) if c > 1 else 1]]
    inside = [torch.cat([K(i, j) for j in steps], dim=1) for i in steps if c > 1]
    out = [torch.cat([Cs[0] * lam ** (i + 1 if c > 1 else 0) for i in steps])]
    out += [torch.cat([C * lam ** (c - i if c > 1 else 0) for i in steps]) for C in Cs[1:]]
    state_weight = torch.cat([torch.cat([matrix.real, -matrix.imag], dim=1) for matrix in out], dim=1)
    return torch.view_as_real(lam**c).T, torch.cat([*input_weight, *inside]), state_weight


@pytest.mark.parametrize("c", [1, 4])
def test_weights_of_many_layers_take_as_many_operations_as_those_of_one(c: int) -> None:
    names = []
    for depth in (1, 6):
        layers = [linrnn.LRU(3, 5) for _ in range(depth)]
        with Operations() as operations:
            core_weights(layers, c, torch.float32)
        names.append(operations.names)
    assert names[0] == names[1]


@pytest.mark.parametrize(("c", "bidirectional"), [(1, False), (4, False), (4, True)])
def test_the_gradient_of_a_shift_takes_no_pass_over_the_states(c: int, bidirectional: bool) -> None:
    """The scan's own gradient sums over the states."""
    layer = linrnn.LRU(6, 5, bidirectional=bidirectional, **FLOAT64)
    scale, shift = vectors()
    shift.requires_grad_()
    with Operations() as operations:
        y = apply(folded(layer, scale, shift, c), torch.randn(5, 16, 6, **FLOAT64))
        torch.autograd.grad(y.sum(), shift)
    scans = [name for name in operations.names if "scan" in name]
    assert scans == ["linrnn.affine_scan.default", "linrnn.affine_scan_backward.default"]


@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("c", [1, 4])
@DIRECTIONS
def test_half_precision(x_dtype: torch.dtype, c: int, bidirectional: bool) -> None:
    """The inputs may be wider than the products. Weights are made in the parameters' dtype, and rounded last."""
    layer, x = linrnn.LRU(6, 5, r_max=0.9, bidirectional=bidirectional), torch.randn(2, 16, 6)
    scale, shift = (t.float() for t in vectors())
    core = folded(layer, scale, shift, c, torch.bfloat16)
    y = apply(core, x.to(x_dtype))
    assert y.dtype == torch.bfloat16
    y = (y + core.offset).view(x.shape) + (0 if core.skip is None else core.skip * x)
    expected, _ = copy.deepcopy(layer).double()((scale * x + shift).double())
    assert relative_error(y, expected) < 2e-2
    gradients(layer, y.sum())


def test_the_size_of_a_chunk_divides_the_length_and_falls_with_the_width() -> None:
    sizes = [chunk_size(2048, H, 256) for H in (32, 64, 128, 256, 512, 2048)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert all(length % chunk_size(length, 64, 256) == 0 for length in range(1, 100))
    assert chunk_size(2047, 64, 256) == 1


@pytest.fixture
def tf32() -> Iterator[None]:
    """float32 is multiplied on tensor cores."""
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def test_both_directions_go_over_chunks_up_to_more_width() -> None:
    """In half precision, as timed on a GPU."""
    sizes = {(H, N): [chunk_size(1024, H, N, both) for both in (False, True)] for H, N in ((256, 192), (512, 384))}
    assert sizes == {(256, 192): [1, 2], (512, 384): [1, 1]}


def test_where_tensor_cores_multiply(tf32: None) -> None:
    gpu = torch.device("cuda")
    dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    assert [backend.on_tensor_cores(gpu, dtype) for dtype in dtypes] == [True, True, True, False]
    torch.set_float32_matmul_precision("highest")
    assert not backend.on_tensor_cores(gpu, torch.float32)
    assert not backend.on_tensor_cores(torch.device("cpu"), torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize(("H", "bidirectional"), [(128, False), (192, False), (128, True), (192, True), (256, True)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float32, 2e-3)], ids=str)
@pytest.mark.usefixtures("tf32")
def test_on_a_gpu(H: int, bidirectional: bool, dtype: torch.dtype, tolerance: float) -> None:
    """Outputs and gradients against float64, with states that remember for a thousand steps."""
    layer = linrnn.LRU(H, 256, r_min=0.9, r_max=0.999, bidirectional=bidirectional)
    u, weights = torch.randn(4, 2048, H), torch.randn(4, 2048, H)
    exact = linrnn.LRU(H, 256, bidirectional=bidirectional, **FLOAT64)
    exact.load_state_dict(layer.state_dict())
    c = chunk_size(2048, H, 256, bidirectional)
    assert c > 1
    layer = layer.cuda()
    core = folded(layer, torch.ones(H, device="cuda"), torch.zeros(H, device="cuda"), c, dtype)
    y = output(core, u.cuda().to(dtype))
    came = gradients(layer, (y.float() * weights.cuda()).sum())
    expected, _ = exact(u.double())
    assert relative_error(y.cpu(), expected) < tolerance
    for name, gradient in gradients(exact, (expected * weights).sum()).items():
        assert relative_error(came[name].cpu(), gradient) < 3 * tolerance, name


def test_two_products() -> None:
    matrices = [torch.randn(*size, **FLOAT64, requires_grad=True) for size in ((5, 3), (4, 3), (5, 7), (4, 7))]
    x, A, z, B = matrices
    assert relative_error(two_products(*matrices), x @ A.T + z @ B.T) < 1e-14
    torch.library.opcheck(two_products, tuple(matrices))
    assert torch.autograd.gradcheck(two_products, matrices)
    assert torch.autograd.gradgradcheck(two_products, matrices)
