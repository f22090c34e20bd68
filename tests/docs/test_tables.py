"""The tables on the site are what `linrnn table` prints for the committed records, and what the benchmarks measured."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from linrnn.cli.app import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper" / "tables.md"
if not PAGE.exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)


@pytest.mark.parametrize("name", ["normalization", "parameterization", "speed"])
def test_a_table_is_what_the_command_prints(name: str, tmp_path: Path) -> None:
    out, bench = tmp_path / "table.md", str(ROOT / "results/bench/train.json")
    options = ["--bench", bench] if name == "speed" else []
    app(["table", name, str(ROOT / "results/lra"), "--out", str(out), *options], standalone_mode=False)
    rows = "".join(line for line in out.read_text().splitlines(keepends=True) if line.startswith("|"))
    assert rows.count("\n") >= 10
    assert rows in PAGE.read_text()


def test_the_training_speeds_of_the_performance_page() -> None:
    rows = {row["name"]: row for row in results("train")}
    found = table("| training on an H200")
    assert len(found) == 6
    for name, ours, theirs, ratio in found:
        row = rows[re.split(r"[ ,(]", name)[0].lower().replace("path-x", "pathx")]
        baseline = row["JAX"]["steps_per_second"]
        assert [ours, theirs] == [f"{row['steps/s']:.1f}", f"{baseline:.1f}"]
        assert ratio == f"{row['steps/s'] / baseline:.1f}"


def test_the_other_numbers_of_the_performance_page() -> None:
    """These stand in the README too, where a test compares them with the records; the longest sequence is only here."""
    readme = (ROOT / "README.md").read_text()
    found = table("| other measurements")
    assert len(found) == 6
    for name, _, value in found:
        if "1,048,576" in name:
            assert value == f"{max(results('length'), key=lambda row: row['length'])['ms']:.1f}"
        else:
            assert f"| {value} |" in readme, name


def table(head: str) -> list[list[str]]:
    """The cells of a table of the performance page, which begins with these words."""
    lines = (ROOT / "docs" / "performance.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(head)) + 2
    end = next(i for i, line in enumerate(lines) if i >= start and not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def results(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / f"results/bench/{name}.json").read_text())["results"]
    return found
