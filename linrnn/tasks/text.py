"""Text: IMDB's film reviews, character by character; is the review positive?

The Long Range Arena has no validation split for this task, and published work selects on the test set. Our validation
split is a tenth of the official training set; the test set is official.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from linrnn.tasks import characters
from linrnn.tasks.base import Archive, Progress, Source
from linrnn.tasks.store import Draft
from linrnn.util.errors import wrong_value
from linrnn.util.files import plain

LENGTH = 4096
LEAST = 15  # rarer characters in train are <unk>
CLASSES = ("neg", "pos")
OFFICIAL = 12_500  # reviews of each class in each of train and test
VALIDATION = 10  # one of this number in the official training set
SEED = 0
SIZES = (22_500, 2_500, 25_000)
NOTE = "IMDB film reviews as characters, the first 4,095 of each: is the review positive?"

Reviews = list[tuple[str, int]]  # text, class


def read(folder: Path, draft: Draft, progress: Progress) -> None:
    """Read aclImdb, or a folder that contains it: train and test, each with a file for each review in neg and pos."""
    places = (folder, folder / "aclImdb")
    place = next((place for place in places if (place / "train").is_dir() and (place / "test").is_dir()), None)
    if place is None:
        raise wrong_value(str(folder), "aclImdb, with the folders train and test", "a folder without them")
    official, test = _reviews(place / "train", progress), _reviews(place / "test", progress)
    # Counted as in published work: in the truncated reviews of the official training set.
    vocabulary = characters.build((text[: LENGTH - 1] for text, _ in official), LEAST)
    random = np.random.default_rng(SEED)
    train, validation = _split(official, random)
    for split, reviews in {"train": train, "validation": validation, "test": test}.items():
        random.shuffle(reviews)
        texts, targets = zip(*reviews, strict=True)
        inputs = draft.array(f"{split}.inputs", (len(reviews), LENGTH), np.uint8)
        lengths = draft.array(f"{split}.lengths", (len(reviews),), np.int16)
        characters.encode(texts, vocabulary, inputs, lengths)
        draft.put(f"{split}.targets", np.array(targets, dtype=np.int64))
    source = f"aclImdb, {_counts('train', official)}, {_counts('test', test)}; validation split off train"
    draft.finish(classes=2, vocabulary=vocabulary, note=NOTE, source=source)


def _reviews(folder: Path, progress: Progress) -> Reviews:
    """The reviews of both classes, in the order of their names."""
    files = []
    for target, name in enumerate(CLASSES):
        found = sorted((folder / name).glob("[!.]*.txt"))
        if not found:
            raise wrong_value(str(folder / name), "a folder with reviews, *.txt", "none")
        files += [(path, target) for path in found]
    reviews = []
    for done, (path, target) in enumerate(files, start=1):
        reviews.append((_text(plain(path, folder)), target))
        if done % 1000 == 0 or done == len(files):
            progress(f"reading {folder.name}", done, len(files))
    return reviews


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong_value(str(path), "text in UTF-8", f"other bytes from byte {error.start}") from None
    if not text:
        raise wrong_value(str(path), "a review", "an empty file")
    return text


def _split(official: Reviews, random: np.random.Generator) -> tuple[Reviews, Reviews]:
    """Train and validation, with the same share of each class; duplicate reviews stay in train."""
    times = Counter(text for text, _ in official)
    chosen: set[int] = set()
    for target in range(len(CLASSES)):
        of_class = [i for i, review in enumerate(official) if review[1] == target]
        once = [i for i in of_class if times[official[i][0]] == 1]
        size = -(-len(of_class) // VALIDATION)
        if len(once) < size:
            raise wrong_value("train", f"{size} different reviews in {CLASSES[target]}", len(once))
        chosen.update(random.choice(once, size, replace=False).tolist())
    train = [review for i, review in enumerate(official) if i not in chosen]
    return train, [official[i] for i in sorted(chosen)]


def _counts(name: str, reviews: Reviews) -> str:
    """The number of reviews, and whether they are complete."""
    counts = Counter(target for _, target in reviews)
    words = f"{name} {' + '.join(f'{counts[target]:,} {label}' for target, label in enumerate(CLASSES))}"
    return words if set(counts.values()) == {OFFICIAL} else f"{words} (officially {OFFICIAL:,} each)"


SOURCE = Source(
    name="text",
    note=NOTE,
    examples=SIZES,
    bytes=sum(SIZES) * (LENGTH + 2 + 8),
    origin="IMDB reviews, Large Movie Review Dataset v1.0 (Maas et al., 2011)",
    licence="none stated; reviews belong to their authors, research use",
    archive=Archive(
        "aclImdb_v1.tar.gz",
        ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
        checksum="md5:7c2ac02c03563afcf9b574c7e56c153a",
        bytes=84_125_825,
    ),
    members=tuple(f"*{split}/{name}/*.txt" for split in ("train", "test") for name in CLASSES),
    read=read,
)
