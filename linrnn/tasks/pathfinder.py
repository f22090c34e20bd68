"""Pathfinder: pictures of dashed paths, two ends marked, read pixel by pixel; does one path join the two marks?

Images of 32×32 pixels, and of 64×64 as `pathfinder-64`. They are generated, by the rules in `contours`, or read from
the hardest part of the Long Range Arena release, with paths of 14 dashes.
"""

import functools
import io
import itertools
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.base import GENERATED, LRA_RELEASE, SPLITS, Progress, Source
from linrnn.tasks.store import Draft
from linrnn.util import extras
from linrnn.util.errors import wrong_value
from linrnn.util.files import DAMAGE, FAULTS, plain

SIZES = (160_000, 20_000, 20_000)
LEVEL = "curv_contour_length_14"
BLOCK = 1000  # images that a worker makes at once
VERSION = 2  # of the generator, raised when the same seed gives other images
SEED = 0  # of the split of the images that are read
DAMAGED = 10  # images of a release that may be missing or unreadable
WORKERS = os.cpu_count() or 1

Entry = tuple[Path, int]  # an image and its label
Example = tuple[NDArray[np.uint8], int]  # pixels (size², 1) and label


def source(name: str, size: int) -> Source:
    """The task with images of one size."""
    return Source(
        name=name,
        note=_note(size),
        examples=SIZES,
        bytes=sum(SIZES) * (size**2 + 8),
        origin="generated, or the Long Range Arena release",
        licence="Apache 2.0 (the release); none needed for generated images",
        archive=LRA_RELEASE,
        members=tuple(f"pathfinder{size}/{LEVEL}/{part}/*" for part in ("imgs", "metadata")),
        read=functools.partial(read, size),
        make=functools.partial(make, size),
        version=VERSION,
    )


def make(size: int, draft: Draft, sizes: tuple[int, int, int], seed: int, progress: Progress) -> None:
    """Generate the images, on all cores. The images of a split do not depend on the sizes of the other splits."""
    from linrnn.tasks.generators import contours  # imported here, since it loads slowly

    blocks = []
    for number, (split, examples) in enumerate(zip(SPLITS, sizes, strict=True)):
        inputs, targets = _arrays(draft, split, examples, size)
        images = inputs.reshape(-1, size, size)
        for first in range(0, examples, BLOCK):
            part = slice(first, first + BLOCK)
            blocks.append(((number << 32) + first, images[part], targets[part]))
    finished = draft.done.get("blocks", 0)
    done = sum(len(targets) for _, _, targets in blocks[:finished])
    fill = functools.partial(contours.fill, contours.RULES[size], seed)
    pool = ThreadPoolExecutor(WORKERS)
    try:
        filled = pool.map(lambda block: fill(*block), blocks[finished:])
        for (_, _, targets), _ in zip(blocks[finished:], filled, strict=True):
            finished, done = finished + 1, done + len(targets)
            draft.done = {"blocks": finished}
            progress(f"generating {draft.name}", done, sum(sizes))
    finally:
        pool.shutdown(cancel_futures=True)
    _finish(draft, size, f"{GENERATED}, version {VERSION}, seed {seed}")


def read(size: int, folder: Path, draft: Draft, progress: Progress) -> None:
    """Read the folder `curv_contour_length_14` of the Long Range Arena release, or a folder that contains it.

    The release has no splits: a tenth of the images, drawn at random, is for validation, and another for test.
    """
    entries = _entries(_find(folder, size), folder)
    order = np.random.default_rng(SEED).permutation(len(entries))
    images = _images([entries[i] for i in order], size, folder, f"reading {draft.name}", progress)
    train, validation = len(entries) * 8 // 10, len(entries) // 10
    for split, examples in (("train", train), ("validation", validation)):
        _store(draft, split, size, examples, itertools.islice(images, examples))
    rest = list(images)  # the number of damaged images is known only now
    _store(draft, "test", size, len(rest), iter(rest))
    damaged = len(entries) - train - validation - len(rest)
    words = f", without {damaged} that are damaged" if damaged else ""
    _finish(draft, size, f"the Long Range Arena's pathfinder{size}/{LEVEL}: {len(entries):,} images{words}")


