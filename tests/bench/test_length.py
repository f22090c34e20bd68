"""Time and memory by length, and a layer on the CPU."""

from pathlib import Path
from typing import Any

import pytest

from linrnn.bench import layer, length, measure

SMALL: dict[str, Any] = {"H": 6, "N": 4, "depth": 2}


def test_time_for_a_token_is_compared_with_the_shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter((1000.0, 100.0))
    monkeypatch.setattr(measure, "per_second", lambda *_: next(speeds))
    rows = list(length.rows((20, 100), measure.CPU, **SMALL))
    assert [row["ms"] for row in rows] == pytest.approx([1.0, 10.0])
    assert [row["ns_per_token"] for row in rows] == pytest.approx([50_000, 100_000])
    assert [row["ratio"] for row in rows] == pytest.approx([1.0, 2.0])


def test_all_lengths_are_trained_on_and_drawn(tmp_path: Path) -> None:
    rows = list(length.rows((20, 40), measure.CPU, **SMALL, seconds=0.01))
    assert [row["length"] for row in rows] == [20, 40]
    assert all(row["ms"] > 0 and row["peak_bytes"] is None for row in rows)
    length.picture(rows, tmp_path / "new" / "time.png")
    for row in rows:
        row["peak_bytes"] = 1000 * row["length"]
    length.picture(rows, tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > (tmp_path / "new" / "time.png").stat().st_size > 1000


def test_a_layers_ratios_are_to_the_others_times() -> None:
    rows = layer.rows(2, 5, 6, 4, rounds=1)
    assert [row["name"] for row in rows] == [
        layer.PRODUCTS,
        "nn.RNN",
        "nn.GRU",
        "nn.LSTM",
        "nn.RNN and a map back to H",
    ]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["ms"] / row["against_ms"])
        assert row["goal"] == (1.3 if row["name"] == layer.PRODUCTS else 1.0)
