"""Retrieval on a corpus of papers with citations, for readers without the ACL Anthology Network.

A positive example is a pair of papers of which one cites the other. The label depends only on the two texts together:
- The papers are split, not the pairs: no paper is in two splits. Pairs across splits are dropped, so splits are chosen
with few citations between them.
- Half of the pairs are swapped: the citing paper is the first as often as the second.
- The negatives are the positives of the same split with their second papers permuted: every paper is as often the first
  and as often the second of a negative as of a positive.

Results on this corpus are not comparable with results on the ACL Anthology Network.
"""

import heapq
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks import characters
from linrnn.tasks.base import SPLITS, Progress, Source
from linrnn.tasks.store import Draft
from linrnn.util.errors import wrong_value
from linrnn.util.files import json_object, plain

DOCUMENTS, CITATIONS = "docs.jsonl", "cites.tsv"
LENGTH = 4000
LEAST = 100  # characters seen less often in train are unknown
SEED = 0
SHARE = 10  # one pair of this number is for validation, and one for the test
STARTS = 10  # papers that each of the two is grown from
SWEEPS = 200  # passes over the negatives, until some positives are left out
SIZES = (34_494, 4_988, 4_986)
NOTE = "two papers of a citation corpus, character by character: does one cite the other?"

Pairs = NDArray[np.int64]  # (pairs, 2), numbers of documents


