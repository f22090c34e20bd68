"""The Triton kernels: on a GPU (`pytest -m gpu`) at real sizes, elsewhere in Triton's interpreter at small odd ones."""

import dataclasses
import gc
import importlib.util
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import linrnn
from linrnn.recurrence import op
from linrnn.recurrence.interface import Options, Solved
from tests.recurrence.helpers import Problem, check, error, exclusive_problem, flat, problem, run, worst

gpu_only = pytest.mark.gpu
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
TYPES = [pytest.param(t, id=str(t).removeprefix("torch.")) for t in TOLERANCE]


@pytest.fixture
def kernels() -> ModuleType:
    """The module of the kernels, interpreted where there is no GPU (see conftest.py)."""
    from linrnn.recurrence import triton_backend

    return triton_backend


def few(kernels: ModuleType, p: Problem) -> bool:
    """Whether the look-back runs."""
    from linrnn.recurrence.triton_common import Task

    return bool(kernels._few(Task(*p.forward)))


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds NaN, so that an element which no kernel writes shows."""

    def poison(allocate: Any) -> Any:
        def fresh(*args: Any, **kwargs: Any) -> Tensor:
            x: Tensor = allocate(*args, **kwargs)
            return x.fill_(float("nan")) if x.is_floating_point() else x

        return fresh

    monkeypatch.setattr(torch, "empty", poison(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poison(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))


def use_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 4 steps and 4 channels, so that several tiles follow each other."""
    from linrnn.recurrence import triton_scan

    for name in ("SCAN_TILES", "SCAN_BACKWARD_TILES"):
        monkeypatch.setattr(triton_scan, name, {4: ((0, triton_scan.ScanTile(4, 4, 1, 2, None)),)})


def use_lookback(monkeypatch: pytest.MonkeyPatch, kernels: ModuleType) -> None:
    """Any length is long. Tiles have 4 steps, and 2 of them form a group, so that states go through several levels.

    On a GPU there must be two numbers of a group's slots for each thread, and so more segments.
    """
    from linrnn.recurrence import triton_lookback

    monkeypatch.setattr(kernels, "LOOKBACK_LENGTH", 1)
    tile = triton_lookback.LookbackTile(2, 16 if torch.cuda.is_available() else 2, 4, 1, None)
    for name in ("LOOKBACK_TILES", "LOOKBACK_BACKWARD_TILES"):
        monkeypatch.setattr(triton_lookback, name, dict.fromkeys((2, 4), ((0, tile),)))


def test_all_slots_are_emptied(monkeypatch: pytest.MonkeyPatch, kernels: ModuleType) -> None:
    """Also the slots of the last program: memory may hold numbers of an earlier scan."""
    from linrnn.recurrence import triton_lookback

    use_lookback(monkeypatch, kernels)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p, allocate = problem(3, 150, 5, torch.float32, device=device), torch.empty
    ends: list[Tensor] = []

    def full(*args: Any, **kwargs: Any) -> Tensor:
        ends.append(allocate(*args, **kwargs).fill_(7))
        return ends[-1]

    class Stop:
        def __getitem__(self, grid: object) -> Any:
            return lambda *_, **__: None

    monkeypatch.setattr(torch, "empty", full)
    monkeypatch.setattr(triton_lookback, "lookback_kernel", Stop())
    kernels.scan(*p.forward)
    assert ends
    assert ends[-1].numel() > triton_lookback.CLEAR_WORDS
    assert ends[-1].numel() % triton_lookback.CLEAR_WORDS
    assert bool((ends[-1] == -1).all())


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("resets", [None, 0.2], ids=["", "resets"])
@pytest.mark.parametrize(("batch", "length", "n"), [(2, 5, 3), (1, 1, 1), (1, 19, 40), (2, 0, 3), (0, 4, 3)])
def test_small(
    kernels: ModuleType, dtype: torch.dtype, reverse: bool, resets: float | None, batch: int, length: int, n: int
) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p = problem(batch, length, n, dtype, reverse=reverse, resets=resets, device=device)
    check(kernels, p, TOLERANCE[dtype])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("resets", [None, [], [0, 9, 23]], ids=["", "no resets", "resets"])
def test_long_sequences(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, resets: list[int] | None, reverse: bool
) -> None:
    """The resets: at the first step, and either way within the first tile of a group, but not the second."""
    use_lookback(monkeypatch, kernels)
    options: dict[str, Any] = {"device": "cuda" if torch.cuda.is_available() else "cpu", "radius": (0.8, 0.999)}
    p = problem(1, 33, 5, torch.float32, reverse=reverse, resets=None if resets is None else 0.0, **options)
    if p.resets is not None:
        p.resets[:, resets] = True
    assert few(kernels, p)
    check(kernels, p, 1e-5)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", TYPES)
