"""The pixels of dashes, masks and markers of Pathfinder, and the places for the next dash of a path.

They depend only on the orientation of the dash, and there are few orientations: whole degrees for the first dash of a
path, and the pixels on a circle around a pivot for all other dashes. So each is drawn only once.

A dash is drawn on a canvas of twice the size, as a line between two pixels, and reduced by a Lanczos filter to 8 bits.
Its mask is the line dilated by a disc of twice the margin, reduced in the same way. Pillow draws and reduces, so that
the pixels equal the benchmark's images bit by bit.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.util import extras

WHITE = 255
REACH = 6  # pixels from the disc of a marker to the nearest pixel whose filter leaves the canvas, in no case more

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pixels = NDArray[np.uint8]


class Rules(NamedTuple):
    """The settings of the images of one size; lengths in pixels.

    Attributes:
        size: of a side.
        border: kept free of dashes.
        seed_distance: between the starts of the two target paths.
        marker_radius: of the filled discs.
        path: dashes in a target path.
        dash, thickness: of each dash.
        margin_low, margin_high: half the gap between dashes, drawn for each image, both ends included.
        continuity: the straightness of a path.
        distractors, distractor_path: the number of short paths, and of dashes in each.
        target, distractor, marker: the brightnesses.
    """

    size: int
    border: int
    seed_distance: int
    marker_radius: float
    path: int
    dash: int
    thickness: float
    margin_low: int
    margin_high: int
    continuity: float
    distractors: int
    distractor_path: int
    target: float
    distractor: float
    marker: float


class Strokes(NamedTuple):
    """Tables by orientation, for one margin: first the n pixels of the circle, then `DEGREES` whole degrees.

    Attributes:
        heads: (n, 2), from a pivot to the pixels on the circle around it, where the next dash may have its head.
        turns: (n + DEGREES, n), from the last orientation to the next: the weight cos² of the change.
        steps: (n + DEGREES, 2), from a pivot to the next one, to be rounded up to a pixel.
        starts: (DEGREES, 2, 2), of a first dash: from its tail to its head, and from there to its pivot; to be rounded
            up.
        around: (DEGREES, 2), from the tail of the first path to the second path's, to be rounded.
        line: (n + DEGREES, side, side), the dash: a first dash from its tail, in the middle, forward; any other from
            its head, in the middle, back.
        mask: (n + DEGREES, side, side), what the dash occupies.
        kernel: (DEGREES, most, 2), the pixels that must be free around the tail of a first dash, from the front of each
            row on.
        cells: (DEGREES,), the number of these pixels; 0 if no first dash has this orientation.
        disc: (pixels, 2), the pixels within the margin.
    """

    heads: Ints
    turns: Floats
    steps: Floats
    starts: Floats
    around: Floats
    line: Pixels
    mask: Pixels
    kernel: Ints
    cells: Ints
    disc: Ints


DEGREES = 360


@functools.cache
def strokes(rules: Rules, margin: int) -> Strokes:
    """The tables for one margin."""
    heads = _circle(rules.dash + margin)
    ahead = np.array([math.atan2(y, x) for y, x in heads])
    first = np.array([degree * math.pi / 180 for degree in range(-DEGREES // 2, DEGREES // 2)])
    drawn = [_dash(rules, margin, angle) for angle in (*map(_reversed, ahead), *first)]
    last = np.concatenate([ahead, first])
    turns = np.abs(last[:, None] - ahead)
    turns = np.minimum(turns, 2 * math.pi - turns) * rules.continuity
    kernel, cells = _kernels(rules.dash + margin, [mask for _, mask in drawn[len(heads) :]])
    return Strokes(
        heads=heads,
        turns=np.cos(np.minimum(turns, math.pi / 2)) ** 2,
        steps=np.array([_along(angle, rules.dash + 2 * margin) for angle in last]),
        starts=np.array([[_along(a, rules.dash), _along(_reversed(a), rules.dash + margin)] for a in first]),
        around=np.array([_along(angle, rules.seed_distance) for angle in first]),
        line=np.stack([line for line, _ in drawn]),
        mask=np.stack([mask for _, mask in drawn]),
        kernel=kernel,
        cells=cells,
        disc=np.argwhere(_disc(margin)) - margin,
    )


@functools.cache
def markers(rules: Rules) -> Pixels:
    """A marker in every place of a window (side, side): (side, side, side, side).

    The window is inside of the image, so that markers near the border are reduced as in the image.
    """
    side = 2 * (math.ceil(rules.marker_radius) + REACH) + 1
    places = np.arange(2 * side)
    drawn = np.empty((side, side, side, side), np.uint8)
    for y in range(side):
        for x in range(side):
            inside = (places[:, None] - 2 * y) ** 2 + (places - 2 * x) ** 2 <= (2 * rules.marker_radius) ** 2
            drawn[y, x] = _reduced(inside, side)
    return drawn


def _along(angle: float, distance: float) -> tuple[float, float]:
    return distance * math.sin(angle), distance * math.cos(angle)


def _reversed(angle: float) -> float:
    return angle + math.pi if angle < 0 else angle - math.pi


def _circle(radius: int) -> Ints:
    """The pixels on a circle, rounded down, from points one pixel of arc apart; sorted and unique."""
    angles = np.radians(np.arange(0, DEGREES, DEGREES / (2 * math.pi * radius)))
    points = {(math.floor(radius * math.sin(a)), math.floor(radius * math.cos(a))) for a in angles}
    return np.array(sorted(points))


def _disc(radius: int) -> NDArray[np.bool_]:
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    return np.asarray(y**2 + x**2 <= radius**2)


@functools.cache
def levels(rules: Rules) -> Floats:
    """The brightness (3, 256) of target dashes, distractor dashes and markers, for each of their 256 levels.

    In single precision, as in the original program: the precision decides how levels between two integers are rounded.
    """
    scales = np.array([[rules.target], [rules.distractor], [rules.marker]])
    found: Floats = (np.arange(256) / WHITE * scales).astype(np.float32).astype(np.float64)
    return found


def _dash(rules: Rules, margin: int, angle: float) -> tuple[Pixels, Pixels]:
    """The line (side, side) from the middle in a direction, and its mask."""
    reach = rules.dash + math.ceil(rules.thickness) + margin
    y, x = (2 * reach + way for way in _along(angle, 2 * rules.dash))
    return _line(reach, math.ceil(y), math.ceil(x), round(2 * rules.thickness), 2 * margin)


@functools.cache
def _line(reach: int, y: int, x: int, width: int, radius: int) -> tuple[Pixels, Pixels]:
    """The line to (y, x) on the large canvas, reduced, and its mask: the line dilated by a disc, reduced."""
    with extras.needed("drawing Pathfinder's images"):
        from PIL import Image, ImageDraw

    canvas = Image.new("L", (4 * reach + 1, 4 * reach + 1))
    ImageDraw.Draw(canvas).line([(2 * reach, 2 * reach), (x, y)], fill=WHITE, width=width)
    lit = np.asarray(canvas) > 0
    padded, dilated = np.pad(lit, radius), np.zeros_like(lit)
    for i, j in np.argwhere(_disc(radius)):
        dilated |= padded[i : i + len(lit), j : j + len(lit)]
    return _reduced(lit, 2 * reach + 1), _reduced(dilated, 2 * reach + 1)


def _reduced(lit: NDArray[np.bool_], side: int) -> Pixels:
    """A canvas in black and white, reduced to (side, side) in 8 bits."""
    from PIL import Image

    canvas = Image.fromarray(np.where(lit, WHITE, 0).astype(np.uint8))
    return np.asarray(canvas.resize((side, side), Image.Resampling.LANCZOS))


def _kernels(reach: int, masks: list[Pixels]) -> tuple[Ints, Ints]:
    """The full pixels of masks, as places around the tail of a dash.

    As in the original program, they are displaced from the dash by one pixel down and to the right. The program also
    concludes that no pixel is free if the whole kernel around a corner of the image lies outside. At 32 × 32 this
    leaves so few orientations that the first path starts up and to the left, and most distractors are missing.
    """
    found = []
    for mask in masks:
        places = np.argwhere(mask == WHITE) - len(mask) // 2 + 1
        places = places[(np.abs(places) <= reach).all(axis=1)]
        inside = all((places * corner >= 0).all(axis=1).any() for corner in ((1, 1), (1, -1), (-1, 1), (-1, -1)))
        found.append(places if inside else places[:0])
    cells = np.array([len(places) for places in found])
    padded = np.zeros((len(found), cells.max(), 2), np.int64)
    for row, places in zip(padded, found, strict=True):
        row[: len(places)] = places
    return padded, cells
