"""torch.func and forward mode through the scan: against the definition in plain operations, loops and differences."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

import linrnn
from linrnn.fast import fused
from linrnn.recurrence import backend, numba_scan, op, reference, torch_func
from linrnn.recurrence.planes import from_planes, to_planes
from tests.recurrence.helpers import Problem, error, exclusive_problem, problem

Scan = Callable[..., tuple[Tensor, Tensor]]
DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
RESETS = pytest.mark.parametrize("resets", [None, 0.4], ids=["", "resets"])
INPUTS = (0, 1, 2)


def definition(
    u: Tensor, lam: Tensor, initial: Tensor, *, reverse: bool = False, resets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """In plain operations, which torch.func sees through."""
    planes = (from_planes(t) for t in (u, lam, initial))
    states, final = reference.scan(*planes, reverse=reverse, resets=resets)
    return to_planes(states), to_planes(final)


def small(reverse: bool = False, resets: float | None = None) -> Problem:
    return problem(2, 4, 2, reverse=reverse, resets=resets, radius=(0.5, 0.9))


def inputs(p: Problem) -> tuple[Tensor, Tensor, Tensor]:
    return p.u, p.lam, p.initial


def loss(scan: Scan, *planes: Tensor) -> Tensor:
    """Third powers: second derivatives are not those of a quadratic form, and differ where states do."""
    states, final = scan(*planes)
    return states.pow(3).sum() + 2 * final.pow(3).sum()


def assert_same(came: Any, truth: Any, tolerance: float = 1e-12) -> None:
    for answer, expected in zip(tree_leaves(came), tree_leaves(truth), strict=True):
        assert answer.shape == expected.shape
        if expected.is_complex():
            answer, expected = torch.view_as_real(answer), torch.view_as_real(expected)
        assert error(answer.detach(), expected.detach()) < tolerance


TRANSFORMS: dict[str, Callable[[Scan, Problem], Any]] = {
    "jvp": lambda f, p: jvp(f, inputs(p), (p.grad_states, p.lam.flip(0), p.grad_final)),
    "jvp of lam": lambda f, p: jvp(lambda lam: f(p.u, lam, p.initial), (p.lam,), (p.lam.flip(0),)),
    "vjp": lambda f, p: vjp(f, *inputs(p))[1]((p.grad_states, p.grad_final)),
    "grad": lambda f, p: grad(partial(loss, f), INPUTS)(*inputs(p)),
    "jacrev": lambda f, p: jacrev(f, INPUTS)(*inputs(p)),
    "jacfwd": lambda f, p: jacfwd(f, INPUTS)(*inputs(p)),
    "forward over reverse": lambda f, p: hessian(partial(loss, f), INPUTS)(*inputs(p)),
    "reverse over reverse": lambda f, p: jacrev(jacrev(partial(loss, f), INPUTS), INPUTS)(*inputs(p)),
    "reverse over forward": lambda f, p: jacrev(jacfwd(partial(loss, f), INPUTS), INPUTS)(*inputs(p)),
    "forward over forward": lambda f, p: jacfwd(jacfwd(partial(loss, f), INPUTS), INPUTS)(*inputs(p)),
    "third derivative": lambda f, p: jacfwd(jacrev(jacfwd(partial(loss, f), 1), 1), 1)(*inputs(p)),
}


@DIRECTIONS
@RESETS
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, reverse: bool, resets: float | None) -> None:
    p = small(reverse, resets)
    ours, truth = (partial(scan, reverse=reverse, resets=p.resets) for scan in (linrnn.scan_planes, definition))
    assert_same(TRANSFORMS[name](ours, p), TRANSFORMS[name](truth, p))


@DIRECTIONS
@RESETS
def test_differences(reverse: bool, resets: float | None) -> None:
    """Forward mode and its batches, and forward over reverse, against finite differences."""
    p = problem(2, 3, 2, reverse=reverse, resets=resets)
    planes = [t.requires_grad_() for t in inputs(p)]
    run = partial(linrnn.scan_planes, reverse=reverse, resets=p.resets)
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(run, planes, check_forward_ad=True, **batched)
    assert torch.autograd.gradgradcheck(run, planes, check_fwd_over_rev=True)


@pytest.mark.parametrize("i", INPUTS, ids=["u", "lam", "initial"])
def test_dual_tensors(i: int) -> None:
    """A tangent of a single argument, and a backward pass through it."""
    p = small(resets=0.4)
    direction = torch.randn_like(inputs(p)[i])

    def tangents(*planes: Tensor) -> Any:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            changed = list(planes)
            changed[i] = x
            return definition(changed[0], changed[1], changed[2], resets=p.resets)

        return jvp(run, (planes[i],), (direction,))[1]

    with forward_ad.dual_level():
        planes = [t.clone().requires_grad_() for t in inputs(p)]
        duals = list(planes)
        duals[i] = forward_ad.make_dual(planes[i], direction)
        outputs = linrnn.scan_planes(duals[0], duals[1], duals[2], resets=p.resets)
        came = [forward_ad.unpack_dual(t).tangent for t in outputs]
        objective = sum(t.pow(3).sum() for t in came)
        gradients = torch.autograd.grad(objective, planes, materialize_grads=True)
    assert_same(came, tangents(*inputs(p)))
    assert_same(gradients, grad(lambda *x: sum(t.pow(3).sum() for t in tangents(*x)), INPUTS)(*inputs(p)))


VMAPPED: dict[str, tuple[int | None, int | None, int | None, int | None]] = {  # u, lam, initial, resets
    "u": (0, None, None, None),
    "u, last": (4, None, None, None),
    "initial": (None, None, 1, None),
    "resets": (None, None, None, 0),
    "u and resets": (1, None, None, 2),
    "lam": (None, 0, None, None),
    "u and lam": (2, 1, None, None),
    "u, lam and initial": (0, 2, 3, None),
    "lam and resets": (None, 0, None, 1),
    "all": (0, 0, 0, 0),
}


def vmapped(dims: tuple[int | None, ...], with_resets: bool) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Three problems as arguments for vmap, and each one alone."""
    ps = [problem(2, 5, 3, resets=0.3) for _ in range(3)]
    several = [torch.stack([getattr(p, name) for p in ps]) for name in ("u", "lam", "initial", "resets")]
    given = [t[0] if dim is None else t.movedim(0, dim) for t, dim in zip(several, dims, strict=True)]
    alone = [[t[0 if dim is None else i] for t, dim in zip(several, dims, strict=True)] for i in range(3)]
    count = 4 if with_resets else 3
    return given[:count], [each[:count] for each in alone]


