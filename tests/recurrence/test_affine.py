"""The scan of W·v + b as one operator against the product and the definition of the scan, in float64."""

import importlib.util
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from linrnn.recurrence import backend, op
from linrnn.recurrence.affine import affine_scan
from linrnn.recurrence.interface import Options
from linrnn.recurrence.op import carry_dtype
from tests.helpers import Operations
from tests.recurrence.helpers import defined, error

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("v", "weight", "bias", "lam", "initial")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}
TYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=[str(t).removeprefix("torch.") for t in TOLERANCE])
DIRECTIONS = pytest.mark.parametrize("directions", [0, 1, 2], ids=["scan", "exclusive", "exclusive, both directions"])
OFFSETS = [0, 13, 14, 18]


def arguments(
    batch: int,
    length: int,
    features: int,
    n: int,
    directions: int,
    dtype: torch.dtype,
    offsets: list[int] | None = None,
    device: str = "cpu",
) -> list[Any]:
    """Those of `affine_scan`; 0 directions for the inclusive scan."""
    each = (directions, 2, n) if directions else (2, n)
    rows, sequences = torch.Size(each).numel(), batch if offsets is None else len(offsets) - 1
    r, theta = torch.empty(n).uniform_(0.5, 0.99), torch.empty(n).uniform_(0, 6.28)
    numbers = [torch.randn(batch, length, features), torch.randn(rows, features) / features**0.5, torch.randn(rows)]
    carried = [torch.stack([r * theta.cos(), r * theta.sin()]), torch.randn(sequences, *each)]
    tensors = [t.to(device, dtype) for t in numbers] + [t.to(device, carry_dtype(dtype)) for t in carried]
    borders = None if offsets is None else torch.tensor(offsets, dtype=torch.int32, device=device)
    return [*(t.requires_grad_() for t in tensors), directions > 0, borders]


def definition(
    v: Tensor, weight: Tensor, bias: Tensor, lam: Tensor, initial: Tensor, exclusive: bool, offsets: Tensor | None
) -> list[Tensor]:
    u = F.linear(v, weight, bias).unflatten(-1, initial.shape[1:])
    return defined(u, lam, initial, Options(offsets=offsets, exclusive=exclusive))


def run(f: Any, given: list[Any]) -> list[Tensor]:
    """States, final, and the gradients of a fixed sum of their products with random numbers."""
    results = f(*given)
    seeds = torch.Generator().manual_seed(7)
    weights = [torch.randn(x.shape, generator=seeds).to(x.device) for x in results]
    loss = torch.stack([(w * x.to(w.device)).sum() for w, x in zip(weights, results, strict=True)]).sum()
    return [*results, *torch.autograd.grad(loss, given[:5], materialize_grads=True)]


def check(given: list[Any], f: Any = affine_scan) -> None:
    exact = [t.detach().double().cpu().requires_grad_() for t in given[:5]]
    rest = [given[5], None if given[6] is None else given[6].cpu()]
    names = ("states", "final", *(f"gradient of {name}" for name in NAMES))
    dtypes = [t.dtype for t in (given[0], given[4], *given[:5])]
    for name, dtype, came, truth in zip(names, dtypes, run(f, given), run(definition, [*exact, *rest]), strict=True):
        assert error(came.detach(), truth.detach()) < TOLERANCE[given[0].dtype], name
        assert came.dtype == dtype


@TYPES
@DIRECTIONS
@pytest.mark.parametrize(
    ("batch", "length", "offsets"),
    [(2, 7, None), (1, 18, OFFSETS), (2, 0, None), (0, 4, None)],
    ids=["batch", "packed", "no steps", "no sequences"],
)
def test_as_defined(dtype: torch.dtype, directions: int, batch: int, length: int, offsets: list[int] | None) -> None:
    check(arguments(batch, length, 4, 5, directions, dtype, offsets))


@needs_triton
@DIRECTIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("length", "n", "offsets"),
    [(19, 5, None), (18, 5, OFFSETS), (0, 5, None), (128, 64, None)],
    ids=["batch", "packed", "no steps", "several tiles"],
)
def test_by_the_kernels_for_gpus(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, directions: int, length: int, n: int, offsets: list[int] | None
) -> None:
    from linrnn.recurrence import triton_backend

    monkeypatch.setattr(backend, "kernels", lambda device: triton_backend)
    check(arguments(1, length, 4, n, directions, dtype, offsets, DEVICE))


@pytest.mark.gpu
@DIRECTIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(32, 512, 64, 192), (50, 256, 128, 384), (2, 3000, 32, 40)])
def test_at_real_sizes(dtype: torch.dtype, directions: int, shape: tuple[int, int, int, int]) -> None:
    check(arguments(*shape, directions, dtype, device="cuda"))


@DIRECTIONS
@pytest.mark.parametrize("offsets", [None, OFFSETS], ids=["batch", "packed"])
def test_as_an_operator(directions: int, offsets: list[int] | None) -> None:
    given = arguments(1, 18, 4, 5, directions, torch.float64, offsets, DEVICE)
    torch.library.opcheck(affine_scan, tuple(given))
    assert torch.autograd.gradcheck(lambda *tensors: affine_scan(*tensors, *given[5:]), given[:5])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
@DIRECTIONS
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_compiled(directions: int, autocast: bool) -> None:
    """As one graph, and its gradient in the type of what it was given, whatever autocast says."""
    given = arguments(2, 7, 4, 5, directions, torch.float32, device=DEVICE)
    compiled = torch.compile(lambda *given: affine_scan(*given), fullgraph=True, backend="aot_eager")

    def f(*given: Any) -> Any:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
            return compiled(*given)

    check(given, f)


@DIRECTIONS
def test_the_gradient_of_the_bias_takes_no_pass_of_its_own(directions: int) -> None:
    """It comes from the operator that makes the gradient of u, which nothing else sums up."""
    states, _ = affine_scan(*arguments(2, 7, 4, 5, directions, torch.float32))
    grad = torch.ones_like(states)
    with Operations() as operations:
        states.backward(grad)
    assert "linrnn.affine_scan_backward.default" in operations.names
    assert not any("sum" in name for name in operations.names)


def test_tangents_do_not_get_lost() -> None:
    given = arguments(2, 7, 4, 5, 0, torch.float64)
    states, _ = affine_scan(*given)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode"):
        states.sum().backward()


def test_no_gradient_of_a_gradient() -> None:
    given = arguments(2, 7, 4, 5, 0, torch.float64)
    states, _ = affine_scan(*given)
    (grad_v,) = torch.autograd.grad(states.square().sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError):
        grad_v.sum().backward()


def test_the_same_as_the_product_and_the_scan_apart() -> None:
    given = arguments(2, 7, 4, 5, 0, torch.float32)
    u = F.linear(*given[:3]).unflatten(-1, (2, 5))
    for one, other in zip(affine_scan(*given), op.scan(u, *given[3:5], None, False), strict=True):
        assert torch.equal(one, other)
