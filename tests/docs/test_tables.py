"""The tables on the site are what `linrnn table` prints for the committed records."""

from pathlib import Path

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