def test_long_sequences_of_all_types(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    use_lookback(monkeypatch, kernels)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(kernels, problem(1, 19, 3, dtype, device=device), TOLERANCE[dtype])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_long_sequences_anywhere_in_memory(kernels: ModuleType, n: int, reverse: bool) -> None:
    """A prefetch begins at a multiple of 16 bytes; steps of few channels need not."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p = problem(1, 4999, n, torch.bfloat16, reverse=reverse, device=device)
    odd = torch.empty(p.u.numel() + 1, dtype=p.u.dtype, device=device)[1:].view_as(p.u)
    assert few(kernels, p)
    check(kernels, dataclasses.replace(p, u=odd.copy_(p.u)), TOLERANCE[torch.bfloat16])


@pytest.mark.usefixtures("poisoned")
def test_long_tiles_where_few_steps_are_left(kernels: ModuleType) -> None:
    """Of 64 steps, unless many remaining steps would be tiles of one step."""
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def steps(length: int, offsets: list[int] | None = None) -> int:
        from linrnn.recurrence import triton_common, triton_scan

        p = problem(1, length, 64, torch.bfloat16, offsets=offsets, device=device)
        return int(triton_scan._plan(triton_common.Task(*p.forward))[1]["STEPS"])

    assert [steps(length) for length in (9, 64, 127, 130, 4000, 4096)] == [32, 64, 32, 64, 64, 64]
    assert steps(4096, [0, 96, 4096]) == 32
    check(kernels, problem(1, 130, 64, torch.bfloat16, device=device), TOLERANCE[torch.bfloat16])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("batch", "length", "n"),
    [
        *[(2, 0, 3), (2, 19, 5), (1, 64, 64)],
        *(pytest.param(*shape, marks=gpu_only) for shape in [(32, 4096, 192), (50, 1024, 384), (4, 8192, 256)]),
    ],
)
def test_gradients_without_the_sum(kernels: ModuleType, dtype: torch.dtype, batch: int, length: int, n: int) -> None:
    """They are the same as with it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    for p in (problem(batch, length, n, **options), exclusive_problem(batch, length, 2, n, **options)):
        *answers, none = run(kernels, p, p.u, sum_u=False)
        assert none.numel() == 0
        for answer, truth in zip(answers, run(kernels, p, p.u), strict=False):
            assert answer.shape == truth.shape
            assert error(answer, truth.double()) < TOLERANCE[dtype]


@pytest.mark.parametrize("count", [1, 9, 300, 5000])
@pytest.mark.parametrize("width", [2, 15, 40])
def test_sums_over_programs(kernels: ModuleType, count: int, width: int) -> None:
    """Of a few rows many columns are added at a time, of many rows few; more rows than a program takes at once."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = torch.randn(count, 1, width, dtype=torch.float64, device=device)
    torch.testing.assert_close(kernels.sum_partials(parts), parts.sum(0), rtol=0, atol=1e-9)


def test_what_may_be_prefetched() -> None:
    from linrnn.recurrence.triton_lookback import _aligned

    numbers = torch.zeros(1001, dtype=torch.bfloat16)
    assert _aligned(numbers[:800].view(1, 100, 2, 4))
    assert not _aligned(numbers[:800].view(1, 200, 2, 2))
    assert not _aligned(numbers[1:801].view(1, 100, 2, 4))
    assert _aligned(numbers[8:808].view(1, 100, 2, 4))


def test_nan_in_a_long_sequence(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """No NaN is taken for an empty slot, whatever its bits; a program that waits for it would never end."""
    use_lookback(monkeypatch, kernels)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p = problem(1, 19, 3, torch.float32, device=device)
    p.u.view(torch.int32)[:, 5] = -1
    p.initial.view(torch.int32)[:, :, 0] = -1
    states, final = kernels.scan(*p.forward)
    assert states[:, 5:].isnan().all()
    assert final.isnan().all()
    assert not states[:, :5, :, 1:].isnan().any()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("resets", [None, 0.2], ids=["", "resets"])
@pytest.mark.parametrize(
    ("shape", "reverse"),
    [((2, 5, 2, 3), False), ((1, 1, 2, 1), True), ((1, 19, 1, 40), True), ((2, 0, 2, 3), False), ((0, 4, 1, 3), False)],
)
def test_exclusive_scan(
    kernels: ModuleType, dtype: torch.dtype, resets: float | None, shape: tuple[int, int, int, int], reverse: bool
) -> None:
    """Batch, length, directions and N; of two directions, one is reverse."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(kernels, exclusive_problem(*shape, dtype, reverse=reverse, resets=resets, device=device), TOLERANCE[dtype])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("resets", [None, 0.1], ids=["", "resets"])
def test_several_tiles(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, resets: float | None) -> None:
    """With remaining steps, and with fewer channels than the last block has."""
    use_small_tiles(monkeypatch)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(kernels, exclusive_problem(1, 15, 2, 5, torch.float32, resets=resets, device=device), 1e-5)
    for reverse in (False, True):
        check(kernels, problem(1, 15, 5, torch.float32, reverse=reverse, resets=resets, device=device), 1e-5)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("resets", [None, 0.1], ids=["", "resets"])
def test_exclusive_scan_of_long_sequences(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, resets: float | None
) -> None:
    use_lookback(monkeypatch, kernels)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p = exclusive_problem(1, 21, 2, 3, torch.float32, resets=resets, device=device)
    assert few(kernels, p)
    check(kernels, p, 1e-5)


OFFSETS = [0, 13, 14, 18]  # whole tiles of 4 and a remaining step; a single step


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("small", "long", "reverse"),
    [(False, False, False), (True, False, True), (False, True, False), (False, True, True)],
    ids=["one tile", "several tiles", "long", "long, reverse"],
)
def test_packed_batches(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, small: bool, long: bool, reverse: bool
) -> None:
    if small:
        use_small_tiles(monkeypatch)
    if long:
        use_lookback(monkeypatch, kernels)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options: dict[str, Any] = {"reverse": reverse, "offsets": OFFSETS, "device": device}
    p = problem(1, 18, 5, torch.float32, **options)
    assert few(kernels, p) == long
    check(kernels, p, 1e-5)
    check(kernels, exclusive_problem(1, 18, 2, 5, torch.float32, **options), 1e-5)


