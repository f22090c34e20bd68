"""The scan on the CPU, and its definition, against oracles that share no code with them."""

import concurrent.futures
import itertools
import mmap
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from torch import Tensor

import linrnn
from linrnn.recurrence import numba_scan, op, reference
from linrnn.recurrence.planes import state_padding
from linrnn.util import jit
from tests.recurrence.helpers import check, error, exclusive_problem, flat, problem, run

SCANS = [pytest.param(linrnn.scan, id="operator"), pytest.param(reference.scan, id="reference")]
DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
TYPES = [pytest.param(t, id=str(t).removeprefix("torch.")) for t in TOLERANCE]
Scan = Callable[..., tuple[Tensor, Tensor]]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex128)


def eigenvalues(n: int, radius: float = 0.999) -> Tensor:
    return torch.polar(radius * torch.rand(n, dtype=torch.float64).sqrt(), 6.28 * torch.rand(n, dtype=torch.float64))


@DIRECTIONS
@pytest.mark.parametrize("scan", SCANS)
def test_lfilter(scan: Scan, reverse: bool) -> None:
    """SciPy's recursive filter 1 / (1 - λ z⁻¹), with its initial condition λ·x₋₁."""
    u, lam, initial = random(3, 50, 4), eigenvalues(4), random(3, 4)
    states, final = scan(u, lam, initial, reverse=reverse)
    for n, z in enumerate(lam.tolist()):
        signal = u[..., n].numpy()
        signal = signal[:, ::-1] if reverse else signal
        expected, _ = lfilter([1.0], [1.0, -z], signal, axis=1, zi=z * initial[:, n : n + 1].numpy())
        expected = expected[:, ::-1] if reverse else expected
        np.testing.assert_allclose(states[..., n], expected, rtol=1e-11, atol=1e-12)
    assert torch.equal(final, states[:, 0 if reverse else -1])


@pytest.mark.parametrize("scan", SCANS)
def test_impulse_and_constant(scan: Scan) -> None:
    """λ^k after an impulse; (1 - λ^{k+1}) / (1 - λ) under a constant input."""
    lam = torch.polar(torch.tensor([0.5, 0.99, 0.9999]).double(), torch.tensor([3.0, 0.1, 6.0]).double())
    k = torch.arange(2000).unsqueeze(1)
    powers = torch.polar(lam.abs() ** k, lam.angle() * k)
    impulse = torch.zeros(1, 2000, 3, dtype=torch.complex128)
    impulse[:, 0] = 1
    torch.testing.assert_close(scan(impulse, lam)[0][0], powers, rtol=1e-10, atol=1e-13)
    constant = (1 - lam * powers) / (1 - lam)
    torch.testing.assert_close(scan(torch.ones_like(impulse), lam)[0][0], constant, rtol=1e-9, atol=1e-12)


def test_the_definition_as_a_plain_loop() -> None:
    """The reference against complex Python numbers, with resets that cut the link to the step before."""
    u, lam, initial = random(2, 12, 2), eigenvalues(2), random(2, 2)
    resets = torch.rand(2, 12) < 0.3
    for reverse in (False, True):
        states, final = reference.scan(u, lam, initial, reverse=reverse, resets=resets)
        for b in range(2):
            for n in range(2):
                x = initial[b, n].item()
                for k in reversed(range(12)) if reverse else range(12):
                    if not reverse and resets[b, k]:
                        x = 0
                    x = lam[n].item() * x + u[b, k, n].item()
                    assert abs(states[b, k, n].item() - x) < 1e-12
                    if reverse and resets[b, k]:
                        x = 0
                assert abs(final[b, n].item() - x) < 1e-12


