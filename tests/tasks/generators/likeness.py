"""How alike our Pathfinder images and the original program's are: statistics of each image, and their distributions.

    python -m tests.tasks.likeness ORIGINALS.npz [--images 2000] [--fixture FILE.npz] [--json FILE.json]

compares the originals (images, labels, markers, the ends of the target paths' dashes, numbers of distractors, margins)
with ours, and writes the statistics of the originals for the tests, and the comparison as a record.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, stats

from linrnn.bench.measure import write
from linrnn.tasks.generators import contours

LIMITS = {32: 0.08, 128: 0.17}  # of D, for 1,000 and 132 originals; chance alone gives .05 and .12
BRIGHT = 64  # the least brightness of a component, not included
LEVELS = (0, 15, 31, 63, 95, 127, 159, 191, 223)  # shares of pixels brighter than these

Values = NDArray[np.float32]
Statistics = dict[str, Values]


class Images(NamedTuple):
    """Images and what is known of them.

    Attributes:
        images: (images, size, size).
        labels: (images,).
        markers: (images, 2, 2), at the start of a path and at the end of one.
        ends: (images, 2, dashes - 1, 2), the heads of both target paths' dashes but the first.
        distractors: (images,), the number of distractor paths.
        margins: (images,).
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    markers: NDArray[np.int64]
    ends: NDArray[np.int64]
    distractors: NDArray[np.int64]
    margins: NDArray[np.int64]


def originals(path: Path) -> Images:
    with np.load(path) as file:
        fields = {name: file[name] for name in Images._fields}
    return Images(**{name: value if name == "images" else value.astype(np.int64) for name, value in fields.items()})


def ours(size: int, count: int, seed: int = 0) -> Images:
    rules = contours.RULES[size]
    traces = [contours.trace(rules, seed, number) for number in range(count)]
    heads = [traced.dashes[2 : 2 * rules.path, :2] for traced in traces]
    return Images(
        images=np.stack([contours.draw(rules, traced) for traced in traces]),
        labels=np.array([traced.label for traced in traces]),
        markers=np.array([traced.markers for traced in traces]),
        ends=np.array([[way[0::2], way[1::2]] for way in heads]),
        distractors=np.array([traced.paths.max() - 1 for traced in traces]),
        margins=np.array([traced.margin for traced in traces]),
    )


def statistics(given: Images) -> Statistics:
    """One value of each statistic for each image, but those of one label, which have only that label's images."""
    rules = contours.RULES[given.images.shape[1]]
    firsts, lasts = given.ends[:, :, 0], given.ends[:, :, -1]
    four = np.concatenate([firsts, lasts], axis=1)
    apart = _distance(four[:, :, None], four[:, None])
    apart[:, range(4), range(4)] = np.inf
    markers = _distance(given.markers[:, 0], given.markers[:, 1])
    steps = np.diff(given.ends, axis=2)
    angles = np.arctan2(steps[..., 0], steps[..., 1])
    turns = np.abs(np.angle(np.exp(1j * np.diff(angles, axis=2))))
    found = {
        "components": [ndimage.label(image > BRIGHT, np.ones((3, 3)))[1] for image in given.images],
        "distractors": given.distractors,
        "dashes": 2 * rules.path + rules.distractor_path * given.distractors,
        "least distance of the paths": _distance(given.ends[:, 0, :, None], given.ends[:, 1, None]).min(axis=(1, 2)),
        "crossings of the paths": [_crossings(*ends) for ends in given.ends],
        "least distance of the four ends": apart.min(axis=(1, 2)),
        "distance of the ends": _distance(lasts[:, 0], lasts[:, 1]),
        "distance of the markers, label 0": markers[given.labels == 0],
        "distance of the markers, label 1": markers[given.labels == 1],
        "from the start of a path to its end": _distance(firsts, lasts).mean(axis=1),
        "mean turn": turns.mean(axis=(1, 2)),
        "mean step": np.hypot(steps[..., 0], steps[..., 1]).mean(axis=(1, 2)),
        "mean row": given.ends[..., 0].mean(axis=(1, 2)),
        "mean column": given.ends[..., 1].mean(axis=(1, 2)),
        "mean brightness": given.images.mean(axis=(1, 2)) / 255,
        "deviation of brightness": given.images.std(axis=(1, 2)) / 255,
        "change from column to column": np.abs(np.diff(given.images.astype(int), axis=2)).mean(axis=(1, 2)),
        "change from row to row": np.abs(np.diff(given.images.astype(int), axis=1)).mean(axis=(1, 2)),
        **{f"share above {level}": (given.images > level).mean(axis=(1, 2)) for level in LEVELS},
        **{f"around the markers, at {near} pixels": _around(given, near) for near in range(6)},
    }
    return {name: np.asarray(values, np.float32) for name, values in found.items()}


def differences(one: Statistics, other: Statistics) -> dict[str, float]:
    """The two-sample Kolmogorov–Smirnov D of each statistic."""
    return {name: float(stats.ks_2samp(one[name], other[name]).statistic) for name in one}


def _distance(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
    difference = (a - b).astype(float)
    found: NDArray[np.float64] = np.hypot(difference[..., 0], difference[..., 1])
    return found


def _crossings(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """How many pairs of segments of two polygonal lines cross."""

    def side(p: NDArray[np.int64], q: NDArray[np.int64], r: NDArray[np.int64]) -> NDArray[np.int64]:
        first, second = q - p, r - p
        found: NDArray[np.int64] = np.sign(first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0])
        return found

    p, q, r, s = a[:-1, None], a[1:, None], b[None, :-1], b[None, 1:]
    return int(((side(p, q, r) * side(p, q, s) < 0) & (side(r, s, p) * side(r, s, q) < 0)).sum())


def _around(given: Images, near: int) -> NDArray[np.float64]:
    """The mean brightness of the pixels about so far from a marker."""
    size = given.images.shape[1]
    rows, columns = np.mgrid[:size, :size]
    means = []
    for image, marked in zip(given.images, given.markers, strict=True):
        ring = np.zeros(image.shape, bool)
        for y, x in marked:
            ring |= np.round(np.hypot(rows - y, columns - x)) == near
        means.append(image[ring].mean() / 255)
    return np.array(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("originals", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixture", type=Path, help="where to write the statistics of the originals")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    given = originals(arguments.originals)
    size = given.images.shape[1]
    theirs = statistics(given)
    if arguments.fixture is not None:
        np.savez_compressed(arguments.fixture, **theirs)  # type: ignore[arg-type]
    found = statistics(ours(size, arguments.images, arguments.seed))
    results = {
        name: {"originals": float(theirs[name].mean()), "ours": float(found[name].mean()), "D": distance}
        for name, distance in differences(theirs, found).items()
    }
    for name, row in results.items():
        print(f"{name:40} {row['originals']:9.4f} {row['ours']:9.4f}   D {row['D']:.3f}")
    command = f"python -m tests.tasks.likeness {arguments.originals.name} --images {arguments.images}"
    about = {"size": size, "originals": len(given.images), "ours": arguments.images, "seed": arguments.seed}
    write(arguments.json, command, {**about, "statistics": results})


if __name__ == "__main__":
    main()
