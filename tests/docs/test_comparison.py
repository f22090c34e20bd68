"""The comparison with other libraries: each cell has a source, and each source a commit and a date."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
if not PAGE.exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)
LIBRARIES = 9  # with linrnn


def tables() -> list[list[list[str]]]:
    """The rows of each table without its head, as cells."""
    found = re.findall(r"((?:^\|.*\|\n)+)", PAGE.read_text(), re.MULTILINE)
    return [[[c.strip() for c in line.strip("|\n").split("|")] for line in table.splitlines()[2:]] for table in found]


def test_every_cell_has_a_source_or_was_not_found() -> None:
    _, *features = tables()
    assert len(features) == 4
    for rows in features:
        for library, *cells in rows:
            for cell in cells:
                if cell not in ("PyTorch", "JAX", "not found"):
                    assert re.search(r"\]\([^)]+\)|\]\[\w+\]", cell), f"{library}: {cell}"


def test_every_source_has_a_commit_and_a_date() -> None:
    sources, *features = tables()
    commits = re.findall(r"\[([0-9a-f]{7,8})\]\[", str(sources))
    assert len(commits) == LIBRARIES - 2, "all but linrnn and PyTorch"
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", date) for _, _, date in sources)
    assert [len(rows) for rows in features] == [LIBRARIES, LIBRARIES, LIBRARIES, LIBRARIES - 1]  # two share a row
    for url in re.findall(r"https://github\.com/(?!pytorch)\S+/blob/([^/]+)/", PAGE.read_text()):
        assert url in commits, url


def test_every_reference_is_defined() -> None:
    text = PAGE.read_text()
    used = set(re.findall(r"\]\[(\w+)\]", text))
    assert used == set(re.findall(r"^\[(\w+)\]: http", text, re.MULTILINE))
