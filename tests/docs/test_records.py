"""Numbers on pages of the guide agree with their records."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "docs").exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)


def page_and_record(page: str, record: str) -> tuple[str, Any]:
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text(encoding="utf-8")
    return text, json.loads((ROOT / "results" / record).read_text())["results"]


def with_error(value: float, error: float) -> str:
    return f"{value:.3f} ({error:.3f})"


def test_online() -> None:
    page, results = page_and_record("online", "online/series.json")
    columns = [results[name] for name in ("delay", "drift", "co2")]
    for method in columns[0]:
        cells = (with_error(column[method]["error"], column[method]["standard_error"]) for column in columns)
        assert " | ".join(cells) in page


def test_irregular() -> None:
    page, results = page_and_record("irregular", "guide/irregular.json")
    assert f"no change has {results['no change']:.3f}" in page
    for times in results["s5"]:
        cells = (
            with_error(results[core][times]["ppm"], results[core][times]["standard_error"]) for core in ("s5", "lru")
        )
        assert " | ".join(cells) in page
    _, gated = page_and_record("irregular", "guide/irregular-gated.json")
    for times in ("ignored", "as an input"):
        cells = (
            with_error(gated[core][times]["ppm"], gated[core][times]["standard_error"]) for core in ("rglru", "mingru")
        )
        assert " and ".join(cells) in page


def test_agents() -> None:
    page, results = page_and_record("agents", "agents/repeat.json")
    for memory in ("none", "lru", "rglru", "gru"):
        assert f"| {', '.join(f'{100 * part:.1f}' for part in sorted(results[memory]['right']))} |" in page


def test_shrink() -> None:
    page, results = page_and_record("shrink", "shrink/small.json")
    for name in ("recall", "listops", "vowels"):
        row = results[name]
        cells = [f"{100 * row['balanced']['test'][0]:.1f}"]
        cells += [f"{row[by]['states'][1]}: {100 * row[by]['test'][1]:.1f}" for by in ("balanced", "energy", "half")]
        assert " | ".join([*cells, f"{100 * row['half']['fine-tuned']['test']:.1f}"]) in page
    for row in results["stream of the full recipes"].values():
        assert " | ".join(f"{a} to {b}" for a, b in (row["states"], map(round, row["microseconds"]))) in page


def test_gated_cores() -> None:
    page, results = page_and_record("cores", "recall/gated.json")
    for row in results:
        assert f"{100 * row['test_accuracy']:.1f}%" in page


def test_memory_of_online_learning() -> None:
    page, results = page_and_record("online", "online/memory.json")
    first, last = results[0], results[-1]
    assert last["steps"] == 1_000_000
    assert (
        f"{first['mb']:.1f} MB after {first['steps']:,} steps and {last['mb']:.1f} MB after {last['steps']:,}" in page
    )
