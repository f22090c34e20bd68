"""The README stays true: its Python runs as printed, its links lead somewhere, and its numbers are in the records."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from linrnn.paper import published

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
WORDS = 900
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
RUNS = (  # of the table of accuracies
    "scifar/seed-0",
    "listops/paper-seed-0",
    "listops/both-directions-seed-0",
    "text/seed-0",
    "pathfinder/small-phases-seed-0",
)
ONLY_HERE = pytest.mark.skipif(not (ROOT / "results").exists(), reason="only a checkout has docs and records")


def test_python(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    script = tmp_path / "readme.py"
    script.write_text(f"{block}assert y.shape == (8, 1000, 64)\nassert y_next.shape == (8, 64)\n"
                      "assert torch.allclose(logits, model(tokens[:, :1]), atol=1e-5)")  # fmt: skip
    environment = {"PYTHONPATH": str(README.parent), "PATH": "", "HOME": str(tmp_path), "PYTHONWARNINGS": "error"}
    subprocess.run([sys.executable, script.name], cwd=tmp_path, env=environment, check=True, timeout=120)


def test_it_is_short() -> None:
    assert len(README.read_text().split()) <= WORDS


@ONLY_HERE
@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for target in links((ROOT / page).read_text()):
        path, _, anchor = target.partition("#")
        assert (ROOT / path).exists(), target
        assert not anchor or anchor in anchors((ROOT / path).read_text()), target


@ONLY_HERE
def test_pages_that_the_code_names_exist() -> None:
    for file in (ROOT / "linrnn").rglob("*.py"):
        for page in re.findall(r"docs/[\w/-]+\.md", file.read_text()):
            assert (ROOT / page).is_file(), f"{file.relative_to(ROOT)}: {page}"


def test_a_broken_link_is_seen() -> None:
    assert links("[a](docs/none.md) [b](https://x.y) ![c](d.png)") == ["docs/none.md", "d.png"]
    assert anchors("# One, two\n## `x` and y\n") == {"one-two", "x-and-y"}


@ONLY_HERE
def test_the_numbers_of_the_command() -> None:
    lru, rnn = (record(f"recall/{core}/summary.json") for core in ("lru", "rnn"))
    assert f"reaches {percent(lru['test']['best'])}% on test after {lru['seconds']:.0f} s of training" in text()
    assert f"stays at {percent(rnn['test']['best'])}%" in text()


@ONLY_HERE
def test_the_table_of_accuracies() -> None:
    lines = text().partition("| task |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = [column.name for column in published.NORMALIZATION.columns]
    cells = {row.name: row.cells for row in published.NORMALIZATION.rows}
    for (task, ours, _, *theirs), run in zip(rows, RUNS, strict=True):
        assert run.startswith(task.lower())
        number, _, weights = ours.strip("[)").partition("](")
        assert number == percent(record(f"lra/{run}/summary.json")["test"]["best"])
        if weights:
            card = json.loads((ROOT / weights / "card.json").read_text())
            assert card["summary"]["test"] == record(f"lra/{run}/summary.json")["test"]
        assert theirs == [cells[model][names.index(task)].split()[0] for model in ("LRU (paper)", "S4D", "S5")]


@ONLY_HERE
def test_the_table_of_speed() -> None:
    rows = [line.rsplit("|", 2)[1].strip() for line in text().splitlines() if re.match(r"\| (CPU|H200)", line)]
    assert rows == [
        f"{named('bench/layer.json', 'nn.GRU')['ratio']:.2f} ×",
        f"{named('bench/stream-cpu.json', 'model, 6 blocks: nn.GRU, Model.step')['first_ratio']:.1f} ×",
        f"{1 / results('bench/scan-cpu.json')[0]['share']:.2f} ×",
        span("{:.1f}", (row["steps/s"] / row["JAX"]["steps_per_second"] for row in one_way_left_out()), " ×"),
        span("{:.0%}", (row["share"] for row in results("bench/scan.json") if "share" in row and not row["reverse"])),
        f"{one_stream_in_bfloat16()['us']:.1f}",
    ]


def text() -> str:
    """The README, with line breaks inside of paragraphs as spaces."""
    return re.sub(r"(?<![\n|])\n(?![\n|])", " ", README.read_text())


def links(markdown: str) -> list[str]:
    """The targets inside of the repository."""
    return [t for t in re.findall(r"\]\(([^)\s]+)\)", markdown) if not t.startswith(("http", "#"))]


def anchors(markdown: str) -> set[str]:
    """The names under which GitHub and MkDocs link to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def record(path: str) -> Any:
    return json.loads((ROOT / "results" / path).read_text())


def results(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = record(path)["results"]
    return found


def named(path: str, name: str) -> dict[str, Any]:
    (row,) = [row for row in results(path) if row["name"] == name]
    return row


def one_way_left_out() -> list[dict[str, Any]]:
    """The training steps of the six recipes that JAX ran too."""
    return [row for row in results("bench/train.json") if "JAX" in row and "one way" not in row["name"]]


def one_stream_in_bfloat16() -> dict[str, Any]:
    (row,) = [row for row in results("bench/stream.json") if (row["batch"], row["dtype"]) == (1, "bfloat16")]
    return row


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def span(form: str, values: Iterable[float], unit: str = "") -> str:
    """The smallest and the largest value: `85 to 101%`."""
    numbers = list(values)
    low, high = form.format(min(numbers)), form.format(max(numbers))
    return f"{low.removesuffix('%')} to {high}{unit}"
