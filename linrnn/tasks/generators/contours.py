"""The generator of Pathfinder images: two long dashed paths among short ones, and two of the long ones' ends marked.

An image is first traced, as dashes, then drawn. Everything in it follows from the seed and the image's number, by a
random generator of its own, so that it is the same whoever makes it and in whatever order. The label decides one thing
alone: whether the second marker goes to the end of the path whose start bears the first, or to the end of the other.

Where the rules leave it open: a dash lies in the middle between two pivots, a margin from each; dashes that are no
neighbours on a path stay apart by two margins, edge to edge; the four ends of the long paths stay apart so that no two
markers could touch; and an image is stretched so that its brightest pixel is white, which may be one of a dash: the
brightnesses multiply, and none is cut off.

Places are (y, x) in pixels, of which the one in row i and column j covers [i, i + 1] × [j, j + 1].
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.util.jit import jit

TRIES = 4  # of a dash: one, and three more
DISTRACTOR_TRIES = 5
SEED_TRIES = 64  # to hit a free pixel
LANCZOS = 3  # lobes of the filter
TAPS = 4 * LANCZOS  # pixels of the large canvas that a pixel of the image is made from
G, M1, M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64's

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
State = NDArray[np.uint64]
Grey = NDArray[np.float32]
Pixels = NDArray[np.uint8]


class Rules(NamedTuple):
    """What the images of one size are made of; lengths in pixels.

    Attributes:
        size: of a side.
        border: kept free of dashes.
        seed_distance: between the starts of the two target paths.
        marker_radius: of the filled discs.
        path: dashes in a target path.
        dash, thickness: of each dash.
        margin_low, margin_high: half the gap between dashes, drawn for each image, both ends included.
        continuity: how little a path turns.
        distractors, distractor_path: how many short paths, and of how many dashes.
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
        dashes: (dashes, 4), each from (y, x) to (y, x), in the order in which a path runs.
        paths: (dashes,), the path each belongs to: 0 and 1 are the targets, the others distractors.
        markers: (2, 2), the places marked.
        margin: half the gap between the dashes.
        label: 1 where one path joins the markers, 0 where none does.
    """

    dashes: Floats
    paths: Ints
    markers: Floats
    margin: int
    label: int


def trace(rules: Rules, seed: int, number: int) -> Trace:
    """The geometry of the image of this number."""
    dashes, paths = _room(rules)
    markers, margin, count, label = _trace(rules, np.uint64(seed), np.uint64(number), dashes, paths)
    return Trace(dashes[:count], paths[:count], markers, margin, label)


def draw(rules: Rules, traced: Trace) -> Pixels:
    """The image (size, size) of a geometry."""
    image = np.empty((rules.size, rules.size), np.uint8)
    _draw(rules, traced.dashes, traced.paths, traced.markers, *_lanczos(rules.size), image)
    return image


def fill(rules: Rules, seed: int, first: int, images: Pixels, labels: Ints) -> None:
    """Trace and draw the images from number `first` on into (images, size, size), with their labels beside.

    It needs one core and holds no lock, so that threads can share the work.
    """
    _fill(rules, np.uint64(seed), np.uint64(first), *_room(rules), *_lanczos(rules.size), images, labels)


def _room(rules: Rules) -> tuple[Floats, Ints]:
    most = 2 * rules.path + rules.distractors * rules.distractor_path
    return np.empty((most, 4)), np.empty(most, np.int64)


@functools.cache
def _lanczos(size: int) -> tuple[Grey, Ints]:
    """To halve a side: for each pixel its weights (size, TAPS), and the first of the 2·size pixels they are for."""
    centre = 2 * np.arange(size) + 1  # on the large canvas
    start = np.clip(centre - TAPS // 2, 0, 2 * size - TAPS)
    distance = (start[:, None] + np.arange(TAPS) + 0.5 - centre[:, None]) / 2
    weights = np.where(np.abs(distance) < LANCZOS, np.sinc(distance) * np.sinc(distance / LANCZOS), 0.0)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32), start


@jit
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * M1
    z = (z ^ (z >> np.uint64(27))) * M2
    return z ^ (z >> np.uint64(31))


@jit
def _uniform(state: State, low: float, high: float) -> float:
    """splitmix64: the next number, between low and high."""
    state[0] += G
    return low + (high - low) * ((_mix(state[0]) >> np.uint64(11)) * 2.0**-53)


@jit
def _label(seed: np.uint64, number: np.uint64) -> int:
    """One of each in every pair of images, in random order: from an even number on, no count is off by more than 1."""
    pair = _mix(_mix(seed + G) ^ (number >> np.uint64(1)))
    return int((pair ^ number) & np.uint64(1))


@jit
def _fill(
    rules: Rules,
    seed: np.uint64,
    first: np.uint64,
    dashes: Floats,
    paths: Ints,
    weights: Grey,
    starts: Ints,
    images: Pixels,
    labels: Ints,
) -> None:
    for i in range(len(images)):
        number = first + np.uint64(i)
        markers, _, count, label = _trace(rules, seed, number, dashes, paths)
        _draw(rules, dashes[:count], paths[:count], markers, weights, starts, images[i])
        labels[i] = label


# The trace. `dashes` and `paths` are filled from the front, `count` of them so far. A path grows at its tip, (y, x) and
# a direction (dy, dx): the pivot around which it turns, the margin behind its last dash and the margin before its next.


@jit
def _trace(
    rules: Rules, seed: np.uint64, number: np.uint64, dashes: Floats, paths: Ints
) -> tuple[Floats, int, int, int]:
    state = np.empty(1, np.uint64)
    state[0] = _mix(_mix(seed) + number)
    margin = int(_uniform(state, rules.margin_low, rules.margin_high + 1))
    while not _targets(rules, margin, state, dashes, paths):
        pass
    count = 2 * rules.path
    label, start = _label(seed, number), int(_uniform(state, 0, 2))
    markers = np.empty((2, 2))
    markers[0] = dashes[start, :2]
    markers[1] = dashes[count - 2 + (start if label == 1 else 1 - start), 2:]
    for path in range(2, 2 + rules.distractors):
        for _ in range(DISTRACTOR_TRIES):
            if _distractor(rules, margin, state, dashes, paths, count, path):
                count += rules.distractor_path
                break
    return markers, margin, count, label


@jit
def _targets(rules: Rules, margin: int, state: State, dashes: Floats, paths: Ints) -> bool:
    """Both target paths, dash by dash in turn; False where one got stuck."""
    tips = np.empty((2, 4))
    y, x = _pixel(state, 2 * rules.seed_distance, rules.size - 2 * rules.seed_distance)
    _start(margin, state, y, x, tips[0])
    angle = _uniform(state, 0, 2 * math.pi)
    y += rules.seed_distance * math.sin(angle)
    x += rules.seed_distance * math.cos(angle)
    _start(margin, state, y, x, tips[1])
    for count in range(2 * rules.path):
        if not _grow(rules, margin, state, dashes, paths, count, count % 2, tips[count % 2], count - 2):
            return False
    return _ends_apart(rules, dashes)


@jit
def _ends_apart(rules: Rules, dashes: Floats) -> bool:
    """Whether no two markers would touch, wherever they go: asked of all four ends, so that it tells no label."""
    apart = 2 * rules.marker_radius + 2
    a, b = dashes[2 * rules.path - 2, 2:], dashes[2 * rules.path - 1, 2:]  # the ends; the starts are apart anyway
    for path in range(2):
        y, x = dashes[path, 0], dashes[path, 1]
        if min(math.hypot(a[0] - y, a[1] - x), math.hypot(b[0] - y, b[1] - x)) < apart:
            return False
    return math.hypot(a[0] - b[0], a[1] - b[1]) >= apart


@jit
def _distractor(rules: Rules, margin: int, state: State, dashes: Floats, paths: Ints, count: int, path: int) -> bool:
    """A short path anywhere free; False where it got stuck."""
    tip = np.empty(4)
    y, x = _pixel(state, 0, rules.size)
    for _ in range(SEED_TRIES):
        if _free(rules, margin, dashes, count, -1, y, x):
            break
        y, x = _pixel(state, 0, rules.size)
    _start(margin, state, y, x, tip)
    for k in range(rules.distractor_path):
        if not _grow(rules, margin, state, dashes, paths, count + k, path, tip, count + k - 1 if k else -1):
            return False
    return True


@jit
def _pixel(state: State, low: float, high: float) -> tuple[float, float]:
    """The middle of a pixel, in rows and columns from low to high."""
    return math.floor(_uniform(state, low, high)) + 0.5, math.floor(_uniform(state, low, high)) + 0.5


@jit
def _start(margin: int, state: State, y: float, x: float, tip: Floats) -> None:
    """The tip from which the first dash of a path starts at a place, in any direction."""
    angle = _uniform(state, 0, 2 * math.pi)
    dy, dx = math.sin(angle), math.cos(angle)
    tip[0], tip[1], tip[2], tip[3] = y - margin * dy, x - margin * dx, dy, dx


@jit
def _grow(
    rules: Rules, margin: int, state: State, dashes: Floats, paths: Ints, count: int, path: int, tip: Floats, last: int
) -> bool:
    """Add a dash to a path whose dash before it is `last`, below 0 for none; False where it touches another."""
    if last < 0:
        return _place(rules, margin, dashes, paths, count, path, tip, last)
    directions, weights = _heads(rules, margin, dashes, count, tip, last)
    if len(weights) == 0:
        return False
    for _ in range(TRIES):
        choice, left = 0, _uniform(state, 0, weights.sum())
        while left >= weights[choice] and choice < len(weights) - 1:
            left -= weights[choice]
            choice += 1
        tip[2], tip[3] = directions[choice, 0], directions[choice, 1]
        if _place(rules, margin, dashes, paths, count, path, tip, last):
            return True
    return False


@jit
def _heads(rules: Rules, margin: int, dashes: Floats, count: int, tip: Floats, last: int) -> tuple[Floats, Floats]:
    """The directions to the free pixels on a circle around the tip, and their weights: cos² of the turn."""
    radius = margin + rules.dash
    directions, weights = np.empty((8 * radius, 2)), np.empty(8 * radius)
    n, straight = 0, math.cos(math.pi / 2 / rules.continuity)
    for i in range(*_ahead(rules, radius, tip[0], tip[2])):
        for j in range(*_ahead(rules, radius, tip[1], tip[3])):
            y, x = i + 0.5 - tip[0], j + 0.5 - tip[1]
            if abs(y**2 + x**2 - radius**2) >= radius:  # half a pixel from the circle, as near as makes no difference
                continue
            distance = math.sqrt(y**2 + x**2)
            cosine = (y * tip[2] + x * tip[3]) / distance
            if cosine > straight and _free(rules, margin, dashes, count, last, i + 0.5, j + 0.5):
                directions[n, 0], directions[n, 1] = y / distance, x / distance
                weights[n] = math.cos(rules.continuity * math.acos(min(cosine, 1.0))) ** 2
                n += 1
    return directions[:n], weights[:n]


@jit
def _ahead(rules: Rules, radius: int, place: float, direction: float) -> tuple[int, int]:
    """The rows, or columns, in which the pixels on the circle lie that have any weight."""
    span = 2 * radius * math.sin(math.pi / 4 / rules.continuity)  # from the point straight ahead, after the widest turn
    low = max(place - radius, place + radius * direction - span, rules.border + 0.0)
    high = min(place + radius, place + radius * direction + span, rules.size - rules.border - 1.0)
    return math.floor(low - 0.5), math.floor(high + 1.5)


@jit
def _place(
    rules: Rules, margin: int, dashes: Floats, paths: Ints, count: int, path: int, tip: Floats, last: int
) -> bool:
    """Put a dash ahead of the tip and move the tip past it; False, with nothing moved, where it touches another."""
    y, x, dy, dx = tip[0], tip[1], tip[2], tip[3]
    far = margin + rules.dash
    dash = dashes[count]
    dash[0], dash[1], dash[2], dash[3] = y + margin * dy, x + margin * dx, y + far * dy, x + far * dx
    paths[count] = path
    if not (
        _free(rules, margin, dashes, count, last, dash[0], dash[1])
        and _free(rules, margin, dashes, count, last, dash[2], dash[3])
    ):
        return False
    reach = _reach(rules, margin)
    for i in range(count):  # where its ends are away from the others, theirs may still be too near to it
        if i != last and (
            _squared(dash, dashes[i, 0], dashes[i, 1]) < reach**2
            or _squared(dash, dashes[i, 2], dashes[i, 3]) < reach**2
        ):
            return False
    tip[0], tip[1] = y + (far + margin) * dy, x + (far + margin) * dx
    return True


@jit
def _free(rules: Rules, margin: int, dashes: Floats, count: int, last: int, y: float, x: float) -> bool:
    """Whether a dash may come to a place: not in the border, nor near one drawn before, but the last of its path."""
    edge = rules.border + rules.thickness / 2
    if min(y, x) < edge or max(y, x) > rules.size - edge:
        return False
    nearest = np.inf
    for i in range(count):
        if i != last:
            nearest = min(nearest, _squared(dashes[i], y, x))
    return nearest >= _reach(rules, margin) ** 2


@jit
def _reach(rules: Rules, margin: int) -> float:
    """How near two dashes may come, middle to middle: both widened by the margin, they do not overlap.

    It is more than half a dash, so that no two cross with all of their ends further apart than this.
    """
    return 2 * margin + rules.thickness


@jit
def _squared(dash: Floats, y: float, x: float) -> float:
    """The squared distance of a place from a dash."""
    along_y, along_x = dash[2] - dash[0], dash[3] - dash[1]
    part = ((y - dash[0]) * along_y + (x - dash[1]) * along_x) / (along_y**2 + along_x**2)
    part = min(max(part, 0.0), 1.0)
    return float((y - dash[0] - part * along_y) ** 2 + (x - dash[1] - part * along_x) ** 2)


# The drawing: dashes at twice the size, reduced by Lanczos' filter; then the markers, pixel by pixel.


@jit
def _draw(
    rules: Rules, dashes: Floats, paths: Ints, markers: Floats, weights: Grey, starts: Ints, image: Pixels
) -> None:
    canvas = np.zeros((2 * rules.size, 2 * rules.size), np.float32)
    for i in range(len(dashes)):
        _line(canvas, dashes[i], rules.thickness, rules.target if paths[i] < 2 else rules.distractor)
    small = _halve(_halve(canvas, weights, starts).T.copy(), weights, starts).T
    for i in range(len(markers)):
        _disc(small, math.floor(markers[i, 0]), math.floor(markers[i, 1]), rules.marker_radius, rules.marker)
    # From black, where the filter's negative lobes end too, to white, the brightest pixel: no brightness is cut off.
    scale = np.float32(255) / small.max()
    for i in range(rules.size):
        for j in range(rules.size):
            image[i, j] = np.uint8(max(small[i, j], np.float32(0)) * scale + np.float32(0.5))


@jit
def _line(canvas: Grey, dash: Floats, thickness: float, brightness: float) -> None:
    """Draw a dash, with smooth edges: a pixel is lit by as much of it as is covered, were the dash upright."""
    y, x = dash[0] + dash[2], dash[1] + dash[3]  # its middle, at twice the size
    dy, dx = dash[2] - dash[0], dash[3] - dash[1]
    half = math.hypot(dy, dx)  # its half length, at twice the size
    reach = half + thickness + 1
    for i in range(max(0, math.floor(y - reach)), min(len(canvas), math.floor(y + reach) + 1)):
        for j in range(max(0, math.floor(x - reach)), min(len(canvas), math.floor(x + reach) + 1)):
            along = abs((i + 0.5 - y) * dy + (j + 0.5 - x) * dx) / half
            across = abs((i + 0.5 - y) * dx - (j + 0.5 - x) * dy) / half
            covered = min(max(half + 0.5 - along, 0), 1) * min(max(thickness + 0.5 - across, 0), 1)
            canvas[i, j] = max(canvas[i, j], np.float32(covered * brightness))


@jit
def _disc(canvas: Grey, y: int, x: int, radius: float, brightness: float) -> None:
    """Fill the pixels whose middles are within the radius of that of pixel (y, x)."""
    reach = int(radius)
    for i in range(max(0, y - reach), min(len(canvas), y + reach + 1)):
        for j in range(max(0, x - reach), min(len(canvas), x + reach + 1)):
            if (i - y) ** 2 + (j - x) ** 2 <= radius**2:
                canvas[i, j] = max(canvas[i, j], np.float32(brightness))


@jit
def _halve(canvas: Grey, weights: Grey, starts: Ints) -> Grey:
    """From (2·size, width) to (size, width)."""
    out = np.zeros((len(starts), canvas.shape[1]), np.float32)
    for i in range(len(starts)):
        for k in range(weights.shape[1]):
            for j in range(canvas.shape[1]):
                out[i, j] += weights[i, k] * canvas[starts[i] + k, j]
    return out
