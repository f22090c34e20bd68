"""The plain backend against the definition."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from linrnn.recurrence import backend, op, plain
from tests.helpers import Operations
from tests.recurrence.helpers import Problem, check, exclusive_problem, flat, problem, run

DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
RESETS = pytest.mark.parametrize("resets", [None, 0.05], ids=["", "resets"])
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}
TYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=[str(t).removeprefix("torch.") for t in TOLERANCE])
OFFSETS = [0, 13, 14, 40]


class Dtypes(TorchDispatchMode):
    """The largest tensor of each dtype that an operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers: dict[torch.dtype, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for x in tree_leaves(results):
            if isinstance(x, Tensor):
                self.numbers[x.dtype] = max(self.numbers.get(x.dtype, 0), x.numel())
        return results


@DIRECTIONS
@RESETS
@TYPES
@pytest.mark.parametrize(
    ("batch", "length", "n"), [(2, 5, 3), (1, 1, 1), (2, 16, 3), (1, 17, 2), (2, 300, 5), (2, 0, 3), (0, 4, 3)]
)
def test_as_defined(dtype: torch.dtype, reverse: bool, resets: float | None, batch: int, length: int, n: int) -> None:
    """Lengths below, at and above one chunk, and of chunks of chunks."""
    check(plain, problem(batch, length, n, dtype, reverse=reverse, resets=resets), TOLERANCE[dtype])
    exclusive = exclusive_problem(batch, length, 2, n, dtype, reverse=reverse, resets=resets)
    check(plain, exclusive, TOLERANCE[dtype])


@DIRECTIONS
@TYPES
@pytest.mark.parametrize("make", [problem, lambda *shape, **options: exclusive_problem(1, 40, 2, 3, **options)])
def test_packed_batches(dtype: torch.dtype, reverse: bool, make: Callable[..., Problem]) -> None:
    check(plain, make(1, 40, 3, dtype=dtype, reverse=reverse, offsets=OFFSETS), TOLERANCE[dtype])


@DIRECTIONS
def test_precision_of_long_sequences(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 with |λ| = 0.9999 stays within 1e-5 of the definition, also where the device has no float64."""
    p = problem(1, 5000, 3, torch.float32, reverse=reverse, radius=(0.9999, 0.9999))
    check(plain, p, 1e-5)
    expected = run(plain, p)
    monkeypatch.setattr(backend, "has_float64", lambda _: False)
    with Dtypes() as dtypes:
        came = run(plain, p)
    assert all(torch.equal(*pair) for pair in zip(came, expected, strict=True))
    few = plain.CHUNK_STEPS * p.lam.numel()  # powers of λ
    assert all(dtypes.numbers.get(dtype, 0) <= few for dtype in (torch.float64, torch.complex128))


def test_nothing_crosses_a_reset() -> None:
    """Whatever the steps before it hold."""
    p = problem(1, 60, 3, torch.float32, resets=0.0)
    assert p.resets is not None
    p.resets[:, 37] = True
    clean = plain.scan(*p.forward)[0]
    p.u[:, 20] = float("nan")
    spoilt = plain.scan(*p.forward)[0]
    assert torch.equal(clean[:, 37:], spoilt[:, 37:])
    assert spoilt[:, 20:37].isnan().all()


@pytest.mark.parametrize("make", [problem, exclusive_problem])
def test_as_an_operator(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Problem]) -> None:
    """Results share no memory with inputs or each other, and have derivatives of the second order."""
    monkeypatch.setattr(backend, "kernels", lambda _: plain)
    for length in (0, 5):
        p = make(2, length, 2, **({"n": 2} if make is exclusive_problem else {}), resets=0.2)
        tensors = [t.requires_grad_() for t in p.forward[:3]]
        forward: Any = op.scan if make is problem else op.exclusive_scan
        if length:
            torch.library.opcheck(forward, flat(p.forward))
            torch.library.opcheck(op.scan_backward, flat(p.backward(torch.randn_like(p.u))))

        def operator(*planes: Tensor, forward: Any = forward, p: Problem = p) -> Any:
            return forward(*planes, *p.options[:3])

        assert torch.autograd.gradcheck(operator, tensors)
        assert torch.autograd.gradgradcheck(operator, tensors)


def test_steps_after_one_another_grow_with_the_logarithm_of_the_length() -> None:
    """16 times the steps is one more level of chunks."""
    counts = []
    for length in (256, 4096):
        with Operations() as operations:
            plain.scan(*problem(1, length, 2, torch.float32).forward)
        counts.append(len(operations.names))
    assert counts[1] < 1.6 * counts[0]
