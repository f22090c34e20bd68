"""The byte counts and baselines of the scan with a λ for each step."""

from collections.abc import Iterator

import pytest
import torch

from linrnn.bench import baselines, measure, varying
from linrnn.recurrence import varying_op

TINY = {"a": (2, 7, 3), "b": (1, 20, 5)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("numbers", varying.PARTS)
def test_useful_bytes_are_the_bytes_of_inputs_and_outputs(numbers: varying.Numbers, dtype: torch.dtype) -> None:
    u = torch.randn(2, 7, varying.PARTS[numbers], 3).to(dtype)
    lam, zero = torch.rand(u.shape), torch.zeros(2, *u.shape[2:])
    states, _ = varying_op.varying_scan(u, lam, zero, None, False)
    grad_u, grad_lam, _ = varying_op.varying_scan_backward(u, zero, states, lam, zero, None, False)
    forward, backward = (varying.useful_bytes((2, 7, 3), dtype, numbers, pass_) for pass_ in varying.PASSES)
    assert forward == u.nbytes + lam.nbytes + states.nbytes
    assert backward == u.nbytes + states.nbytes + lam.nbytes + grad_u.nbytes + grad_lam.nbytes


def test_every_shape_kind_of_numbers_pass_and_direction_is_a_row() -> None:
    rows = [row for group in varying.rows(TINY, [torch.float32], measure.CPU, rounds=1) for row in group]
    assert len(rows) == 2 * 2 * 4
    assert len({(row["name"], row["numbers"], row["pass"], row["reverse"]) for row in rows}) == 16
    for row in rows:
        assert row["share"] == pytest.approx(row["copy_ms"] / row["ms"])


def test_baselines_are_compared_with_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(shapes: list[baselines.Shape], device: torch.device, real: bool) -> Iterator[tuple[float, float]]:
        yield from [(2.0, 30.0) if real else (10.0, 40.0) for _ in shapes]

    def missing(shapes: list[baselines.Shape], device: torch.device, real: bool) -> Iterator[tuple[float, float]]:
        raise baselines.Unavailable("not here")

    monkeypatch.setattr(baselines, "VARYING", {"slow": slow, "missing": missing})
    ours = [row for group in varying.rows(TINY, [torch.float32], measure.CPU, rounds=1) for row in group]
    for row in ours:
        row["ms"] = {"forward": 1.0, "backward": 3.0}[row["pass"]] if row["numbers"] == "complex" else 0.5
    rows, reasons = varying.baseline_rows(TINY, ours, measure.CPU)
    assert [(row["name"], row["numbers"], row["forward_ratio"], row["with_backward_ratio"]) for row in rows] == [
        ("a", "complex", 10, 10), ("b", "complex", 10, 10), ("a", "real", 4, 30), ("b", "real", 4, 30)
    ]  # fmt: skip
    assert reasons == {"missing": "not here"}


@pytest.mark.parametrize("real", [False, True], ids=["complex", "real"])
def test_pytorchs_scan_runs_here(real: bool) -> None:
    times = list(baselines.VARYING["PyTorch associative_scan"]([(1, 5, 2)], measure.CPU, real))
    assert len(times) == 1
    assert min(times[0]) > 0