def _find(folder: Path, size: int) -> Path:
    """The folder with `imgs` and `metadata`; without a search, since a release has millions of files."""
    for holds in ("", LEVEL, *(f"{above}pathfinder{size}/{LEVEL}" for above in ("", "*/", "*/*/"))):
        for found in sorted(folder.glob(holds)) if holds else [folder]:
            if (found / "imgs").is_dir() and (found / "metadata").is_dir():
                return found
    raise wrong_value(str(folder), f"pathfinder{size}/{LEVEL}, with imgs and metadata in it", "none")


def _entries(folder: Path, given: Path) -> list[Entry]:
    """The images that the metadata files name, with their labels; the folder lies in the given one."""
    files = sorted(path for path in (folder / "metadata").iterdir() if path.suffix == ".npy")
    entries = []
    for path in files:
        for number, fields in enumerate(_rows(plain(path, given)), start=1):
            if not fields:
                continue
            if len(fields) < 4 or fields[3] not in ("0", "1"):
                expected = "the folder and name of an image, its number, its label (0 or 1), and so on"
                raise wrong_value(f"{path}, line {number}", expected, " ".join(fields[:5]))
            entries.append((folder / "imgs" / Path(fields[0]).name / Path(fields[1]).name, int(fields[3])))
    if len(entries) < 10:
        raise wrong_value(str(folder / "metadata"), "files that name at least 10 images", len(entries))
    return entries


def _rows(path: Path) -> list[list[str]]:
    """The fields of each line of a metadata file: text, or a NumPy array of text or numbers, by its suffix."""
    data = path.read_bytes()
    try:
        if not data.startswith(b"\x93NUMPY"):
            return [line.split() for line in data.decode().splitlines()]
        table = np.load(io.BytesIO(data), allow_pickle=False)
        if table.ndim != 2:
            raise ValueError(f"an array of shape {table.shape}")
        return [[field.decode() if isinstance(field, bytes) else str(field) for field in row] for row in table.tolist()]
    except DAMAGE as error:  # an array of Python objects too, which is a pickle
        raise wrong_value(str(path), "lines of text, or a NumPy array of text (images, fields)", error) from error


class _WrongSizeError(ValueError):
    """A valid image of other data."""


def _images(entries: list[Entry], size: int, folder: Path, what: str, progress: Progress) -> Iterator[Example]:
    """The images one by one, with their labels, without damaged images; more than a few of them are an error."""
    damaged = 0
    for done, (path, label) in enumerate(entries, start=1):
        if path.exists():
            plain(path, folder)
        try:
            pixels = _pixels(path, size)
        except _WrongSizeError:
            raise
        except FAULTS as error:
            damaged += 1
            if damaged > min(DAMAGED, len(entries) // 100):
                raise wrong_value(
                    str(path), "a PNG image", f"a damaged file, number {damaged} of its kind ({error})"
                ) from error
        else:
            yield pixels.reshape(size**2, 1), label
        if done % BLOCK == 0 or done == len(entries):
            progress(what, done, len(entries))


def _pixels(path: Path, size: int) -> NDArray[np.uint8]:
    """The grey levels of a PNG image. Other formats are an error, since an EPS file would start Ghostscript. Images of
    another size are not decoded."""
    with extras.needed("reading images"):
        from PIL import Image

    expected = f"{size}×{size} pixels"
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(path, formats=("PNG",)) as image,
        ):
            if image.size != (size, size):
                raise _WrongSizeError(str(wrong_value(str(path), expected, "×".join(map(str, image.size)))))
            return np.asarray(image.convert("L"))
    except Image.DecompressionBombError as error:
        raise _WrongSizeError(str(wrong_value(str(path), expected, f"many more: {error}"))) from error


def _store(draft: Draft, split: str, size: int, examples: int, images: Iterator[Example]) -> None:
    inputs, targets = _arrays(draft, split, examples, size)
    for row, (pixels, label) in enumerate(images):
        inputs[row], targets[row] = pixels, label


def _arrays(draft: Draft, split: str, examples: int, size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return (
        draft.array(f"{split}.inputs", (examples, size**2, 1), np.uint8),
        draft.array(f"{split}.targets", (examples,), np.int64),
    )


def _finish(draft: Draft, size: int, origin: str) -> None:
    draft.finish(classes=2, channels=1, mean=(0.5,), std=(0.5,), note=_note(size), source=origin)


def _note(size: int) -> str:
    return f"{size}×{size} pictures of dashed paths, pixel by pixel: does one path join the two marks?"


SOURCE = source("pathfinder", 32)
SOURCE_64 = source("pathfinder-64", 64)
