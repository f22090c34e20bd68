"""The scan with a λ of its own for each step: every backend against the definition, and the definition in a loop."""

import importlib.util
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import linrnn
from linrnn.recurrence import backend, numba_scan, numba_varying, plain_varying, reference, varying_op
from linrnn.recurrence.interface import Options
from linrnn.recurrence.planes import from_planes, to_planes
from tests.recurrence.helpers import error

DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
RESETS = pytest.mark.parametrize("resets", [None, 0.2], ids=["", "resets"])
PLANES = pytest.mark.parametrize("planes", [1, 2], ids=["real", "complex"])
NAMES = ("states", "final", "gradient of u", "gradient of lam", "gradient of initial")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}


class Problem(NamedTuple):
    """A scan and what comes back from its results, on numbers (..., P, N)."""

    u: Tensor
    lam: Tensor
    initial: Tensor
    options: Options
    grad_states: Tensor
    grad_final: Tensor


def problem(
    batch: int,
    length: int,
    n: int,
    planes: int,
    dtype: torch.dtype = torch.float64,
    *,
    reverse: bool = False,
    resets: float | None = None,
    radius: tuple[float, float] = (0.0, 1.0),
) -> Problem:
    carry = torch.float64 if dtype == torch.float64 else torch.float32
    r, theta = torch.empty(batch, length, n).uniform_(*radius), torch.empty(batch, length, n).uniform_(0, 6.28)
    lam = torch.stack([r * theta.cos(), r * theta.sin()], dim=2) if planes == 2 else r.unsqueeze(2)
    flags = None if resets is None else torch.rand(batch, length) < resets
    u, grad_states = torch.randn(2, batch, length, planes, n).to(dtype)
    initial, grad_final = torch.randn(2, batch, planes, n).to(carry)
    return Problem(u, lam.to(carry), initial, Options(flags, reverse), grad_states, grad_final)


def oracle(p: Problem) -> list[Tensor]:
    """By the definition and autograd, in float64."""
    inputs = [t.detach().double().cpu().clone().requires_grad_() for t in p[:3]]
    if p.u.shape[2] == 2:
        u, lam, initial = (from_planes(t) for t in inputs)
    else:
        u, lam, initial = inputs[0].squeeze(2), inputs[1].squeeze(2), inputs[2].squeeze(1)
    given = reference.scan(
        u, lam, initial, reverse=p.options.reverse, resets=None if p.options.resets is None else p.options.resets.cpu()
    )
    results = [to_planes(x) if p.u.shape[2] == 2 else x.real.unsqueeze(-2) for x in given]
    grads = (p.grad_states.double().cpu(), p.grad_final.double().cpu())
    return [x.detach() for x in results] + list(torch.autograd.grad(results, inputs, grads, materialize_grads=True))


def check(kernels: Any, p: Problem, tolerance: float) -> None:
    truths = oracle(p)
    states, final = kernels.scan(*p[:4])
    gradients = kernels.scan_backward(p.grad_states, p.grad_final, truths[0].to(p.u), p.lam, p.initial, p.options)
    for name, answer, truth in zip(NAMES, (states, final, *gradients), truths, strict=True):
        assert error(answer, truth) < tolerance, name
        assert answer.dtype == (p.u.dtype if name in ("states", "gradient of u") else p.lam.dtype), name


def test_the_definition_as_a_plain_loop() -> None:
    u, lam = torch.randn(2, 2, 12, 2, dtype=torch.complex128)
    initial, resets = torch.randn(2, 2, dtype=torch.complex128), torch.rand(2, 12) < 0.3
    for reverse in (False, True):
        states, final = reference.scan(u, lam, initial, reverse=reverse, resets=resets)
        for b in range(2):
            for n in range(2):
                x = initial[b, n].item()
                for k in reversed(range(12)) if reverse else range(12):
                    if not reverse and resets[b, k]:
                        x = 0
                    x = lam[b, k, n].item() * x + u[b, k, n].item()
                    assert abs(states[b, k, n].item() - x) < 1e-11
                    if reverse and resets[b, k]:
                        x = 0
                assert abs(final[b, n].item() - x) < 1e-11


