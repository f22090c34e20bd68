"""The project's prose has none of the words over which readers with English as a second language stumble."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "docs").exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)
# each has a plain replacement: this number of; almost not; again; the user's; prefetched; continues; ...
WORDS = (
    "so many", "hardly", "anew", "one's own", "on their way", "on its way", "what is around", "in here", "whoever",
    "one that is", "nobody", "goes on", "gone on", "as it is", "lets go", "the rest of it", "rivals", "whose turn",
)  # fmt: skip
PLACES = ("*.md", "docs/**/*.md", "docs/**/*.ipynb", "linrnn/**/*.py", "benchmarks/*.py", ".github/**/*.yml")


def test_words_to_avoid() -> None:
    words = "|".join(WORDS).replace(" ", r"[\s#]+")  # also across the lines of a comment
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {' '.join(match[0].split())}"
        for place in PLACES
        for path in ROOT.glob(place)
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
