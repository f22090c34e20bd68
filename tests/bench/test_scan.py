"""The scan's byte counts and ratios."""

import importlib.util
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch

from linrnn.bench import baselines, measure, scan
from linrnn.recurrence import backend, op
from linrnn.util import style

TINY = {"a": (2, 7, 3), "b": (1, 20, 5)}
TIMES = {
    "forward False": 1.0, "forward True": 2.0, "backward False": 3.0, "backward True": 4.0, "copy forward": 0.5,
    "copy backward": 0.9,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_useful_bytes_are_those_of_inputs_and_outputs(dtype: torch.dtype) -> None:
    u = torch.randn(2, 7, 2, 3).to(dtype)
    lam, zero = torch.zeros(2, 3), torch.zeros(2, 2, 3)
    states, _ = op.scan(u, lam, zero, None, False)
    grad_u, _, _ = op.scan_backward(u, zero, states, lam, zero, None, False)
    assert scan.useful_bytes((2, 7, 3), dtype, "forward") == u.nbytes + states.nbytes
    assert scan.useful_bytes((2, 7, 3), dtype, "backward") == u.nbytes + states.nbytes + grad_u.nbytes


def test_a_share_is_the_copys_time_over_the_scans() -> None:
    row = scan.compare(6_000_000_000, ms=3.0, copy_ms=2.0)
    assert row["TB/s"] == pytest.approx(2.0)
    assert row["copy_TB/s"] == pytest.approx(3.0)
    assert row["share"] == pytest.approx(row["TB/s"] / row["copy_TB/s"]) == pytest.approx(2 / 3)


def test_every_row_has_its_own_time_and_the_copy_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", lambda *_: dict(TIMES))
    (rows,) = scan.rows({"a": (2, 7, 3)}, [torch.float32], measure.CPU)
    assert [(row["pass"], row["reverse"], row["ms"], row["copy_ms"]) for row in rows] == [
        ("forward", False, 1.0, 0.5),
        ("forward", True, 2.0, 0.5),
        ("backward", False, 3.0, 0.9),
        ("backward", True, 4.0, 0.9),
    ]
    assert [row["bytes"] for row in rows] == [2 * 336, 2 * 336, 3 * 336, 3 * 336]


def test_on_a_cpu_the_copy_is_scaled_to_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", lambda candidates, *_: {name: TIMES[name] for name in candidates})
    (rows,) = scan.rows({"a": (2, 7, 3)}, [torch.float32], measure.CPU)
    assert [row["copy_ms"] for row in rows] == pytest.approx([0.5, 0.5, 0.75, 0.75])


def test_what_is_timed_is_the_scan_of_that_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, bool]] = []
    monkeypatch.setattr(op, "scan", lambda *arguments: called.append(("forward", arguments[-1])))
    monkeypatch.setattr(op, "scan_backward", lambda *arguments: called.append(("backward", arguments[-1])))

    def run(candidates: dict[str, measure.Run], *_: object) -> dict[str, float]:
        for name, candidate in candidates.items():
            candidate()
            assert name.startswith("copy") or name == " ".join(map(str, called[-1]))
        return dict(TIMES)

    monkeypatch.setattr(measure, "milliseconds", run)
    list(scan.rows({"a": (2, 7, 3)}, [torch.float32], measure.CPU))
    assert sorted(called) == [*itertools.product(("backward", "forward"), (False, True))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_shapes_are_measured(dtype: torch.dtype) -> None:
    rows = [row for group in scan.rows(TINY, [dtype], measure.CPU, rounds=1) for row in group]
    assert [row["name"] for row in rows] == ["a"] * 4 + ["b"] * 4
    assert all(0 < row["share"] < math.inf for row in rows)


def test_every_shape_is_compiled_once_at_a_short_length(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Pool:
        def __init__(self, workers: int, context: object) -> None:
            assert 1 <= workers <= 4

        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None: ...

        def submit(self, run: Callable[..., None], *job: Any) -> Future[None]:
            seen.append(job)
            done: Future[None] = Future()
            run(*job)
            done.set_exception(RuntimeError("out of memory"))  # which the measurement will meet as well
            return done

    monkeypatch.setattr(scan, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(backend, "triton", lambda _: True)
    threads = torch.get_num_threads()
    shapes = [(1, 5, 2), (2, 9000, 3)]
    scan.compile_ahead(shapes, (torch.float32, torch.bfloat16), measure.CPU)
    torch.set_num_threads(threads)
    dtypes = (torch.float32, torch.bfloat16)
    assert seen == [(shape, dtype, measure.CPU) for shape in shapes for dtype in dtypes]


def test_the_sweep_spans_what_users_have() -> None:
    shapes = scan.sweep()
    assert 30 <= len(shapes) <= 36
    batches, lengths, sizes = (set(size) for size in zip(*shapes, strict=True))
    assert {1, 256} <= batches
    assert {128, 2**20} <= lengths
    assert {16, 4096} <= sizes
    assert max(4 * 2 * math.prod(shape) for shape in shapes) <= 2e9


def test_the_picture_has_a_bar_for_each_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [row for group in scan.rows(TINY, [torch.float32, torch.bfloat16], measure.CPU, rounds=1) for row in group]
    drawn: list[Any] = []
    monkeypatch.setattr(style, "save", lambda figure, path: drawn.append(figure))
    scan.picture(rows, tmp_path / "scan.png")
    (axis,) = drawn[0].axes
    bars = sorted(bar.get_height() for bar in axis.patches)
    assert bars == pytest.approx(sorted(100 * row["share"] for row in rows if not row["reverse"]))
    assert [label.get_text() for label in axis.get_xticklabels()] == list(TINY)


def test_baselines_are_compared_with_float32_forward_and_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(shapes: list[baselines.Shape], device: torch.device) -> Iterator[tuple[float, float]]:
        yield from [(10.0, 40.0) for _ in shapes]

    def missing(shapes: list[baselines.Shape], device: torch.device) -> Iterator[tuple[float, float]]:
        raise baselines.Unavailable("it is not here")

    monkeypatch.setattr(baselines, "SCANS", {"slow": slow, "missing": missing})
    monkeypatch.setattr(measure, "milliseconds", lambda *_: dict(TIMES))
    ours = [row for group in scan.rows(TINY, [torch.bfloat16, torch.float32], measure.CPU) for row in group]
    rows, reasons = scan.baseline_rows(TINY, ours, measure.CPU)
    assert [row["shape"] for row in rows] == list(TINY.values())
    assert rows[0]["forward_ratio"] == pytest.approx(10.0)
    assert rows[0]["with_backward_ratio"] == pytest.approx(40 / (1 + 3))
    assert reasons == {"missing": "it is not here"}


def test_baselines_that_cannot_run_here_are_left_out_and_named() -> None:
    ours = [row for group in scan.rows(TINY, [torch.float32], measure.CPU, rounds=1) for row in group]
    rows, reasons = scan.baseline_rows(TINY, ours, measure.CPU)
    assert [row["shape"] for row in rows if row["baseline"] == "PyTorch associative_scan"] == list(TINY.values())
    rows = [row for row in rows if row["baseline"] != "PyTorch associative_scan"]
    assert reasons["accelerated-scan"] == "accelerated-scan runs on a GPU only, so it is left out"
    if importlib.util.find_spec("jax") is None:
        assert rows == []
        assert reasons["JAX associative_scan"] == "JAX is not installed here, so it is left out"
    else:
        assert [row["shape"] for row in rows] == list(TINY.values())


@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 7, 3), (1, 20, 5)])
def test_pytorchs_scan_computes_the_same_states_and_gradients(shape: baselines.Shape) -> None:
    generator = torch.Generator().manual_seed(0)
    u, lam, grad = (torch.randn(shape, dtype=torch.complex128, generator=generator) for _ in range(3))
    lam = 0.9 * torch.tanh(lam[:1, :1])
    inputs = lam.expand(shape).clone().requires_grad_(), u.clone().requires_grad_()
    state, states = torch.zeros_like(u[:, 0]), []
    for k in range(shape[1]):
        state = inputs[0][:, k] * state + inputs[1][:, k]
        states.append(state)
    expected = torch.stack(states, 1)
    expected_grads = torch.autograd.grad(expected, inputs, grad)

    (found,) = baselines.pytorch_scan(*inputs)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, grad), expected_grads)

    planes = [part.detach().clone().requires_grad_() for x in inputs for part in (x.real, x.imag)]
    real, imaginary = baselines.pytorch_scan_of_planes(*planes, mode="generic")
    torch.testing.assert_close(torch.complex(real, imaginary), expected)
    parts = torch.autograd.grad((real, imaginary), planes, (grad.real, grad.imag))
    for a, b, wanted in zip(parts[::2], parts[1::2], expected_grads, strict=True):
        torch.testing.assert_close(torch.complex(a, b), wanted)


def test_a_baseline_that_fails_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(lam: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor]:
        raise RuntimeError("no kernel\nand more lines")

    monkeypatch.setattr(baselines, "pytorch_scan", fail)
    with pytest.raises(baselines.Unavailable, match=r"associative_scan failed: no kernel$"):
        list(baselines.SCANS["PyTorch associative_scan"]([(1, 2, 3)], measure.CPU))