@DIRECTIONS
@pytest.mark.parametrize("name", VMAPPED)
def test_vmap(name: str, reverse: bool) -> None:
    """The forward pass, per-sample gradients and per-sample tangents against a loop."""
    dims = VMAPPED[name]

    def run(scan: Scan, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return scan(*tensors[:3], resets=tensors[3] if len(tensors) == 4 else None, reverse=reverse)

    def derivatives(scan: Scan, *tensors: Tensor) -> Any:
        planes, rest = tensors[:3], tensors[3:]
        gradients = grad(lambda *x: loss(partial(run, scan), *x, *rest), INPUTS)(*planes)
        return gradients, jvp(lambda *x: run(scan, *x, *rest), planes, planes)[1]

    for with_resets in (True, False) if dims[3] is None else (True,):
        given, alone = vmapped(dims, with_resets)
        for f in (run, derivatives):
            came = vmap(partial(f, linrnn.scan_planes), dims[: len(given)])(*given)
            loop = [tree_leaves(f(definition, *each)) for each in alone]
            assert_same(came, [torch.stack(parts) for parts in zip(*loop, strict=True)])


def test_vmap_in_vmap() -> None:
    """An ensemble of λ, each on every input."""
    p = problem(2, 5, 3)
    u, lam = torch.randn(4, *p.u.shape, dtype=torch.float64), torch.stack([p.lam, p.lam.flip(0), p.lam / 2])
    each_u = vmap(lambda u, lam: linrnn.scan_planes(u, lam, p.initial), (0, None))
    states, final = vmap(each_u, (None, 0))(u, lam)
    for i in range(3):
        for j in range(4):
            assert_same((states[i, j], final[i, j]), definition(u[j], lam[i], p.initial))


@pytest.mark.parametrize("name", [name for name in VMAPPED if name not in ("lam and resets", "all")])
def test_vmap_is_one_scan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: Any) -> tuple[Tensor, Tensor]:
        calls.append(arguments)
        return scan(*arguments)

    scan = numba_scan.scan
    monkeypatch.setattr(numba_scan, "scan", counted)
    given, _ = vmapped(VMAPPED[name], True)
    vmap(lambda *planes: linrnn.scan_planes(*planes[:3], resets=planes[3]), VMAPPED[name])(*given)
    assert len(calls) == 1


