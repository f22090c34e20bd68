"""The gallery says what the records say, and shows every picture."""

import json
import re
from pathlib import Path

import pytest

from linrnn.paper import figures as experiments

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "paper"
RECORDS = ROOT / "results" / "figures"


@pytest.mark.parametrize("name", [*experiments.FIGURES, "depth"])
def test_a_section_for_each_figure(name: str) -> None:
    if not PAGES.exists():
        pytest.skip("only a checkout has the docs")
    text = "".join((PAGES / f"{page}.md").read_text() for page in ("figures", "figures-networks"))
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found
    picture = f"{name}.gif" if name == "depth" else f"{name}.png"
    assert f"](../../results/figures/{picture})" in found[1]
    assert (RECORDS / picture).stat().st_size < 600_000
    assert f"linrnn figure {name}" in found[1]
    record = json.loads((RECORDS / f"{name}.json").read_text())
    assert record.get("quick", False) is False
    for finding in record["findings"]:
        holds = "yes" if finding["holds"] else "**no**"
        row = f"| {finding['claim']} | {finding['measured']} | {holds} |"
        assert row in found[1].replace("\\|", "|")