@pytest.mark.parametrize("dtype", TOLERANCE, ids=[str(dtype).removeprefix("torch.") for dtype in TOLERANCE])
@DIRECTIONS
@RESETS
@PLANES
@pytest.mark.parametrize(("batch", "length", "n"), [(1, 1, 1), (2, 21, 19), (2, 0, 3), (0, 4, 3)])
def test_kernels(
    dtype: torch.dtype, reverse: bool, resets: float | None, planes: int, batch: int, length: int, n: int
) -> None:
    p = problem(batch, length, n, planes, dtype, reverse=reverse, resets=resets)
    check(numba_varying, p, TOLERANCE[dtype])
    check(plain_varying, p, TOLERANCE[dtype])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("dtype", "resets", "planes", "reverse"),
    [
        (torch.float32, None, 1, False),
        (torch.float32, 0.2, 1, True),
        (torch.float32, 0.2, 2, False),
        (torch.float32, None, 2, True),
        (torch.bfloat16, 0.2, 2, True),
        (torch.float64, 0.2, 2, False),
    ],
)
def test_triton(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, resets: float | None, planes: int, reverse: bool
) -> None:
    """Several tiles, remaining steps, and blocks that share channels; in the interpreter where there is no GPU."""
    from linrnn.recurrence import triton_varying
    from linrnn.recurrence.triton_scan import ScanTile

    small = dict.fromkeys(triton_varying.VARYING_TILES, ScanTile(4, 4, 1, 2, None))
    monkeypatch.setattr(triton_varying, "VARYING_TILES", small)
    for batch, length, n in ((2, 11, 7), (1, 1, 1), (2, 0, 3), (0, 4, 3)):
        p = problem(batch, length, n, planes, dtype, reverse=reverse, resets=resets)
        if torch.cuda.is_available():
            flags = None if p.options.resets is None else p.options.resets.cuda()
            moved: Any = [t.cuda() if isinstance(t, Tensor) else Options(flags, reverse) for t in p]
            p = Problem(*moved)
        check(triton_varying, p, TOLERANCE[dtype])


@DIRECTIONS
@PLANES
@pytest.mark.parametrize("n", [64, 70], ids=["past the cache", "through the cache"])
def test_large_and_shared_among_threads(reverse: bool, planes: int, n: int) -> None:
    for batch in (1, 9):
        p = problem(batch, 18_000 // planes // batch, n, planes, torch.float32, reverse=reverse, resets=0.01)
        assert p.u.nbytes >= numba_scan.NONTEMPORAL_BYTES
        truth = plain_varying.scan(p.u.double(), p.lam.double(), p.initial.double(), p.options)
        came = numba_varying.scan(*p[:4])
        assert all(error(a, b) < 1e-5 for a, b in zip(came, truth, strict=True))
        given = (p.grad_states, p.grad_final, came[0], p.lam, p.initial)
        backward: Any = plain_varying.scan_backward
        truths = backward(*(t.double() for t in given), p.options)
        backward = numba_varying.scan_backward
        gradients = backward(*given, p.options)
        assert all(error(a, b) < 1e-5 for a, b in zip(gradients, truths, strict=True))


@pytest.mark.parametrize("kernels", [numba_varying, plain_varying], ids=["numba", "plain"])
@PLANES
@DIRECTIONS
def test_nothing_crosses_a_reset(kernels: Any, planes: int, reverse: bool) -> None:
    """Whatever the other sequence holds: results and gradients stay the same to the last bit."""
    results = []
    p = problem(1, 60, 3, planes, torch.float32, resets=0.0, reverse=reverse)
    assert p.options.resets is not None
    p.options.resets[:, 37] = True
    other, own = (slice(37, None), slice(37)) if reverse else (slice(37), slice(37, None))
    for value in (0.0, float("nan")):
        p.u[:, other] = p.lam[:, other] = p.grad_states[:, other] = value
        states, _ = kernels.scan(*p[:4])
        g = kernels.scan_backward(p.grad_states, p.grad_final, states, p.lam, p.initial, p.options)
        results.append([states, *g[:2]])
    for clean, spoilt in zip(*results, strict=True):
        assert torch.equal(clean[:, own], spoilt[:, own])


@pytest.mark.parametrize("kernels", [numba_varying, plain_varying], ids=["numba", "plain"])
@PLANES
@DIRECTIONS
@RESETS
def test_as_an_operator(
    monkeypatch: pytest.MonkeyPatch, kernels: Any, planes: int, reverse: bool, resets: float | None
) -> None:
    """Derivatives of the first and second order, compilers' fake kernels, and transforms."""
    monkeypatch.setattr(backend, "varying_kernels", lambda _: kernels)
    p = problem(2, 6, 2, planes, reverse=reverse, resets=resets)
    tensors = [t.requires_grad_() for t in p[:3]]

    def call(*tensors: Tensor) -> Any:
        return varying_op.scan(*tensors, reverse=reverse, resets=p.options.resets)

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors, fast_mode=True)
    arguments = (*tensors, p.options.resets, reverse)
    torch.library.opcheck(varying_op.varying_scan, arguments)

    def loss(*tensors: Tensor) -> Tensor:
        return sum((t.square().sum() for t in call(*tensors)), torch.zeros(()))

    expected = torch.autograd.grad(loss(*tensors), tensors)
    plain = [t.detach() for t in tensors]
    for answer, truth in zip(torch.func.grad(loss, (0, 1, 2))(*plain), expected, strict=True):
        assert error(answer, truth) < 1e-10
    tangent = torch.func.jvp(loss, tuple(plain), tuple(torch.ones_like(t) for t in plain))[1]
    assert error(tangent, sum(g.sum() for g in expected)) < 1e-10  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64], ids=["complex", "real"])