def test_complex_scan() -> None:
    p = small(resets=0.4)
    u, lam, initial = (from_planes(t) for t in inputs(p))

    def square(scan: Scan, *x: Tensor) -> Tensor:
        return torch.stack([z.abs().pow(3).sum() for z in scan(*x, resets=p.resets)]).sum()

    for transform in (
        lambda f: jvp(partial(f, resets=p.resets), (u, lam, initial), (u, 1j * lam, 2j * initial)),
        lambda f: grad(partial(square, f), INPUTS)(u, lam, initial),
        lambda f: vmap(lambda u, lam: f(u, lam, initial), (None, 0))(u, torch.stack([lam, lam / 2])),
    ):
        assert_same(transform(linrnn.scan), transform(reference.scan))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_types(dtype: torch.dtype) -> None:
    """Tangents and gradients have the types of what they belong to, and its precision."""
    p = problem(2, 9, 3, dtype, resets=0.2)
    exact = p.exact()
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    for name, types in (("jvp", [dtype, torch.float32] * 2), ("vjp", [dtype, torch.float32, torch.float32])):
        came = tree_leaves(TRANSFORMS[name](partial(linrnn.scan_planes, resets=p.resets), p))
        assert [t.dtype for t in came] == types
        assert_same(came, tree_leaves(TRANSFORMS[name](partial(definition, resets=p.resets), exact)), tolerance)


@DIRECTIONS
def test_no_steps(reverse: bool) -> None:
    p = problem(2, 0, 3, reverse=reverse, resets=0.5)
    run = partial(linrnn.scan_planes, reverse=reverse, resets=p.resets)
    tangent, final = jvp(run, inputs(p), inputs(p))[1]
    assert tangent.shape == p.u.shape
    assert torch.equal(final, p.initial)
    gradients = grad(partial(loss, run), INPUTS)(*inputs(p))
    assert_same(gradients, (p.u, torch.zeros_like(p.lam), 6 * p.initial.square()))
    planes = [t.requires_grad_() for t in inputs(p)]
    before = run(*planes)
    seeds = torch.zeros(4, *p.u.shape, dtype=torch.float64), torch.ones(4, 2, 2, 3, dtype=torch.float64)
    batches = torch.autograd.grad(before, planes, seeds, is_grads_batched=True)
    assert_same(batches[1:], (torch.zeros(4, 2, 3), seeds[1]))


@DIRECTIONS
@RESETS
def test_gradients_of_a_scan_from_before(reverse: bool, resets: float | None) -> None:
    """The forward pass was an ordinary one; incoming gradients are a batch, or have tangents."""
    p = small(reverse, resets)
    planes = [t.clone().requires_grad_() for t in inputs(p)]
    outputs = linrnn.scan_planes(planes[0], planes[1], planes[2], reverse=reverse, resets=p.resets)
    seeds = p.grad_states, p.grad_final
    back = vjp(partial(definition, reverse=reverse, resets=p.resets), *inputs(p))[1]

    batch = [torch.stack([seed, 3 * seed.flip(0)]) for seed in seeds]
    truth = vmap(back)(tuple(batch))
    came = torch.autograd.grad(outputs, planes, batch, is_grads_batched=True, retain_graph=True)
    assert_same(came, truth)
    came = vmap(lambda *seeds: torch.autograd.grad(outputs, planes, seeds, retain_graph=True))(*batch)
    assert_same(came, truth)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(seed, seed.flip(0)) for seed in seeds]
        gradients = torch.autograd.grad(outputs, planes, duals)
        came = tuple(forward_ad.unpack_dual(t).tangent for t in gradients)
    assert_same(came, back(tuple(seed.flip(0) for seed in seeds)))


