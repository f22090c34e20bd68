"""How many claims of the paper the records check, and how many of our own, as the docs say."""

import json
import re
from pathlib import Path

import pytest

from linrnn.paper import figures

ROOT = Path(__file__).parents[3]
if not (ROOT / "results").exists():
    pytest.skip("only a checkout has the records", allow_module_level=True)


def test_the_papers_claims_are_counted_without_our_own() -> None:
    holds: dict[bool, list[bool]] = {True: [], False: []}  # by whether the claim is our own
    for name in (*figures.FIGURES, "depth"):
        record = json.loads((ROOT / f"results/figures/{name}.json").read_text())
        holds[name in figures.OWN] += [finding["holds"] for finding in record["findings"]]
    said = "".join((ROOT / f"docs/paper/{page}.md").read_text() for page in ("figures", "figures-networks"))
    match = re.search(r"Of the paper's (\d+) claims (\d+) hold", said)
    assert match is not None
    assert [int(number) for number in match.groups()] == [len(holds[False]), sum(holds[False])] == [37, 34]
    assert len(holds[True]) == sum(holds[True]) == 5
    assert said.count("| yes |") + said.count("| **no** |") == 42
