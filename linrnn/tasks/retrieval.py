"""Retrieval: two papers of the ACL Anthology Network as characters; does one cite the other?

The published pipelines take the texts as in the files, bytes printed by Python (b'...' with its escapes), and this
pipeline does the same: only the 95 printable characters of ASCII occur, 98 symbols with <pad>, <unk> and <eos>.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks import characters
from linrnn.tasks.base import LRA_RELEASE, Progress, Source
from linrnn.tasks.store import Draft
from linrnn.util.errors import wrong_value
from linrnn.util.files import plain

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
COLUMNS = ("label", "id1", "id2", "text1", "text2")
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
LENGTH = 4000
SIZES = (147_086, 18_090, 17_437)
NOTE = "two papers, character by character: does one cite the other?"


def read(folder: Path, draft: Draft, progress: Progress) -> None:
    """Read the three TSV files of the Long Range Arena release, in any folder below.

    They are too large for memory, and are read line by line: once to count, train once more for its characters, and
    then to write the ids.
    """
    paths = _find(folder)
    counts = {split: _count(path) for split, path in paths.items()}
    texts = _texts(paths["train"], np.empty(counts["train"], np.int64), progress, "collecting the characters of train")
    vocabulary = characters.build((text[: LENGTH - 1] for text in texts), least=1)
    for split, path in paths.items():
        inputs = draft.array(f"{split}.inputs", (counts[split], 2, LENGTH), np.uint8)
        lengths = draft.array(f"{split}.lengths", (counts[split], 2), np.int16)
        targets = draft.array(f"{split}.targets", (counts[split],), np.int64)
        texts = _texts(path, targets, progress, f"reading {split}")
        characters.encode(texts, vocabulary, inputs.reshape(-1, LENGTH), lengths.reshape(-1))
    sizes = " / ".join(f"{count:,}" for count in counts.values())
    source = f"ACL Anthology Network, as in the Long Range Arena release: {sizes} pairs"
    draft.finish(classes=2, documents=2, vocabulary=vocabulary, note=NOTE, source=source)


def _find(folder: Path) -> dict[str, Path]:
    """The file of each split: all in one folder, the given one or one below."""
    found = sorted(path.parent for path in folder.rglob(FILES["train"]))
    if len(found) != 1:
        came = "none" if not found else f"{len(found)}: {', '.join(map(str, found))}"
        raise wrong_value(str(folder), f"one folder in it with {', '.join(FILES.values())}", came)
    paths = {split: found[0] / name for split, name in FILES.items()}
    for path in paths.values():
        plain(path, folder)
    return paths


def _count(path: Path) -> int:
    with open(path, "rb") as file:
        lines = sum(1 for _ in file)
    if lines == 0:
        raise wrong_value(str(path), "pairs of papers, one in each line", "an empty file")
    return lines


def _texts(path: Path, targets: NDArray[np.int64], progress: Progress, what: str) -> Iterator[str]:
    """The first and the second text of each line, alternately; the labels are written to `targets`."""
    with open(path, "rb") as file:
        for row, line in enumerate(file):
            where = f"{path}, line {row + 1}"
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != len(COLUMNS):
                raise wrong_value(where, f"{len(COLUMNS)} columns ({', '.join(COLUMNS)})", len(fields))
            label, _, _, *texts = fields
            if label not in LABELS:
                raise wrong_value(where, "the label 0 or 1", repr(label.decode(errors="replace")))
            targets[row] = LABELS[label]
            for text in texts:
                yield _unquoted(text, where)
            if (row + 1) % 1000 == 0 or row + 1 == len(targets):
                progress(what, row + 1, len(targets))


def _unquoted(field: bytes, where: str) -> str:
    """A text without its outer quotes, which such files add to texts that contain quotes."""
    try:
        text = field.decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong_value(where, "text in UTF-8", f"other bytes ({error})") from error
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


SOURCE = Source(
    name="retrieval",
    note=NOTE,
    examples=SIZES,
    bytes=sum(SIZES) * (2 * LENGTH + 2 * 2 + 8),
    origin="ACL Anthology Network, from the Long Range Arena release (Tay et al., 2021)",
    licence="ACL Anthology: CC BY-NC-SA 3.0 before 2016, CC BY 4.0 since",
    archive=LRA_RELEASE,
    members=tuple(f"*{name}" for name in FILES.values()),
    read=read,
)