@DIRECTIONS
def test_the_exclusive_scan_as_a_plain_loop(reverse: bool) -> None:
    """Two directions: the state that is multiplied by λ at each step, which is none where a sequence starts."""
    u, lam, initial = random(2, 12, 2, 3), eigenvalues(3), random(2, 2, 3)
    resets = torch.rand(2, 12) < 0.3
    states, final = reference.exclusive_scan(u, lam, initial, reverse=reverse, resets=resets)
    for d, backwards in enumerate((reverse, not reverse)):
        x = initial[:, d]
        for k in reversed(range(12)) if backwards else range(12):
            if not backwards:
                x = torch.where(resets[:, k, None], 0, x)
            assert error(states[:, k, d].abs(), x.abs()) < 1e-12
            x = lam * x + u[:, k, d]
            if backwards:
                x = torch.where(resets[:, k, None], 0, x)
        torch.testing.assert_close(final[:, d], x)


@DIRECTIONS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("resets", [None, 0.2], ids=["", "resets"])
@pytest.mark.parametrize(
    ("batch", "length", "n"), [(2, 5, 3), (1, 1, 1), (3, 17, 16), (1, 300, 130), (2, 33, 67), (2, 0, 3), (0, 4, 3)]
)
def test_kernels(dtype: torch.dtype, reverse: bool, resets: float | None, batch: int, length: int, n: int) -> None:
    """Forward and backward kernels against the definition, at odd sizes, in every storage type."""
    check(numba_scan, problem(batch, length, n, dtype, reverse=reverse, resets=resets), TOLERANCE[dtype])


@DIRECTIONS
@pytest.mark.parametrize("n", [64, 70], ids=["past the cache", "through the cache"])
def test_large_and_shared_among_threads(reverse: bool, n: int) -> None:
    """Sizes that are written past the cache and split among threads, in both ways to split."""
    for batch in (1, 9):
        p = problem(batch, 9000 // batch, n, torch.float32, reverse=reverse, resets=0.01)
        assert p.u.nbytes >= numba_scan.NONTEMPORAL_BYTES
        check(numba_scan, p, 1e-5)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="no larger pages here")
def test_large_results_ask_for_larger_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    advise, asked = numba_scan._madvise(), []

    def listen(start: Any, size: Any, advice: int) -> None:
        asked.append((start.value, size.value))
        assert advise(start, size, advice) == 0  # as Linux says where it does not know the advice or the place

    monkeypatch.setattr(numba_scan, "_madvise", lambda: listen)
    u = torch.randn(4, 1 << 10, 2, 32)
    lam, initial = torch.zeros(2, 32), torch.zeros(4, 2, 32)
    op.scan(u, lam, initial, None, False)
    assert not asked
    monkeypatch.setattr(numba_scan, "HUGE_PAGE_BYTES", u.nbytes)
    states, _ = op.scan(u, lam, initial, None, False)
    op.scan_backward(u, initial, u, lam, initial, None, False)
    assert torch.equal(states, u)  # λ is 0
    (start, size), _ = asked
    assert start % mmap.PAGESIZE == 0
    assert 0 <= start - states.data_ptr() < mmap.PAGESIZE
    assert start + size == states.data_ptr() + states.nbytes


def test_precision_of_long_sequences() -> None:
    """float32 at length 16,384 and |λ| = 0.9999 stays within 1e-5 of float64, bfloat16 storage within 1e-2."""
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        p = problem(1, 16384, 24, dtype, radius=(0.9999, 0.9999))
        truths = run(numba_scan, p.exact())
        answers = run(numba_scan, p, truths[0].to(dtype))
        assert max(error(answer, truth) for answer, truth in zip(answers[:5], truths, strict=False)) < tolerance


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 40), st.integers(0, 40), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_split_anywhere_equals_the_whole(left: int, right: int, reverse: bool, with_resets: bool, seed: int) -> None:
    torch.manual_seed(seed)
    u, lam, initial = random(2, left + right, 3), eigenvalues(3), random(2, 3)
    resets = torch.rand(2, left + right) < 0.2 if with_resets else None
    whole, final = linrnn.scan(u, lam, initial, reverse=reverse, resets=resets)
    x, parts = initial, []
    pieces = [slice(0, left), slice(left, None)]
    for piece in reversed(pieces) if reverse else pieces:
        states, x = linrnn.scan(
            u[:, piece], lam, x, reverse=reverse, resets=None if resets is None else resets[:, piece]
        )
        parts.append(states)
    assert torch.equal(torch.cat(parts[::-1] if reverse else parts, dim=1), whole)
    assert torch.equal(x, final)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.booleans(), st.integers(0, 2**32))
