"""The generator of Pathfinder images: two long dashed paths among short ones, and two ends of the long ones marked.

An image is first traced, dash by dash, then drawn. It depends only on the seed and the image's number, by a separate
random generator, so the order of generation does not matter. The label decides only one thing: whether the second
marker is at the end of the path whose start has the first marker, or at the end of the other path.

A soft mask of 0 to 255, of the earlier dashes and the border, keeps dashes apart. A path's last dash is added to the
mask when the next dash is placed, so that neighbours on a path may be close.

Places are pixels (y, x): a head is rounded down, a pivot is rounded up. `strokes` draws dashes, masks and markers.

The rules are the original program's, including its apparent mistakes: the last dash of the first path is never part of
the mask, and the kernel that decides where a path starts is displaced by one pixel. The images were compared with 1,000
images of the program of 32×32 and 132 of 128×128. No images of 64×64 were available; we assume the same rules with
other settings. One difference is intended: the labels are balanced, where the original program draws each label
independently.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.generators.strokes import (
    DEGREES,
    WHITE,
    Floats,
    Ints,
    Pixels,
    Rules,
    Strokes,
    levels,
    markers,
    strokes,
)
from linrnn.util.jit import jit

TRIES = 3  # of a dash
DISTRACTOR_TRIES = 5  # of a short path
FULL = 459  # the sum of a dash's mask and the mask so far is below this everywhere: 1.8 · 255
FREE = 76  # the highest value of a free pixel of the mask: .3 · 255
NOWHERE = 1e-4  # the sum of the weights of all heads from which a path cannot be continued
DRAWS = 64  # for a free pixel, before all are listed
G, M1, M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64's

State = NDArray[np.uint64]

RULES = {
    rules.size: rules
    for rules in (  # size, border, seeds, radius; path, dash, thickness; margins; continuity; distractors; brightnesses
        Rules(32, 1, 7, 1.5, 14, 2, 0.5, 1, 1, 1.0, 5, 4, 1.5, 2.0, 1.0),
        Rules(64, 1, 12, 2.5, 14, 5, 1.0, 1, 1, 1.8, 5, 4, 0.8, 0.8, 1.0),
        Rules(128, 1, 20, 3.0, 14, 5, 1.5, 2, 3, 1.8, 8, 4, 0.9, 0.9, 1.0),
    )
}


class Trace(NamedTuple):
    """The geometry of an image.

    Attributes:
        dashes: (dashes, 3), the pixel (y, x) at which each is drawn and its row in the tables of `Strokes`: the tail of
            the first dash of a path, the heads of the others. The two targets' dashes come first, alternately.
        paths: (dashes,), the path each belongs to: 0 and 1 are the targets, the others distractors.
        markers: (2, 2), the pixels marked.
        margin: half the gap between the dashes.
        label: 1 if a path joins the markers, otherwise 0.
    """

    dashes: Ints
    paths: Ints
    markers: Ints
    margin: int
    label: int


def trace(rules: Rules, seed: int, number: int) -> Trace:
    """The geometry of the image of this number."""
    dashes, paths = _room(rules)
    marked, margin, count, label = _trace(rules, _tables(rules), np.uint64(seed), np.uint64(number), dashes, paths)
    return Trace(dashes[:count], paths[:count], marked, margin, label)


def draw(rules: Rules, traced: Trace) -> Pixels:
    """The image (size, size) of a geometry."""
    image = np.empty((rules.size, rules.size), np.uint8)
    table = strokes(rules, traced.margin)
    _draw(table, markers(rules), levels(rules), traced.dashes, traced.paths, traced.markers, image)
    return image


def fill(rules: Rules, seed: int, first: int, images: Pixels, labels: Ints) -> None:
    """Trace and draw the images from number `first` on into (images, size, size), and write their labels.

    It runs on one core and releases the interpreter lock, so that threads can share the work.
    """
    dashes, paths = _room(rules)
    tables, marks = _tables(rules), markers(rules)
    _fill(rules, tables, marks, levels(rules), np.uint64(seed), np.uint64(first), dashes, paths, images, labels)


def _tables(rules: Rules) -> tuple[Strokes, ...]:
    return tuple(strokes(rules, margin) for margin in range(rules.margin_low, rules.margin_high + 1))


def _room(rules: Rules) -> tuple[Ints, Ints]:
    most = 2 * rules.path + rules.distractors * rules.distractor_path
    return np.empty((most, 3), np.int64), np.empty(most, np.int64)


@jit
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * M1
    z = (z ^ (z >> np.uint64(27))) * M2
    return z ^ (z >> np.uint64(31))


@jit
def _uniform(state: State) -> float:
    """splitmix64: the next number, from 0 to 1."""
    state[0] += G
    return float((_mix(state[0]) >> np.uint64(11)) * 2.0**-53)


@jit
def _below(state: State, high: int) -> int:
    """The next integer from 0 to high - 1."""
    return int(_uniform(state) * high)


@jit
def _label(seed: np.uint64, number: np.uint64) -> int:
    """Each pair of images has both labels in random order: from an even number on, the counts differ by at most 1."""
    pair = _mix(_mix(seed + G) ^ (number >> np.uint64(1)))
    return int((pair ^ number) & np.uint64(1))


@jit
def _fill(
    rules: Rules,
    tables: tuple[Strokes, ...],
    marks: Pixels,
    bright: Floats,
    seed: np.uint64,
    first: np.uint64,
    dashes: Ints,
    paths: Ints,
    images: Pixels,
    labels: Ints,
) -> None:
    for i in range(len(images)):
        number = first + np.uint64(i)
        marked, margin, count, label = _trace(rules, tables, seed, number, dashes, paths)
        _draw(tables[margin - rules.margin_low], marks, bright, dashes[:count], paths[:count], marked, images[i])
        labels[i] = label


# The trace. `dashes` and `paths` are filled from the front. A path grows at its tip, (y, x) and an orientation: the
# pivot of its last dash, from which the next pivot and the change of orientation follow. The mask is wider than the
# image by half a stroke on each side, so that no stroke leaves it.


@jit
def _trace(
    rules: Rules, tables: tuple[Strokes, ...], seed: np.uint64, number: np.uint64, dashes: Ints, paths: Ints
) -> tuple[Ints, int, int, int]:
    state = np.empty(1, np.uint64)
    state[0] = _mix(_mix(seed) + number)
    kind = _below(state, len(tables))
    table = tables[kind]
    side = rules.size + table.mask.shape[1] - 1
    mask, tips = np.empty((side, side), np.uint8), np.empty((2, 3), np.int64)
    while not _targets(rules, table, state, mask, tips, dashes):
        pass
    count = 2 * rules.path
    for i in range(count):
        paths[i] = i % 2
    label, start = _label(seed, number), _below(state, 2)
    marked = np.empty((2, 2), np.int64)
    marked[0] = dashes[start, :2]
    marked[1] = dashes[count - 2 + (start if label == 1 else 1 - start), :2]
    trial = np.empty_like(mask)
    path = 2
    for _ in range(rules.distractors):
        for _ in range(DISTRACTOR_TRIES):
            trial[:] = mask
            if _distractor(rules, table, state, trial, tips[0], dashes[count : count + rules.distractor_path]):
                mask[:] = trial
                paths[count : count + rules.distractor_path] = path
                count, path = count + rules.distractor_path, path + 1
                break
    return marked, kind + rules.margin_low, count, label


@jit
def _targets(rules: Rules, table: Strokes, state: State, mask: Pixels, tips: Ints, dashes: Ints) -> bool:
    """Both target paths, dash by dash alternately; False if a path cannot be continued."""
    if not _first(rules, table, state, tips[0], dashes[0]) or not _second(rules, table, state, tips[1], dashes):
        return False
    half = table.mask.shape[1] // 2
    mask[:] = 0
    mask[half:-half, half:-half] = WHITE
    mask[half + rules.border : -half - rules.border, half + rules.border : -half - rules.border] = 0
    for i in range(2, 2 * rules.path):
        if not _grow(rules, table, state, mask, tips[i % 2], dashes[i]):
            return False
        _occupy(table, mask, dashes[i - 2])
    _occupy(table, mask, dashes[2 * rules.path - 1])  # as in the original program, without the other path's last dash
    return True


@jit
def _first(rules: Rules, table: Strokes, state: State, tip: Ints, dash: Ints) -> bool:
    """The first dash of the first path: everything that must be free is twice the seed distance from the border."""
    low, high = 2 * rules.seed_distance, rules.size - 2 * rules.seed_distance
    for _ in range(TRIES):
        degree = _below(state, DEGREES)
        kernel = table.kernel[degree, : table.cells[degree]]
        if len(kernel) == 0:
            return False
        top, left = low - kernel[:, 0].min(), low - kernel[:, 1].min()
        height, width = high - kernel[:, 0].max() - top, high - kernel[:, 1].max() - left
        if min(height, width) <= 0:
            return False
        if _start(rules, table, degree, top + _below(state, height), left + _below(state, width), tip, dash):
            return True
    return False


@jit
def _second(rules: Rules, table: Strokes, state: State, tip: Ints, dashes: Ints) -> bool:
    """The first dash of the second path, at the seed distance from the first dash."""
    for _ in range(TRIES):
        degree, way = _below(state, DEGREES), table.around[_below(state, DEGREES)]
        y, x = round(dashes[0, 0] + way[0]), round(dashes[0, 1] + way[1])
        if _start(rules, table, degree, y, x, tip, dashes[1]):
            return True
    return False


@jit
def _distractor(rules: Rules, table: Strokes, state: State, mask: Pixels, tip: Ints, dashes: Ints) -> bool:
    """A short path at any free place; False if it cannot be continued."""
    for _ in range(TRIES):
        degree = _below(state, DEGREES)
        y, x = _free(rules, table, state, mask, degree)
        if y < 0:
            return False
        if _start(rules, table, degree, y, x, tip, dashes[0]):
            break
    else:
        return False
    for i in range(1, len(dashes)):
        if not _grow(rules, table, state, mask, tip, dashes[i]):
            return False
        _occupy(table, mask, dashes[i - 1])
    _occupy(table, mask, dashes[-1])
    return True


@jit
def _start(rules: Rules, table: Strokes, degree: int, y: int, x: int, tip: Ints, dash: Ints) -> bool:
    """Place the first dash of a path; False if its head or its pivot is outside of the image."""
    ways = table.starts[degree]
    head_y, head_x = math.ceil(y + ways[0, 0]), math.ceil(x + ways[0, 1])
    pivot_y, pivot_x = math.ceil(head_y + ways[1, 0]), math.ceil(head_x + ways[1, 1])
    if min(head_y, head_x, pivot_y, pivot_x) < 0 or max(head_y, head_x, pivot_y, pivot_x) >= rules.size:
        return False
    row = len(table.heads) + degree
    tip[0], tip[1], tip[2] = pivot_y, pivot_x, row
    dash[0], dash[1], dash[2] = y, x, row
    return True


@jit
def _free(rules: Rules, table: Strokes, state: State, mask: Pixels, degree: int) -> tuple[int, int]:
    """A uniformly random pixel around which everything is free for a first dash; (-1, -1) if there is none."""
    kernel, half = table.kernel[degree, : table.cells[degree]], table.mask.shape[1] // 2
    if len(kernel) == 0:
        return -1, -1
    for _ in range(DRAWS):
        y, x = _below(state, rules.size), _below(state, rules.size)
        if _is_free(mask, kernel, half, y, x):
            return y, x
    found = np.empty((rules.size**2, 2), np.int64)
    count = 0
    for y in range(rules.size):
        for x in range(rules.size):
            if _is_free(mask, kernel, half, y, x):
                found[count, 0], found[count, 1] = y, x
                count += 1
    if count == 0:
        return -1, -1
    chosen = _below(state, count)
    return found[chosen, 0], found[chosen, 1]


@jit
def _is_free(mask: Pixels, kernel: Ints, half: int, y: int, x: int) -> bool:
    i = 0
    while i < len(kernel) and mask[half + y + kernel[i, 0], half + x + kernel[i, 1]] <= FREE:
        i += 1
    return i == len(kernel)


@jit
def _grow(rules: Rules, table: Strokes, state: State, mask: Pixels, tip: Ints, dash: Ints) -> bool:
    """Add a dash to a path; False, with nothing added, if the path cannot be continued."""
    y, x = math.ceil(tip[0] + table.steps[tip[2], 0]), math.ceil(tip[1] + table.steps[tip[2], 1])
    weights = np.empty(len(table.heads))
    total = _weigh(rules, table, mask, y, x, table.turns[tip[2]], weights)
    if total < NOWHERE:
        return False
    for _ in range(TRIES):
        choice, left = 0, _uniform(state) * total
        while left >= weights[choice] and choice < len(weights) - 1:
            left -= weights[choice]
            choice += 1
        head_y, head_x = y + table.heads[choice, 0], x + table.heads[choice, 1]
        if _fits(mask, table.mask[choice], head_y, head_x):
            tip[0], tip[1], tip[2] = y, x, choice
            dash[0], dash[1], dash[2] = head_y, head_x, choice
            return True
    return False


@jit
def _weigh(rules: Rules, table: Strokes, mask: Pixels, y: int, x: int, turns: Floats, weights: Floats) -> float:
    """The weights of the heads around a pivot, and their sum: by the change of orientation, and by the free share
    within the margin."""
    half, total = table.mask.shape[1] // 2, 0.0
    for i in range(len(weights)):
        head_y, head_x = y + table.heads[i, 0], x + table.heads[i, 1]
        weights[i] = 0.0
        if turns[i] > 0 and 0 <= head_y < rules.size and 0 <= head_x < rules.size:
            occupied = 0
            for j in range(len(table.disc)):
                occupied = max(occupied, mask[half + head_y + table.disc[j, 0], half + head_x + table.disc[j, 1]])
            weights[i] = turns[i] * (1 - occupied / WHITE)
            total += weights[i]
    return total


@jit
def _fits(mask: Pixels, stroke: Pixels, y: int, x: int) -> bool:
    """Whether a stroke and the mask so far overlap little enough."""
    for i in range(len(stroke)):
        for j in range(len(stroke)):
            if mask[y + i, x + j] + stroke[i, j] >= FULL:
                return False
    return True


@jit
def _occupy(table: Strokes, mask: Pixels, dash: Ints) -> None:
    """Add a dash to the mask."""
    stroke = table.mask[dash[2]]
    for i in range(len(stroke)):
        for j in range(len(stroke)):
            mask[dash[0] + i, dash[1] + j] = max(mask[dash[0] + i, dash[1] + j], stroke[i, j])


@jit
def _draw(
    table: Strokes, marks: Pixels, bright: Floats, dashes: Ints, paths: Ints, marked: Ints, image: Pixels
) -> None:
    """Merge dashes and markers by the maximum, and stretch from black to white."""
    size, side = len(image), table.line.shape[1]
    canvas = np.zeros((size, size))
    for i in range(len(dashes)):
        y, x, row = dashes[i]
        _stamp(canvas, table.line[row], y - side // 2, x - side // 2, bright[0 if paths[i] < 2 else 1])
    side = len(marks)
    for i in range(len(marked)):
        y, x = marked[i]
        top, left = min(max(y - side // 2, 0), size - side), min(max(x - side // 2, 0), size - side)
        _stamp(canvas, marks[y - top, x - left], top, left, bright[2])
    scale = WHITE / canvas.max()
    for i in range(size):
        for j in range(size):
            image[i, j] = np.uint8(canvas[i, j] * scale + 0.5)


@jit
def _stamp(canvas: Floats, stamp: Pixels, top: int, left: int, bright: Floats) -> None:
    """Put a picture with its upper left corner at a place, clipped to the canvas."""
    for i in range(max(0, -top), min(len(stamp), len(canvas) - top)):
        for j in range(max(0, -left), min(len(stamp), len(canvas) - left)):
            canvas[top + i, left + j] = max(canvas[top + i, left + j], bright[stamp[i, j]])