def test_what_has_no_tangents_raises() -> None:
    q = exclusive_problem(1, 3, 1, 2)
    states, _ = op.exclusive_scan(q.u.requires_grad_(), q.lam, q.initial, None, False)
    p = problem(1, 3, 2)
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="expected the forward pass in forward mode too"):
            torch.autograd.grad(states, q.u, forward_ad.make_dual(q.grad_states, q.grad_states))
        with pytest.raises(ValueError, match="group: expected None under a transform"):
            linrnn.scan_planes(p.u, p.lam, group=object())  # type: ignore[arg-type]


def test_kernels_for_gpus_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they would run, a transform or forward mode takes plain formulas."""
    u: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16)

    def none(x: Tensor) -> Tensor:
        assert not fused.available(u)
        return x

    monkeypatch.setattr(backend, "triton", lambda device: True)
    assert fused.available(u)
    with forward_ad.dual_level():
        none(p.u)
    for transform in (vmap(none), lambda u: jvp(none, (u,), (u,)), grad(lambda u: none(u).sum())):
        transform(p.u)
    assert fused.available(u)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    p = problem(2, 9, 3, torch.float32, resets=0.2, device="cuda")
    exact = p.exact()
    for name in ("jvp", "grad", "jacrev", "forward over reverse"):
        came = TRANSFORMS[name](partial(linrnn.scan_planes, resets=p.resets), p)
        assert_same(came, TRANSFORMS[name](partial(definition, resets=exact.resets), exact), 1e-5)
    layer, u = linrnn.LRU(4, 64, device="cuda"), torch.randn(2, 64, 4, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        came = jvp(lambda u: layer(u)[0], (u,), (u,))  # which is linear: outputs and tangents are the same
        assert_same(came, (layer(u)[0].double(),) * 2, 2e-2)


p = small()


def test_ordinary_calls_are_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("no transform is active")

    monkeypatch.setattr(torch_func, "scan", never)
    planes = [t.clone().requires_grad_() for t in inputs(p)]
    states, final = linrnn.scan_planes(*planes)
    (states.sum() + final.sum()).backward()
    assert not torch_func.active()
    assert "linrnn_scan" in type(states.grad_fn).__name__
    assert_same(functionalize(linrnn.scan_planes)(*planes), (states, final))  # which differentiates nothing


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside the compiler
def test_compiled() -> None:
    """What was compiled is not taken where a transform is at work, and nothing of transforms is in its graph."""
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph.graph)
        return graph.forward

    def states(u: Tensor) -> Tensor:
        return linrnn.scan_planes(u, p.lam)[0]

    def tangents(u: Tensor) -> Tensor:
        result: Tensor = jvp(states, (u,), (u,))[1]
        return result

    truth = states(p.u)
    compiled = torch.compile(states, fullgraph=True, backend=backend)
    assert_same(compiled(p.u), truth)
    assert not any("functorch" in str(node.target) for graph in graphs for node in graph.nodes)
    compiled = torch.compile(states, backend=backend)
    for _ in range(2):
        assert_same(compiled(p.u), truth)
        assert_same(jvp(compiled, (p.u,), (p.u,))[1], truth)
        with forward_ad.dual_level():
            assert_same(forward_ad.unpack_dual(compiled(forward_ad.make_dual(p.u, p.u))).tangent, truth)
    with pytest.raises(Exception, match="scan"):
        torch.compile(tangents, fullgraph=True, backend=backend)(p.u)
    assert_same(torch.compile(tangents, backend=backend)(p.u), truth)