def read(folder: Path, draft: Draft, progress: Progress) -> None:
    """Read docs.jsonl (`id` and `text` of each paper) and cites.tsv (the ids of a citing and of the cited paper)."""
    numbers, texts = _documents(folder / DOCUMENTS)
    pairs = _citations(folder / CITATIONS, numbers)
    rng = np.random.default_rng(SEED)
    part = divide(pairs, len(texts), rng)
    examples = {split: balance(pairs[(part[pairs] == number).all(1)], rng) for number, split in enumerate(SPLITS)}
    for split, (chosen, _) in examples.items():
        if len(chosen) == 0:
            raise wrong_value(str(folder / CITATIONS), f"enough citing pairs for {split}", f"{len(pairs):,} in all")
    used = np.unique(examples["train"][0])
    vocabulary = characters.build((texts[number] for number in used), LEAST)
    inputs, lengths = np.empty((len(texts), LENGTH), np.uint8), np.empty(len(texts), np.int16)
    characters.encode(texts, vocabulary, inputs, lengths)
    for done, (split, (chosen, targets)) in enumerate(examples.items(), start=1):
        draft.put(f"{split}.inputs", inputs[chosen])
        draft.put(f"{split}.lengths", lengths[chosen])
        draft.put(f"{split}.targets", targets)
        progress("writing the pairs", done, len(examples))
    kept = [len(targets) // 2 for _, targets in examples.values()]
    source = (
        f"{len(texts):,} papers and {len(pairs):,} citing pairs, of which {sum(kept):,} within a split are used "
        f"({' / '.join(f'{count:,}' for count in kept)}); as many negatives, matched in degree"
    )
    draft.finish(classes=2, documents=2, vocabulary=vocabulary, note=NOTE, source=source)


def divide(pairs: Pairs, documents: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The split of each document, train (0), validation (1) or test (2), such that few pairs are divided.

    Validation and test grow alternately from a few documents each. In each step the free document with the largest
    share of its links in the split is added.

    Arguments:
        pairs: (pairs, 2), the numbers of linked documents.
        documents: their number.
        rng: draws the first documents, and decides ties.
    """
    links: list[list[int]] = [[] for _ in range(documents)]
    for a, b in pairs.tolist():
        links[a].append(b)
        links[b].append(a)
    part = np.zeros(documents, dtype=np.int64)
    inside = np.zeros((3, documents), dtype=np.int64)  # the links of each document into each part
    gained = [0, 0, 0]  # pairs within each part
    starts = rng.permutation(np.unique(pairs))[: 2 * STARTS].tolist()
    queues = {number: [(-1.0, 0.0, document) for document in sorted(starts[number - 1 :: 2])] for number in (1, 2)}
    while queues:
        for number, queue in list(queues.items()):
            if not queue or gained[number] >= len(pairs) // SHARE:
                del queues[number]
                continue
            _, _, document = heapq.heappop(queue)
            if part[document] != 0:
                continue
            part[document] = number
            gained[number] += inside[number, document]
            for other in links[document]:
                inside[number, other] += 1
                heapq.heappush(queue, (-inside[number, other] / len(links[other]), rng.random(), other))
    return part


def balance(pairs: Pairs, rng: np.random.Generator) -> tuple[Pairs, NDArray[np.int64]]:
    """Positive pairs and the same number of negative pairs, mixed, and their targets (1: one cites the other).

    Every document is as often the first, and as often the second, of a negative as of a positive. No negative is a
    citation, contains a document twice, or occurs twice. A positive without such a negative is left out.

    Arguments:
        pairs: (pairs, 2), all citations among the documents of a split, each once.
        rng: swaps, permutes and mixes the pairs.
    """
    positives = np.where(rng.random(len(pairs))[:, None] < 0.5, pairs, pairs[:, ::-1])
    seconds = rng.permutation(positives[:, 1])
    for sweep in itertools.count(start=1):
        negatives = np.column_stack([positives[:, 0], seconds])
        wrong = np.flatnonzero(_wrong(negatives, pairs))
        if len(wrong) == 0:
            break
        if sweep % SWEEPS == 0:  # a document has links to too many others: leave out some of its pairs
            counts = np.bincount(negatives[wrong].ravel())
            its = np.flatnonzero((positives == counts.argmax()).any(axis=1))
            positives = np.delete(positives, its[: (counts.max() + 1) // 2], axis=0)
            seconds = rng.permutation(positives[:, 1])
            continue
        for i, j in zip(wrong, rng.integers(len(seconds), size=len(wrong)), strict=True):
            seconds[[i, j]] = seconds[[j, i]]
    targets = np.repeat([1, 0], len(positives))
    mixed = rng.permutation(len(targets))
    return np.concatenate([positives, negatives])[mixed], targets[mixed]


def _wrong(negatives: Pairs, pairs: Pairs) -> NDArray[np.bool_]:
    """The mask of negatives that are citations, contain a document twice, or occur twice."""
    keys, taken = _keys(negatives), _keys(pairs)
    repeated = np.ones(len(keys), dtype=bool)
    repeated[np.unique(keys, return_index=True)[1]] = False
    wrong: NDArray[np.bool_] = repeated | np.isin(keys, taken) | (negatives[:, 0] == negatives[:, 1])
    return wrong


def _keys(pairs: Pairs) -> NDArray[np.int64]:
    """A number for each pair, the same for both orders."""
    keys: NDArray[np.int64] = (pairs.min(axis=1) << 32) + pairs.max(axis=1)
    return keys


def _documents(path: Path) -> tuple[dict[int, int], list[str]]:
    """The number of each id, and the used part of each text, by number."""
    numbers: dict[int, int] = {}
    texts: list[str] = []
    for where, line in _lines(path):
        try:
            document = json_object(line)
            name, text = document["id"], document["text"]
        except (ValueError, KeyError) as error:
            raise wrong_value(where, "a paper as JSON, with id and text", f"{line[:40]!r} ({error!r})") from error
        if not isinstance(name, int) or not isinstance(text, str):
            raise wrong_value(where, "a number as id and a string as text", f"{name!r} and a {type(text).__name__}")
        if name in numbers:
            raise wrong_value(where, "ids that occur once", f"{name} again")
        numbers[name] = len(texts)
        texts.append(text[: LENGTH - 1])
    return numbers, texts


def _citations(path: Path, numbers: dict[int, int]) -> Pairs:
    """The citing pairs (pairs, 2) by number, each once, whichever of the two cites."""
    pairs = set()
    for where, line in _lines(path):
        try:
            a, b = (numbers[int(name)] for name in line.split("\t"))
        except (ValueError, KeyError):
            raise wrong_value(where, f"two ids of {DOCUMENTS}, separated by a tab", repr(line[:40])) from None
        if a == b:
            raise wrong_value(where, "two papers", f"{line!r}, a paper that cites itself")
        pairs.add((min(a, b), max(a, b)))
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The place of each line, for errors, and the line."""
    if not path.exists():
        raise wrong_value(str(path), "a file of the citation corpus", "no file")
    with open(plain(path, path.parent), "rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                yield where, line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise wrong_value(where, "text in UTF-8", f"other bytes ({error})") from error


SOURCE = Source(
    name="retrieval-citations",
    note=NOTE,
    examples=SIZES,
    bytes=sum(SIZES) * (2 * LENGTH + 2 * 2 + 8),
    origin="papers of arXiv (cs.AI, cs.CL, cs.LG, 2007 to 2017), ICLR, ACL and CoNLL, with the citations among them",
    licence="each paper has its own",
    read=read,
)