def test_nothing_crosses_between_packed_sequences(kernels: ModuleType) -> None:
    """Whatever one of them holds, the others are the same to the last bit."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p = problem(1, 18, 5, torch.float32, offsets=OFFSETS, device=device)
    q = exclusive_problem(1, 18, 2, 5, torch.float32, offsets=OFFSETS, device=device)
    results = []
    for _ in range(2):
        results.append([row for each in (p, q) for row in run(kernels, each, each.u)[:3:2]])  # states, gradients of u
        for t in (p.u, p.grad_states, q.u, q.grad_states):
            t[:, :13] = float("nan")
    for clean, spoilt in zip(*results, strict=True):
        assert torch.equal(clean[:, 13:], spoilt[:, 13:])
        assert spoilt[:, :13].isnan().any()


@gpu_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("sequences", "longest", "n"), [(32, 500, 256), (3, 4500, 100), (16, 3000, 300)])
def test_packed_batches_at_real_sizes(
    kernels: ModuleType, dtype: torch.dtype, reverse: bool, sequences: int, longest: int, n: int
) -> None:
    """All but the first are few and long. The same inputs give the same bits."""
    offsets = [0, *torch.randint(longest // 2, longest, (sequences,)).cumsum(0).tolist()]
    options: dict[str, Any] = {"reverse": reverse, "offsets": offsets, "radius": (0.9, 0.999), "device": "cuda"}
    p = problem(1, offsets[-1], n, dtype, **options)
    assert few(kernels, p) == (sequences < 32)
    as_on_a_cpu(kernels, p)
    q = exclusive_problem(1, offsets[-1], 1, n, dtype, **options)
    as_on_a_cpu(kernels, q)
    assert all(torch.equal(*pair) for pair in zip(run(kernels, q), run(kernels, q), strict=True))


@pytest.mark.parametrize("few", [0, 128], ids=["one program", "one for each tile"])
def test_a_constant_input_over_many_tiles(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """x_k = (1 - λ^(k+1))/(1 - λ) from one unit a step: errors in λ^(steps of a tile) would add up."""
    from linrnn.recurrence import triton_lookback

    monkeypatch.setitem(kernels.LOOKBACK_CHANNELS, 4, few)
    tile = triton_lookback.LookbackTile(8, 16, 4, 1, None)  # more segments lose more: λ^(steps of a segment) is rounded
    for name in ("LOOKBACK_TILES", "LOOKBACK_BACKWARD_TILES"):
        monkeypatch.setattr(triton_lookback, name, {4: ((0, tile),)})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length = 4000 if few or torch.cuda.is_available() else 160
    lam = torch.tensor([[0.9999], [0.0]], device=device).repeat(1, 4)
    u, zero = torch.zeros(1, length, 2, 4, device=device), torch.zeros(1, 2, 4, device=device)
    u[:, :, 0] = 1.0
    exact = float(lam[0, 0])
    truth = (1 - exact ** torch.arange(1, length + 1, dtype=torch.float64)) / (1 - exact)
    states, _ = kernels.scan(u, lam, zero, Options())
    grad_u, sums, _ = kernels.scan_backward(u, zero, Solved(states, lam, zero, Options()), sum_u=True)
    assert error(states[0, :, 0, 0].cpu(), truth) < 1e-6
    assert error(grad_u[0, :, 0, 0].cpu().flip(0), truth) < 1e-6
    assert error(sums[1, 0, 0].cpu(), truth.sum()) < 1e-6


@gpu_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("batch", "length", "n"),
    [
        *[(50, 1024, 384), (128, 400, 270), (33, 200, 771), (32, 4096, 192), (32, 16384, 256)],
        *[(4, 4000, 192), (256, 2000, 16), (1, 16384, 256), (1, 131072, 512), (1, 100_000, 16)],  # few and long
    ],
)
def test_real_sizes(kernels: ModuleType, dtype: torch.dtype, batch: int, length: int, n: int) -> None:
    check_on_gpu(kernels, problem(batch, length, n, dtype, radius=(0.9, 0.9999), device="cuda"))


@gpu_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("n", [1, 4, 8, 12])
def test_few_channels(kernels: ModuleType, dtype: torch.dtype, n: int) -> None:
    """Fewer than layers have on a GPU; batches and packed batches, shorter than a tile or longer."""
    for shape, offsets in (((8, 12, n), None), ((8, 75, n), None), ((1, 96, n), [0, 12, 18, 25, 37, 96])):
        check(kernels, problem(*shape, dtype, offsets=offsets, device="cuda"), TOLERANCE[dtype])


@gpu_only
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "reverse", "resets"),
    [
        *[((2, 16384, 100), False, None), ((2, 16384, 100), True, 0.001), ((64, 700, 100), True, 0.01)],
        *[((20, 1024, 256), False, None), ((24, 1056, 256), True, None)],
    ],
    ids=["long", "long, reverse, resets", "reverse, resets", "whole tiles", "short, reverse"],
)
def test_all_types_and_directions(
    kernels: ModuleType, dtype: torch.dtype, shape: tuple[int, int, int], reverse: bool, resets: float | None
) -> None:
    options = {"reverse": reverse, "resets": resets, "radius": (0.9, 0.9999), "device": "cuda"}
    check_on_gpu(kernels, problem(*shape, dtype, **options))  # type: ignore[arg-type]


def check_on_gpu(kernels: ModuleType, p: Problem) -> None:
    """As on a CPU; |λ| reaches 0.9999."""
    p.lam[:, 0] = torch.tensor([0.9999, 0.0])  # the worst case of a constant input
    as_on_a_cpu(kernels, p)


def as_on_a_cpu(kernels: ModuleType, p: Problem) -> None:
    """The truth is the CPU's float64, itself tested against the definition, which takes minutes at these sizes."""
    from linrnn.recurrence import numba_scan

    truths = run(numba_scan, p.exact())
    for i, (answer, truth) in enumerate(zip(run(kernels, p, truths[0].to(p.u)), truths, strict=True)):
        assert answer.shape == truth.shape
        assert answer.dtype == (p.u if i in (0, 2) else p.lam).dtype
        assert error(answer, truth) < (TOLERANCE[p.lam.dtype] if i == 5 else TOLERANCE[p.u.dtype]), worst(answer, truth)