@DIRECTIONS
def test_the_public_scan(dtype: torch.dtype, reverse: bool) -> None:
    """Equals the scan with a constant λ where λ is constant; pieces equal the whole; gradients are exact."""
    u, initial = torch.randn(2, 40, 3, dtype=dtype), torch.randn(2, 3, dtype=dtype)
    lam = 0.9 * torch.rand(3, dtype=dtype)
    complex_ = [t.to(torch.complex128) for t in (u, lam, initial)]
    expected = linrnn.scan(*complex_, reverse=reverse)
    came = linrnn.scan(u, lam.expand_as(u), initial, reverse=reverse)
    for a, b in zip(came, expected, strict=True):
        assert a.dtype == dtype
        assert (a - b).abs().max() < 1e-12
    lam = 0.9 * torch.rand(2, 40, 3, dtype=dtype)
    whole, final = linrnn.scan(u, lam, initial, reverse=reverse)
    parts = [slice(25, None), slice(25)] if reverse else [slice(25), slice(25, None)]
    state, pieces = initial, []
    for part in parts:
        piece, state = linrnn.scan(u[:, part], lam[:, part], state, reverse=reverse)
        pieces.append(piece)
    torch.testing.assert_close(torch.cat(pieces[::-1] if reverse else pieces, dim=1), whole)
    torch.testing.assert_close(state, final)
    inputs = [t.requires_grad_() for t in (u[:, :5].clone(), lam[:, :5].clone(), initial)]
    assert torch.autograd.gradcheck(lambda *t: linrnn.scan(*t, reverse=reverse), inputs)


def test_compiled_in_one_graph() -> None:
    u, lam = torch.randn(2, 6, 3), torch.rand(2, 6, 3)
    compiled = torch.compile(linrnn.scan, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(u, lam)[0], linrnn.scan(u, lam)[0])


def test_errors() -> None:
    u, lam = torch.randn(2, 5, 3), torch.rand(2, 5, 3)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((u, lam[0, 0]), {}, TypeError, "u: expected complex64 or complex128, got torch.float32"),
        ((u, lam.double()), {}, TypeError, "lam: expected torch.float32, as u, got torch.float64"),
        ((u, lam.to(torch.complex64)), {}, TypeError, "lam: expected torch.float32, as u, got torch.complex64"),
        ((u, lam[:, :4]), {}, ValueError, r"lam: expected shape \(2, 5, 3\), got \(2, 4, 3\)"),
        ((u.half(), lam.half()), {}, TypeError, "u: expected float32 or float64 or complex64 or complex128"),
        ((u[0], lam), {}, ValueError, r"u: expected shape \(batch, length, N\), N at least 1, got \(5, 3\)"),
        ((u, lam, u), {}, ValueError, r"initial: expected shape \(2, 3\), got \(2, 5, 3\)"),
        ((u, lam), {"resets": lam}, TypeError, "resets: expected torch.bool, got torch.float32"),
        ((u, lam), {"group": object()}, ValueError, "group: expected None with a λ for each step"),
    ]
    for arguments, options, kind, message in cases:
        with pytest.raises(kind, match=message):
            linrnn.scan(*arguments, **options)
    z = u.to(torch.complex64)
    message = r"lam: expected shape \(3,\) or \(2, 5, 3\), a λ for each step, got \(2, 3\)"
    with pytest.raises(ValueError, match=message):
        linrnn.scan(z, z[:, 0])
    planes = torch.randn(2, 5, 2, 3)
    with pytest.raises(TypeError, match=r"lam: expected torch.float32 for u of type torch.bfloat16, got"):
        linrnn.scan_planes(planes.bfloat16(), planes.bfloat16())
    with pytest.raises(ValueError, match=r"lam: expected shape \(2, 5, 2, 3\), got \(2, 4, 2, 3\)"):
        linrnn.scan_planes(planes, planes[:, :4])
