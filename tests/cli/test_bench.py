"""`linrnn bench`: what it prints, what it records, and what it says to mistakes."""

import dataclasses
import functools
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from linrnn.bench import baselines, layer, length, scan, stream, train
from linrnn.cli import app as cli
from linrnn.cli import bench_tables
from linrnn.cli import console as cli_console
from tests.bench.helpers import one_thread, tiny

COMMANDS = ("scan", "train", "cores", "stream", "length", "layer")
__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def small(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes, and tables that are not broken into lines."""
    monkeypatch.setattr(cli_console.out, "_width", 200)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(scan, "CPU_SHAPES", {"tiny": (2, 7, 3)})
    monkeypatch.setattr(train, "cases", lambda names: [tiny() for _ in names])
    monkeypatch.setattr(stream, "cpu_rows", lambda rows=stream.cpu_rows: rows(H=6, N=4, depth=2, rounds=1))
    monkeypatch.setattr(length, "rows", functools.partial(length.rows, H=6, N=4, depth=2, seconds=0.01))
    monkeypatch.setattr(layer, "rows", lambda rows=layer.rows: rows(2, 5, 6, 4, rounds=1))


def bench(*arguments: str | Path) -> str:
    """What a command prints."""
    line = ["bench", *map(str, arguments)]
    with patch.object(sys, "argv", ["linrnn", *line]):
        result = CliRunner().invoke(cli.app, line)
    assert result.exit_code == 0, result.output
    return result.output


def record_of(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    assert {"command", "commit", "machine", "versions", "results"} == record.keys()
    return record


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example(command: str) -> None:
    said = bench(command, "--help")
    assert re.search(r"Examples?\b", said)
    assert f"linrnn bench {command}" in said


def test_scan_prints_a_table_and_records_every_number(tmp_path: Path) -> None:
    path, picture = tmp_path / "scan.json", tmp_path / "new" / "scan.png"
    said = bench("scan", "--device", "cpu", "--dtype", "bfloat16", "--json", path, "--out", picture)
    assert picture.stat().st_size > 1000
    assert "tiny (2 × 7 × 3)" in said
    assert "accelerated-scan runs on a GPU only" in said
    record = record_of(path)
    assert record["command"] == f"linrnn bench scan --device cpu --dtype bfloat16 --json {path} --out {picture}"
    assert [(row["dtype"], row["pass"], row["reverse"]) for row in record["results"]] == [
        ("bfloat16", way, reverse) for way in ("forward", "backward") for reverse in (False, True)
    ]
    for row in record["results"]:
        assert row["share"] == pytest.approx(row["copy_ms"] / row["ms"])
        assert f"{1 / row['share']:.2f} ×" in said


def test_scan_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "sweep", lambda *_: [(1, 30, 2), (3, 5, 4)])
    said = bench("scan", "--device", "cpu", "--sweep")
    assert "1 × 30 × 2" in said
    assert "3 × 5 × 4" in said
    assert "JAX" not in said


def test_scan_with_a_lam_for_each_step(tmp_path: Path) -> None:
    path = tmp_path / "varying.json"
    said = bench("scan", "--varying", "--device", "cpu", "--json", path)
    rows = [row for row in record_of(path)["results"] if "baseline" not in row]
    assert [row["numbers"] for row in rows] == ["complex"] * 4 + ["real"] * 4
    for row in rows:
        assert f"{row['share']:.0%}" in said
    assert "real, float32" in said
    result = CliRunner().invoke(cli.app, ["bench", "scan", "--varying", "--device", "cpu", "--out", "x.png"])
    assert result.exit_code
    assert "--out: expected no picture with --varying" in str(result.exception)


def test_the_gpu_table_shows_bandwidth_share_and_baselines() -> None:
    rows = [
        {"name": "a", "shape": (1, 2, 3), "dtype": "float32", "pass": way, "reverse": reverse}
        | scan.compare(3_000_000_000, 1.0, 0.9)
        for way in scan.TENSORS
        for reverse in (False, True)
    ]
    other = {"shape": (1, 2, 3), "baseline": "other", "forward_ratio": 5.0, "with_backward_ratio": 7.0}
    console = Console(width=200)
    with console.capture() as said:
        console.print(bench_tables.scan_table(rows, [other], 0.85))
    assert said.get().count("3.00 (90%)") == 4
    assert "5.0 × / 7.0 ×" in said.get()


def test_train_shows_speed_products_and_kernels(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    said = bench("train", "--device", "cpu", "--rnn", "--profile", "--seconds", "0.01", "--json", path)
    (row,) = record_of(path)["results"]
    assert f"{row['steps/s']:.1f}" in said
    assert f"{row['nn.GRU']:.3g} ({row['steps/s'] / row['nn.GRU']:.1f} ×)" in said
    assert row["products_share"] == pytest.approx(row["products_ms"] * row["steps/s"] / 1e3)
    assert row["profile"]["kernels"][0]["kernel"] in said
    assert "this is slow" in said


def test_train_shows_what_jax_reaches_or_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "jax", lambda jobs, device: iter([{"steps_per_second": 2.0} for _ in jobs]))
    assert re.search(r" 2 \([\d.]+ ×\)", bench("train", "--device", "cpu", "--jax", "--seconds", "0.01"))
    recall = train.cases(["recall"])[0]
    both = [dataclasses.replace(recall, name=name) for name in ("recall, full length", "recall")]
    monkeypatch.setattr(train, "cases", lambda names: both)
    said = bench("train", "--device", "cpu", "--jax", "--seconds", "0.01")
    assert len(re.findall(r" 2 \([\d.]+ ×\)", said)) == 1  # once, with its padding
    monkeypatch.undo()
    monkeypatch.setattr(baselines, "jax", lambda jobs, device: iter([{"error": "out of memory"} for _ in jobs]))
    assert "out of memory" in bench("train", "--device", "cpu", "--jax", "--seconds", "0.01")

    def unavailable(jobs: object, device: torch.device) -> Any:
        raise baselines.Unavailable("JAX is not installed here, so it is left out")

    monkeypatch.setattr(baselines, "jax", unavailable)
    said = bench("train", "--device", "cpu", "--jax", "--seconds", "0.01")
    assert "JAX is not installed here, so it is left out" in said


def test_cores_shows_ratios_and_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cores.json"
    said = bench(
        "cores", "--device", "cpu", "--seconds", "0.01", "--core", "gru", "--core", "rnn-linear", "--json", path
    )
    rows = record_of(path)["results"]
    assert [row["name"] for row in rows] == ["lru", "gru", "rnn-linear"]
    assert all(f"{row['lru_faster']:.2f} ×" in said for row in rows)
    failed = {**rows[1], "error": "out of memory", "lru_faster": None}
    large = {**rows[2], "recipe": "scifar", "name": "rnn-tanh", "peak_bytes": 3_000_000_000, "memory_ratio": 1.5}
    console = Console(width=200)
    with console.capture() as captured:
        console.print(bench_tables.cores_table([rows[0], failed, {**large, "lru_faster": 30.0}], True))
    assert all(text in captured.get() for text in ("out of memory", "30.00 × (≥ 20)", "3.00 GB", "1.50 ×"))


def test_stream_compares_layers_on_a_cpu(tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    said = bench("stream", "--device", "cpu", "--json", path)
    results = record_of(path)["results"]
    assert all(row["name"] in said for row in results)
    assert f"{results[2]['first_ratio']:.2f} ×" in said


def test_the_gpu_table_of_streams_shows_time_and_floor() -> None:
    rows = [
        {"name": f"batch {batch}", "batch": batch, "dtype": "float32", "us": 50.0, "products_us": 12.5}
        | stream.compare(100_000_000, 4e12, 50.0)
        for batch in (1, 1024)
    ]
    console, shown = Console(width=200), ["50.0", "12.5 µs", "25.0 µs", "2.00 ×", "100.0 MB"]
    for rival in ({}, {"nn.GRU": 160.0}):
        with console.capture() as said:
            console.print(bench_tables.gpu_stream_table([row | rival for row in rows]))
        assert all(said.get().count(text) == 2 for text in shown)
        assert said.get().count("160 µs (3.2 ×)") == (2 if rival else 0)


def test_length_shows_and_draws(tmp_path: Path) -> None:
    path, picture = tmp_path / "length.json", tmp_path / "length.png"
    said = bench("length", "--device", "cpu", "--lengths", "16,32", "--json", path, "--out", picture)
    assert [row["length"] for row in record_of(path)["results"]] == [16, 32]
    assert "1.00 ×" in said
    assert picture.exists()


def test_layer_shows_ratios(tmp_path: Path) -> None:
    path = tmp_path / "layer.json"
    said = bench("layer", "--json", path)
    assert all(f"{row['ratio']:.2f}" in said for row in record_of(path)["results"])


MISTAKES = [
    pytest.param(["length", "--lengths", "16,x"], "--lengths: expected numbers", id="lengths"),
    pytest.param(["length", "--lengths", "0"], "--lengths: expected numbers", id="no-length"),
    pytest.param(["stream", "--device", "cpu", "--dtype", "bfloat16"], "--dtype: expected float32", id="dtype"),
    pytest.param(["cores", "--device", "cpu", "--core", "gur"], "did you mean 'gru'?", id="core"),
    pytest.param(["scan", "--device", "gpu"], "device: expected cpu, cuda", id="device"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["linrnn", "bench", *arguments]), pytest.raises(SystemExit) as exit_:
        runpy.run_module("linrnn", run_name="__main__")
    said = capfd.readouterr()
    assert exit_.value.code == 2
    assert message in said.err
    assert "Traceback" not in said.err


def test_start_measures_a_process_with_empty_and_with_warm_caches(tmp_path: Path) -> None:
    """Real processes: the parts add up to all, and the second process finds what the first compiled."""
    path = tmp_path / "start.json"
    result = CliRunner().invoke(cli.app, ["bench", "start", "--device", "cpu", "--json", str(path)])
    assert result.exit_code == 0, result.output
    cold, warm = json.loads(path.read_text())["results"]
    assert (cold["caches"], warm["caches"]) == ("cold", "warm")
    for row in (cold, warm):
        parts = [row[name] for name in ("imports", "data and device", "compile and capture", "first step")]
        assert sum(parts) == pytest.approx(row["all"], abs=0.1)
    assert cold["first step"] > warm["first step"]
    failed = CliRunner().invoke(cli.app, ["bench", "start", "--recipe", "sciffar", "--device", "cpu"])
    assert "did you mean 'scifar'?" in str(failed.exception)