@gpu_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("reverse", "resets"), [(False, None), (True, 0.01)], ids=["forward", "reverse, resets"])
@pytest.mark.parametrize("shape", [(32, 512, 1, 256), (32, 300, 2, 256), (2, 8192, 2, 100), (1, 4000, 1, 40)])
def test_exclusive_scan_at_real_sizes(
    kernels: ModuleType, dtype: torch.dtype, reverse: bool, resets: float | None, shape: tuple[int, int, int, int]
) -> None:
    p = exclusive_problem(*shape, dtype, reverse=reverse, resets=resets, radius=(0.9, 0.9999), device="cuda")
    as_on_a_cpu(kernels, p)
    assert all(torch.equal(*pair) for pair in zip(run(kernels, p), run(kernels, p), strict=True))


@gpu_only
def test_more_than_two_to_the_31_elements() -> None:
    """Every offset fits 64 bits: the last sequence of a very large batch, and the end of a very long one."""
    for batch, length, n in [(70, 2**20 // 64, 1024), (1, 2**21, 600)]:
        assert batch * length * 2 * n > 2**31
        u = torch.zeros(batch, length, 2, n, device="cuda", dtype=torch.bfloat16)
        u[-1, -3:] = 1.0
        lam = torch.zeros(2, n, device="cuda")
        lam[0] = 0.5
        states, final = linrnn.scan_planes(u, lam)
        assert states[-1, -3:, 0, -1].tolist() == [1.0, 1.5, 1.75]
        assert states[-1, :-3].abs().max() == 0
        assert final[-1, 0, -1].item() == 1.75
        del u, states, final
        gc.collect()
        torch.cuda.empty_cache()


@gpu_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "resets"),
    [((8, 5000, 100), None), ((2, 16384, 100), 0.001), ((64, 2000, 100), 0.01)],
    ids=["few", "few, resets", "many, resets"],
)
def test_same_inputs_same_bits(
    kernels: ModuleType, dtype: torch.dtype, shape: tuple[int, int, int], resets: float | None
) -> None:
    p = problem(*shape, dtype, resets=resets, device="cuda")
    first = run(kernels, p, p.u)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, run(kernels, p, p.u), strict=True))