def test_packed_sequences_equal_the_separate_ones(lengths: list[int], reverse: bool, seed: int) -> None:
    torch.manual_seed(seed)
    sequences, lam = [random(1, length, 3) for length in lengths], eigenvalues(3)
    resets = torch.cat([torch.arange(length) == 0 for length in lengths]).unsqueeze(0)
    packed, _ = linrnn.scan(torch.cat(sequences, dim=1), lam, random(1, 3), reverse=reverse, resets=resets)
    initial = None
    for i, (part, sequence) in enumerate(zip(packed.split(lengths, dim=1), sequences, strict=True)):
        if reverse and i == len(lengths) - 1:
            continue  # the initial state enters the last sequence
        torch.testing.assert_close(part, linrnn.scan(sequence, lam, initial, reverse=reverse)[0])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 50), st.integers(1, 40), st.integers(0, 2**32))
def test_reversing_twice_is_the_identity(length: int, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    u, lam, initial = random(2, length, n), eigenvalues(n), random(2, n)
    states, final = linrnn.scan(u, lam, initial)
    flipped, last = linrnn.scan(u.flip(1), lam, initial, reverse=True)
    assert torch.equal(flipped.flip(1), states)
    assert torch.equal(last, final)


@DIRECTIONS
@pytest.mark.parametrize("resets", [None, 0.3], ids=["", "resets"])
def test_gradcheck(reverse: bool, resets: float | None) -> None:
    """First derivatives of the operator and its definition, and second ones of both."""
    p = problem(2, 6, 3, reverse=reverse, resets=resets)
    planes = [t.requires_grad_() for t in (p.u, p.lam, p.initial)]

    def operator(u: Tensor, lam: Tensor, initial: Tensor) -> tuple[Tensor, Tensor]:
        return linrnn.scan_planes(u, lam, initial, reverse=reverse, resets=p.resets)

    assert torch.autograd.gradcheck(operator, planes)
    assert torch.autograd.gradgradcheck(operator, planes)
    complexes = [random(2, 4, 2), eigenvalues(2), random(2, 2)]
    flags = None if p.resets is None else p.resets[:, :4]

    def definition(u: Tensor, lam: Tensor, initial: Tensor) -> tuple[Tensor, Tensor]:
        states, final = reference.scan(u, lam, initial, reverse=reverse, resets=flags)
        return states, final

    inputs = [t.requires_grad_() for t in complexes]
    assert torch.autograd.gradcheck(definition, inputs)
    assert torch.autograd.gradgradcheck(definition, inputs)


@DIRECTIONS
@pytest.mark.parametrize("resets", [None, 0.3], ids=["", "resets"])
@pytest.mark.parametrize(("length", "directions"), [(4, 2), (1, 1), (0, 2)])
def test_gradcheck_of_the_exclusive_scan(reverse: bool, resets: float | None, length: int, directions: int) -> None:
    p = exclusive_problem(2, length, directions, 2, reverse=reverse, resets=resets)
    planes = [t.requires_grad_() for t in (p.u, p.lam, p.initial)]

    def operator(u: Tensor, lam: Tensor, initial: Tensor) -> Any:
        return op.exclusive_scan(u, lam, initial, p.resets, reverse)

    assert torch.autograd.gradcheck(operator, planes)
    assert torch.autograd.gradgradcheck(operator, planes)


@DIRECTIONS
def test_packed_batches(reverse: bool) -> None:
    """Each as if it were alone, with its own states before and after; and gradients of every order."""
    offsets = [0, 1, 4]
    p, q = (
        problem(1, 4, 2, reverse=reverse, offsets=offsets),
        exclusive_problem(1, 4, 2, 1, reverse=reverse, offsets=offsets),
    )
    for operator, row in ((op.scan, p), (op.exclusive_scan, q)):
        planes = [t.requires_grad_() for t in (row.u, row.lam, row.initial)]

        def run(u: Tensor, lam: Tensor, initial: Tensor, operator: Any = operator) -> Any:
            return operator(u, lam, initial, None, reverse, p.offsets)

        states, final = run(*planes)
        for i, (start, stop) in enumerate(itertools.pairwise(offsets)):
            alone = operator(row.u[:, start:stop], row.lam, row.initial[i : i + 1], None, reverse)
            for came, truth in ((states[:, start:stop], alone[0]), (final[i : i + 1], alone[1])):
                assert error(came.detach(), truth.detach()) < 1e-12
        assert torch.autograd.gradcheck(run, planes)
        assert torch.autograd.gradgradcheck(run, planes)


def test_opcheck() -> None:
    for resets in (None, 0.3):
        p = problem(2, 6, 3, torch.float32, resets=resets)
        for t in (p.u, p.lam, p.initial):
            t.requires_grad_()
        torch.library.opcheck(op.scan, flat(p.forward))
        torch.library.opcheck(op.scan_backward, flat(p.backward(torch.randn(2, 6, 2, 3))))
    q = exclusive_problem(2, 3, 2, 3, torch.float32, resets=0.3)
    for t in (q.u, q.lam, q.initial):
        t.requires_grad_()
    torch.library.opcheck(op.exclusive_scan, flat(q.forward))
    torch.library.opcheck(op.scan_backward, flat(q.backward(torch.randn(2, 3, 2, 2, 3))))
    row = problem(1, 6, 3, torch.float32, offsets=[0, 2, 6])
    row.u.requires_grad_()
    torch.library.opcheck(op.scan, flat(row.forward))


def test_unused_results_and_inputs_without_gradient() -> None:
    u, lam = random(2, 5, 3), eigenvalues(3).requires_grad_()
    _, final = linrnn.scan(u, lam)
    (from_final,) = torch.autograd.grad(final.abs().sum(), lam)
    _, truth = reference.scan(u, lam)
    torch.testing.assert_close(from_final, torch.autograd.grad(truth.abs().sum(), lam)[0])
    assert u.grad is None


def test_non_contiguous_inputs() -> None:
    p = problem(4, 9, 6)
    u = p.u.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    lam, initial = p.lam.T.contiguous().T, p.initial.flip(0).flip(0).transpose(0, 2).contiguous().transpose(0, 2)
    assert not u.is_contiguous()
    for answer, truth in zip(linrnn.scan_planes(u, lam, initial), numba_scan.scan(*p.forward), strict=True):
        assert torch.equal(answer, truth)
    expanded = torch.ones(1, 1, 2, 1, dtype=torch.float64).expand(2, 7, 2, 3)
    assert torch.equal(
        linrnn.scan_planes(expanded, p.lam[:, :3])[0], linrnn.scan_planes(expanded.clone(), p.lam[:, :3].clone())[0]
    )


@DIRECTIONS
def test_states_up_to_whole_sectors(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where N goes up to a multiple: nothing of it is seen, also in gradients and by a conjugate view."""
    inputs = [x.requires_grad_() for x in (random(2, 9, 5), eigenvalues(5), random(2, 5))]
    results, seen = [], []

    def scan_planes(u: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        seen.append(u.shape[3])
        return linrnn.scan_planes(u, *arguments, **options)

    monkeypatch.setattr(linrnn.recurrence, "scan_planes", scan_planes)
    for more in (0, 3):
        monkeypatch.setattr(linrnn.recurrence, "state_padding", lambda *_, more=more: more)
        states, final = linrnn.scan(inputs[0].conj(), *inputs[1:], reverse=reverse)
        loss = (states.abs() ** 2).sum() + final.real.sum()
        results.append((states, final, *torch.autograd.grad(loss, inputs)))
    assert seen == [5, 8]
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_how_many_states_make_whole_sectors() -> None:
    gpu = torch.device("cuda")
    assert [state_padding(n, torch.bfloat16, gpu) for n in (1, 16, 24, 250)] == [15, 0, 8, 6]
    assert [state_padding(n, torch.float32, gpu) for n in (1, 16, 24, 250)] == [15, 0, 0, 6]
    assert state_padding(250, torch.float32, torch.device("cpu")) == 0


@pytest.fixture
def several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a second thread takes more time than it saves."""
    monkeypatch.setattr(numba_scan, "THREAD_NUMBERS", 1)


@pytest.mark.usefixtures("several_threads")
def test_same_inputs_same_bits_with_any_number_of_threads() -> None:
    p = problem(3, 700, 100, torch.float32)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(run(numba_scan, p))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.usefixtures("several_threads")
def test_called_from_many_threads_at_once() -> None:
    p = problem(2, 500, 100, torch.float32)
    expected = numba_scan.scan(*p.forward)[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda _: numba_scan.scan(*p.forward)[0], range(40)):
            assert torch.equal(answer, expected)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.usefixtures("several_threads")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork() -> None:
    """A data loader's worker, say: the parent's threads are gone there (PyTorch's own too, so NumPy compares)."""
    p = problem(2, 500, 100, torch.float32)
    expected = numba_scan.scan(*p.forward)[0].numpy()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=lambda: queue.put(np.array_equal(numba_scan.scan(*p.forward)[0].numpy(), expected)))
    worker.start()
    assert queue.get(timeout=60)
    worker.join(10)


def test_without_a_place_for_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: Any) -> Any:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(jit, "KernelCache", nowhere)
    jit._warn.cache_clear()
    with pytest.warns(UserWarning, match="no folder for compiled kernels is writable"):
        kernel = numba_scan._jit(lambda x: x + 1)
    assert kernel(1) == 2


