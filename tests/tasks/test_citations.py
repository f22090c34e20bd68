import collections
import json
import random
from pathlib import Path

import numpy as np
import pytest

from linrnn import tasks
from linrnn.tasks import citations
from linrnn.tasks.base import silent
from linrnn.tasks.store import Draft

SPLITS = ("train", "validation", "test")
PAPERS = 600
RNG = random.Random(0)
# Papers of 30 fields, which mostly cite older ones of their field; one is cited by all fields.
CITES = sorted(
    {
        (a, b)
        for a in range(1, PAPERS)
        for b in [0, *(30 * RNG.randrange(PAPERS // 30) + a % 30 for _ in range(3)), RNG.randrange(PAPERS)]
        if (b < a or RNG.random() < 0.02) and a != b and (b > 0 or RNG.random() < 0.3)
    }
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small corpus whose ids are no row numbers: paper k has the id 10·k + 7, and a text that begins with it."""
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    folder = tmp_path / "citations"
    folder.mkdir()
    papers = [{"id": 10 * k + 7, "title": "-", "text": f"{k:05d} " * 3 + "a study " * (k % 9)} for k in range(PAPERS)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(paper) + "\n" for paper in papers))
    (folder / "cites.tsv").write_text("".join(f"{10 * a + 7}\t{10 * b + 7}\n" for a, b in CITES))
    return folder


def import_from(folder: Path) -> tasks.Task:
    citations.read(folder, Draft("retrieval-citations"), silent)
    return tasks.load("retrieval-citations")


def pairs(task: tasks.Task, split: tasks.Split) -> list[tuple[int, int]]:
    """The numbers of the papers of each example, read from the beginning of their texts."""
    assert task.vocabulary is not None
    texts = np.array(task.vocabulary)[split.inputs[:, :, :5]]
    return [(int("".join(a)), int("".join(b))) for a, b in texts]


def test_every_positive_is_a_citation_and_no_negative_is(folder: Path) -> None:
    task = import_from(folder)
    known = {frozenset(pair) for pair in CITES}
    for name in SPLITS:
        split = getattr(task, name)
        examples = list(zip(pairs(task, split), split.targets.tolist(), strict=True))
        assert all((frozenset(pair) in known) == (target == 1) for pair, target in examples)
        assert all(a != b for (a, b), _ in examples)
        assert len({frozenset(pair) for pair, _ in examples}) == len(examples), "no pair is there twice"


def test_every_paper_is_as_often_in_negatives_as_in_positives_on_either_side(folder: Path) -> None:
    task = import_from(folder)
    for name in SPLITS:
        split = getattr(task, name)
        sides = {
            (target, side): collections.Counter(
                pair[side] for pair, y in zip(pairs(task, split), split.targets, strict=True) if y == target
            )
            for target in (0, 1)
            for side in (0, 1)
        }
        assert sides[0, 0] == sides[1, 0]
        assert sides[0, 1] == sides[1, 1]
        assert np.bincount(split.targets).tolist() == [len(split) // 2] * 2


def test_no_paper_is_in_two_splits_and_no_citation_within_one_is_lost(folder: Path) -> None:
    task = import_from(folder)
    papers = {name: {paper for pair in pairs(task, getattr(task, name)) for paper in pair} for name in SPLITS}
    assert not papers["train"] & papers["validation"]
    assert not papers["train"] & papers["test"]
    assert not papers["validation"] & papers["test"]
    for name in SPLITS:
        within = {frozenset(pair) for pair in CITES if set(pair) <= papers[name]}
        assert int(getattr(task, name).targets.sum()) == len(within)


def test_few_citations_are_lost_between_the_splits(folder: Path) -> None:
    task = import_from(folder)
    all_of_them = len({frozenset(pair) for pair in CITES})
    kept = [int(getattr(task, name).targets.sum()) for name in SPLITS]
    shares = [count / all_of_them for count in kept]
    assert sum(shares) > 0.75, shares  # a split at random would keep two thirds, and 1% of them in validation
    assert all(0.09 < share < 0.13 for share in shares[1:]), shares
    assert (
        f"{PAPERS} papers and {all_of_them:,} citing pairs, of which {sum(kept):,} within a split are used"
        in task.source
    )
    assert " / ".join(f"{count:,}" for count in kept) in task.source


def test_the_citing_paper_is_the_first_as_often_as_the_second(folder: Path) -> None:
    task = import_from(folder)
    known = set(CITES)
    positives = [pair for pair, y in zip(pairs(task, task.train), task.train.targets, strict=True) if y == 1]
    one_way = [(a, b) for a, b in positives if not {(a, b), (b, a)} <= known]
    first = sum(pair in known for pair in one_way)
    assert abs(first - len(one_way) / 2) < 4 * (len(one_way) / 4) ** 0.5


def test_what_a_model_needs_to_know(folder: Path) -> None:
    task = import_from(folder)
    assert task.name == "retrieval-citations"
    assert (task.classes, task.documents, task.channels) == (2, 2, None)
    assert task.vocabulary == ("<pad>", "<unk>", "<eos>", *" 0123456789adstuy")
    for name in SPLITS:
        split = getattr(task, name)
        assert split.inputs.shape == (len(split), 2, 4000)
        assert split.inputs.dtype == np.uint8
        assert split.targets.dtype == np.int64
        assert split.lengths.tolist() == [[19 + 8 * (k % 9) for k in pair] for pair in pairs(task, split)]
        assert 0.3 < split.targets[: len(split) // 2].mean() < 0.7, "positives and negatives are mixed"


def test_it_is_the_same_every_time(folder: Path) -> None:
    once = {name: np.array(getattr(import_from(folder), name).inputs) for name in SPLITS}
    again = import_from(folder)
    for name in SPLITS:
        np.testing.assert_array_equal(getattr(again, name).inputs, once[name])


def test_rare_characters_are_unknown_and_long_texts_cut(folder: Path) -> None:
    path = folder / "docs.jsonl"
    papers = [json.loads(line) for line in path.read_text().splitlines()]
    for paper in papers:
        paper["text"] += "€" * (paper["id"] == 7) + "b" * 4000
    path.write_text("".join(json.dumps(paper) + "\n" for paper in papers))
    task = import_from(folder)
    assert task.vocabulary is not None
    assert "b" in task.vocabulary
    assert "€" not in task.vocabulary
    assert task.train.lengths is not None
    assert (task.train.lengths == 4000).all()
    assert (task.train.inputs[:, :, -1] == task.vocabulary.index("<eos>")).all()


def test_positives_that_cannot_be_matched_are_left_out() -> None:
    """Everything cites document 0, so nothing can be its negative; the rest, a ring, has many."""
    star = [(0, k) for k in range(1, 41)]
    ring = [(k, k % 40 + 1) for k in range(1, 41)]
    cites = np.sort(np.array(star + ring), axis=1)
    examples, targets = citations.balance(cites, np.random.default_rng(0))
    assert 0 not in examples
    assert 70 <= len(targets) <= 80
    for side in (0, 1):
        assert sorted(examples[targets == 0, side]) == sorted(examples[targets == 1, side])


def test_no_more_of_them_than_have_to_be() -> None:
    """Document 0 has links to 25 of 40 others, so 15 negatives at the very most; some of its pairs are kept."""
    cites = np.array([(0, k) for k in range(1, 26)] + [(k, k + 1) for k in range(1, 40)])
    examples, targets = citations.balance(cites, np.random.default_rng(0))
    kept = int((examples[targets == 1] == 0).any(axis=1).sum())
    assert kept == int((examples[targets == 0] == 0).any(axis=1).sum())
    assert 5 <= kept <= 15


def damage(folder: Path, name: str, line: int, text: str) -> None:
    lines = (folder / name).read_text().splitlines()
    lines[line - 1] = text
    (folder / name).write_text("".join(line + "\n" for line in lines))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 27, "text": "cut of', r"expected a paper as JSON, with id and text, got '\{\"id\": 27"),
        ('{"id": 27}', "expected a paper as JSON, with id and text"),
        ("[1, 2]", "expected a paper as JSON, with id and text"),
        ('{"id": 27, "text": null}', "expected a number as id and a string as text, got 27 and a NoneType"),
        ('{"id": 7, "text": "again"}', "expected ids that occur once, got 7 again"),
    ],
    ids=["truncated", "no_text", "a_list", "null", "twice"],
)
def test_a_damaged_paper_is_an_error_that_names_the_line(folder: Path, text: str, message: str) -> None:
    damage(folder, "docs.jsonl", 3, text)
    with pytest.raises(ValueError, match=rf"docs\.jsonl, line 3: {message}"):
        import_from(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("17", r"expected two ids of docs\.jsonl, separated by a tab, got '17'"),
        ("17\t27\t37", r"expected two ids of docs\.jsonl"),
        ("17\tx", r"expected two ids of docs\.jsonl"),
        ("17\t18", r"expected two ids of docs\.jsonl"),
        ("17\t17", "expected two papers, got .*, a paper that cites itself"),
    ],
    ids=["one", "three", "no_number", "unknown", "itself"],
)
def test_a_damaged_citation_is_an_error_that_names_the_line(folder: Path, text: str, message: str) -> None:
    damage(folder, "cites.tsv", 2, text)
    with pytest.raises(ValueError, match=rf"cites\.tsv, line 2: {message}"):
        import_from(folder)
    with pytest.raises(FileNotFoundError):
        tasks.load("retrieval-citations")


def test_missing_files_and_too_few_citations(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"docs\.jsonl: expected a file of the citation corpus, got no file"):
        import_from(folder.parent)
    (folder / "cites.tsv").write_text("7\t17\n17\t27\n")
    with pytest.raises(ValueError, match=r"cites\.tsv: expected enough citing pairs for train, got 2 in all"):
        import_from(folder)
    (folder / "cites.tsv").unlink()
    with pytest.raises(ValueError, match=r"cites\.tsv: expected a file of the citation corpus, got no file"):
        import_from(folder)