@gpu_only
def test_operator_on_the_gpu() -> None:
    p = problem(2, 9, 3, torch.float64, resets=0.2, device="cuda")
    tensors = [t.requires_grad_() for t in p.forward[:3]]
    assert torch.autograd.gradcheck(lambda u, lam, x: linrnn.scan_planes(u, lam, x, resets=p.resets), tensors)
    torch.library.opcheck(op.scan, flat(p.forward))
    q = exclusive_problem(2, 9, 2, 3, torch.float64, resets=0.2, device="cuda")
    tensors = [t.requires_grad_() for t in q.forward[:3]]
    assert torch.autograd.gradcheck(lambda u, lam, x: op.exclusive_scan(u, lam, x, q.resets, False), tensors)
    torch.library.opcheck(op.exclusive_scan, flat(q.forward))
    r = exclusive_problem(1, 9, 2, 3, torch.float64, offsets=[0, 4, 9], device="cuda")
    tensors = [t.requires_grad_() for t in r.forward[:3]]
    assert torch.autograd.gradcheck(lambda u, lam, x: op.exclusive_scan(u, lam, x, None, False, r.offsets), tensors)
    torch.library.opcheck(op.exclusive_scan, flat(r.forward))


@gpu_only
def test_cuda_graph() -> None:
    """A captured training step of a layer replays to the same numbers as the step itself."""
    layer = linrnn.LRU(16, 32, r_min=0.9, r_max=0.999, device="cuda")
    u = torch.randn(4, 700, 16, device="cuda")

    def run() -> Tensor:
        layer.zero_grad()
        y, state = layer(u)
        assert state is not None
        loss: Tensor = y.square().mean() + state.square().mean()
        loss.backward()
        return loss

    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # all on one stream, as gradients want it
        run()
        with torch.cuda.graph(graph, stream=stream):
            loss = run()
        u.copy_(torch.randn_like(u))
        graph.replay()
        replayed = [loss.detach().clone(), *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]
        expected = [run().detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(replayed, expected, strict=True))


@gpu_only
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inside the compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16 autocast"])
def test_compiled_model_on_the_gpu(autocast: bool) -> None:
    config = linrnn.ModelConfig(channels=3, classes=10, d_model=32, d_state=48, depth=2, options={"r_min": 0.9})
    model = linrnn.Model(config).cuda()
    x, lengths = torch.randn(8, 300, 3, device="cuda"), torch.randint(1, 300, (8,), device="cuda")

    def run(f: Any) -> list[Tensor]:
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = f(x, lengths=lengths).float().square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    expected = run(model)
    compiled = run(torch.compile(model, fullgraph=True))
    tolerance = 5e-2 if autocast else 1e-3
    for a, b in zip(compiled, expected, strict=True):
        assert error(a.cpu(), b.double().cpu()) < tolerance or b.norm() < 1e-4


@gpu_only
def test_model_on_the_gpu_equals_the_cpu() -> None:
    config = linrnn.ModelConfig(
        vocabulary=20, classes=5, d_model=32, d_state=48, depth=2, options={"r_max": 0.99, "bidirectional": True}
    )
    model = linrnn.Model(config)
    tokens, lengths = torch.randint(20, (4, 333)), torch.tensor([333, 1, 20, 332])
    expected = model(tokens, lengths=lengths)
    answer = model.cuda()(tokens.cuda(), lengths=lengths.cuda())
    assert error(answer.detach(), expected.detach().double()) < 1e-4