def compile_backends() -> list[str]:
    return ["aot_eager", *(["inductor"] if shutil.which("g++") else [])]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside the compiler
@pytest.mark.parametrize("backend", compile_backends())
def test_compile_without_graph_breaks(backend: str) -> None:
    p = problem(2, 9, 3, torch.float32, resets=0.2)

    def loss(u: Tensor, lam: Tensor) -> Tensor:
        states, final = linrnn.scan_planes(u, lam, p.initial, resets=p.resets)
        before, last = op.exclusive_scan(u.unsqueeze(2), lam, p.initial.unsqueeze(1), p.resets, False)
        losses = [states.square().sum(), final.sin().sum(), before.sin().sum(), last.square().sum()]
        return torch.stack(losses).sum()

    inputs = [p.u.requires_grad_(), p.lam.requires_grad_()]
    expected = torch.autograd.grad(loss(*inputs), inputs)
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for answer, truth in zip(torch.autograd.grad(compiled(*inputs), inputs), expected, strict=True):
        torch.testing.assert_close(answer, truth)


def test_export_with_any_length() -> None:
    class Scan(torch.nn.Module):
        def forward(self, u: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
            return linrnn.scan_planes(u, lam, reverse=True)

    p = problem(2, 9, 3, torch.float32)
    lengths = ({1: torch.export.Dim("length")}, None)
    exported = torch.export.export(Scan(), (p.u, p.lam), dynamic_shapes=lengths)
    longer = problem(2, 31, 3, torch.float32).u
    for answer, truth in zip(
        exported.module()(longer, p.lam), linrnn.scan_planes(longer, p.lam, reverse=True), strict=True
    ):
        assert torch.equal(answer, truth)


def test_autocast_leaves_types_alone() -> None:
    p = problem(2, 9, 3, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        states, final = linrnn.scan_planes(p.u, p.lam, p.initial)
    assert states.dtype == torch.bfloat16
    assert final.dtype == torch.float32


ok = problem(2, 5, 3, torch.float32)
PLANES: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "u from NumPy": (TypeError, "u: expected a tensor, got ndarray", {"u": ok.u.numpy()}),
    "lam a number": (TypeError, "lam: expected a tensor, got float", {"lam": 0.5}),
    "u of integers": (TypeError, "u: expected float32, .* got torch.int64", {"u": torch.ones(2, 5, 2, 3).long()}),
    "u complex": (TypeError, "u: expected float32, .* got torch.complex64", {"u": torch.ones(2, 5, 2, 3) + 0j}),
    "u of rank 3": (ValueError, r"u: expected planes .* got \(2, 5, 3\)", {"u": torch.ones(2, 5, 3)}),
    "u without planes": (ValueError, r"u: expected planes .* got \(2, 5, 3, 3\)", {"u": torch.ones(2, 5, 3, 3)}),
    "no channels": (ValueError, "N at least 1", {"u": torch.ones(2, 5, 2, 0)}),
    "lam of another width": (ValueError, r"lam: expected shape \(2, 3\), got \(2, 4\)", {"lam": torch.ones(2, 4)}),
    "lam of another type": (TypeError, "lam: expected torch.float32 .* got torch.float64", {"lam": ok.lam.double()}),
    "initial of another batch": (ValueError, r"initial: .* got \(3, 2, 3\)", {"initial": torch.ones(3, 2, 3)}),
    "initial of another type": (TypeError, "initial: .* got torch.bfloat16", {"initial": ok.initial.bfloat16()}),
    "initial elsewhere": (ValueError, "initial: .* on cpu, .* on meta", {"initial": ok.initial.to("meta")}),
    "resets of integers": (TypeError, "resets: .* got torch.int64", {"resets": torch.ones(2, 5).long()}),
    "resets in a list": (TypeError, "resets: .* got list", {"resets": [[True]]}),
    "resets of another shape": (ValueError, r"resets: .* got \(2, 4\)", {"resets": torch.ones(2, 4).bool()}),
}


@pytest.mark.parametrize("case", PLANES)
def test_errors_of_scan_planes(case: str) -> None:
    kind, message, changed = PLANES[case]
    arguments: dict[str, Any] = {"u": ok.u, "lam": ok.lam, "initial": ok.initial, "resets": None, **changed}
    with pytest.raises(kind, match=message):
        linrnn.scan_planes(arguments.pop("u"), arguments.pop("lam"), **arguments)


@pytest.mark.parametrize(
    ("kind", "message", "u", "lam", "initial"),
    [
        (TypeError, "u: expected a tensor, got ndarray", random(2, 5, 3).numpy(), random(3), None),
        (TypeError, "u: expected complex64 or complex128, got torch.float32", torch.ones(2, 5, 3), torch.ones(3), None),
        (TypeError, "lam: expected a tensor, got float", random(2, 5, 3), 0.5, None),
        (TypeError, "initial: expected a tensor, got int", random(2, 5, 3), random(3), 0),
        (ValueError, r"u: expected shape .* got \(5, 3\)", random(5, 3), random(3), None),
        (TypeError, "lam: expected torch.complex128, as u, got torch.float32", random(2, 5, 3), torch.ones(3), None),
        (ValueError, r"lam: .* \(3,\) or \(2, 5, 3\), a λ for each step, got \(4,\)", random(2, 5, 3), random(4), None),
        (ValueError, r"initial: expected shape \(2, 3\), got \(3,\)", random(2, 5, 3), random(3), random(3)),
    ],
    ids=[
        "u from NumPy",
        "real u",
        "lam a number",
        "initial a number",
        "u of rank 2",
        "real lam",
        "lam too wide",
        "initial without batch",
    ],
)
def test_errors_of_scan(kind: type[Exception], message: str, u: Tensor, lam: Tensor, initial: Tensor | None) -> None:
    with pytest.raises(kind, match=message):
        linrnn.scan(u, lam, initial)
