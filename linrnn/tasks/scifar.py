"""CIFAR-10 as sequences of pixels, row by row, in colour: which of ten things does the picture show?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.base import Archive, Progress, Source
from linrnn.tasks.store import Draft
from linrnn.util.errors import wrong_value
from linrnn.util.files import plain

FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
PIXELS = 32 * 32
RECORD = 1 + 3 * PIXELS  # bytes: the label, then the picture's red, green and blue plane
CLASSES = 10
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.247, 0.243, 0.261)
SEED = 0  # of the split of validation off train
NOTE = "CIFAR-10 pictures in colour, pixel by pixel: one of 10 things"


def read(folder: Path, draft: Draft, progress: Progress) -> None:
    """Read the binary version of CIFAR-10, from the folder `cifar-10-batches-bin` or a folder that contains it."""
    store(folder, draft, progress, lambda pixels: pixels, channels=3, mean=MEAN, std=STD, note=NOTE)


def store(
    folder: Path,
    draft: Draft,
    progress: Progress,
    convert: Callable[[NDArray[np.uint8]], NDArray[np.uint8]],
    **description: Any,
) -> None:
    """Store CIFAR-10 with its pixels converted, and a tenth of train as validation.

    Arguments:
        folder, draft, progress: as `read` has them.
        convert: from colour (pictures, 1024, 3) to (pictures, 1024, channels).
        description: fields of the task, for `Draft.finish`.
    """
    place = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    batches = []
    for done, name in enumerate([*TRAIN, *TEST], start=1):
        batches.append(_batch(place / name, folder))
        progress("reading CIFAR-10", done, len(TRAIN) + len(TEST))
    train, test = np.concatenate(batches[: len(TRAIN)]), np.concatenate(batches[len(TRAIN) :])
    order = np.random.default_rng(SEED).permutation(len(train))
    held_out = np.sort(order[: len(train) // 10])
    rest = np.sort(order[len(train) // 10 :])
    for split, records in (("train", train[rest]), ("validation", train[held_out]), ("test", test)):
        colour = records[:, 1:].reshape(-1, 3, PIXELS).transpose(0, 2, 1)
        draft.put(f"{split}.inputs", convert(colour))
        draft.put(f"{split}.targets", records[:, 0].astype(np.int64))
    source = (
        f"CIFAR-10, binary version: {len(train):,} pictures, {len(held_out):,} of them validation, {len(test):,} test"
    )
    draft.finish(classes=CLASSES, source=source, **description)


def _batch(path: Path, folder: Path) -> NDArray[np.uint8]:
    """The records (pictures, 3073) of one file, checked."""
    if not path.exists():
        raise wrong_value(str(path), "a file of the CIFAR-10 binary version", "no file")
    records = np.fromfile(plain(path, folder), dtype=np.uint8)
    if len(records) == 0 or len(records) % RECORD:
        raise wrong_value(str(path), f"whole records of {RECORD:,} bytes", f"{len(records):,} bytes")
    records = records.reshape(-1, RECORD)
    if (worst := int(records[:, 0].max())) >= CLASSES:
        raise wrong_value(str(path), f"labels below {CLASSES}", worst)
    return records


ARCHIVE = Archive(
    name="cifar-10-binary.tar.gz",
    urls=(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
    ),
    checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
    bytes=170_052_171,
)
MEMBERS = tuple(f"*{name}" for name in (*TRAIN, *TEST))
SIZES = (45_000, 5_000, 10_000)
ORIGIN = "CIFAR-10, binary version (Krizhevsky, 2009)"
LICENCE = "none stated; to be cited"

SOURCE = Source(
    name="scifar",
    note=NOTE,
    examples=SIZES,
    bytes=sum(SIZES) * (3 * PIXELS + 8),
    origin=ORIGIN,
    licence=LICENCE,
    archive=ARCHIVE,
    members=MEMBERS,
    read=read,
)
