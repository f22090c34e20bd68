import functools
import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from linrnn.tasks.generators import contours
from linrnn.tasks.generators.contours import RULES, Trace
from linrnn.tasks.generators.strokes import DEGREES, Rules, Strokes, markers, strokes
from tests.tasks.generators import likeness

COUNTS = {32: 100, 64: 20, 128: 20}
SIZES = pytest.mark.parametrize("size", COUNTS)
FIXTURES = Path(__file__).parent / "fixtures"
PICTURES = {  # sha256 of the first images of seed 0: where one changes, pathfinder.VERSION must be raised
    32: "eab3b0e5ba33d7caac878bcf96467aa5eb37771268a3c01663b5746848eefb28",
    64: "aef41ccddf43918f0aeb50d7558d7d47a963c04e4fd64a77fff033c193001daf",
    128: "94c0ae2d186b9aa81ae423f02e85fbc63c0c1976c35b7d5e2f19468004bc612c",
}

Floats = NDArray[np.float64]


@functools.cache
def traces(size: int) -> list[Trace]:
    return [contours.trace(RULES[size], 0, number) for number in range(COUNTS[size])]


def ways(traced: Trace) -> list[NDArray[np.int64]]:
    """The dashes of each path, (dashes, 3), in the order of the paths."""
    return [traced.dashes[traced.paths == path] for path in np.unique(traced.paths)]


def tables(rules: Rules, traced: Trace) -> Strokes:
    return strokes(rules, traced.margin)


def stamped(rules: Rules, pictures: NDArray[np.uint8], dash: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The picture of a dash in its place in the image."""
    y, x, row = dash
    half = pictures.shape[1] // 2
    wide = np.zeros((rules.size + 2 * half, rules.size + 2 * half), np.uint8)
    wide[y : y + 2 * half + 1, x : x + 2 * half + 1] = pictures[row]
    return wide[half:-half, half:-half]


def angle(rules: Rules, traced: Trace, row: int) -> float:
    """The orientation of a dash, from tail to head."""
    heads = tables(rules, traced).heads
    return math.atan2(*heads[row]) if row < len(heads) else (row - len(heads) - DEGREES // 2) * math.pi / 180


def along(place: tuple[int, int], angle: float, distance: float) -> tuple[int, int]:
    return math.ceil(place[0] + distance * math.sin(angle)), math.ceil(place[1] + distance * math.cos(angle))


def back(angle: float) -> float:
    return angle + math.pi if angle < 0 else angle - math.pi


@SIZES
def test_there_are_two_long_paths_and_no_more_short_ones_than_wanted(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        lengths = [len(way) for way in ways(traced)]
        assert lengths[:2] == [14, 14]
        assert set(lengths[2:]) <= {4}
        assert len(lengths) - 2 <= rules.distractors
        assert traced.paths.max() == len(lengths) - 1
        assert traced.paths[:28].tolist() == [0, 1] * 14
    assert {traced.margin for traced in traces(size)} == ({2, 3} if size == 128 else {1})


@SIZES
def test_every_head_is_a_pixel_on_the_circle_around_its_pivot(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        for way in ways(traced):
            y, x, row = map(int, way[0])
            turn = angle(rules, traced, row)
            pivot = along(along((y, x), turn, rules.dash), back(turn), rules.dash + traced.margin)
            for y, x, row in way[1:].tolist():
                pivot = along(pivot, turn, rules.dash + 2 * traced.margin)
                last, turn = turn, math.atan2(y - pivot[0], x - pivot[1])
                assert turn == angle(rules, traced, row)
                gap = math.hypot(y + 0.5 - pivot[0], x + 0.5 - pivot[1]) - rules.dash - traced.margin
                assert abs(gap) <= math.sqrt(0.5)  # cut down from a point on the circle
                assert abs(np.angle(np.exp(1j * (turn - last)))) < math.pi / 2 / rules.continuity


@SIZES
def test_masks_hardly_overlap_but_those_of_neighbours(size: int) -> None:
    rules = RULES[size]
    border = np.full((size, size), 255, np.uint8)
    border[rules.border : -rules.border, rules.border : -rules.border] = 0
    closest = 0
    for traced in traces(size):
        mask = tables(rules, traced).mask
        for number, (dash, path) in enumerate(zip(traced.dashes, traced.paths, strict=True)):
            before = traced.paths[:number]
            mine = np.flatnonzero(before == path)
            if len(mine) == 0:
                continue
            last = {mine[-1], *np.flatnonzero(before == 1 - path)[-1:]} if path < 2 else {mine[-1], 26}
            others = [stamped(rules, mask, traced.dashes[i]) for i in range(number) if i not in last]
            overlap = (np.max([border, *others], axis=0).astype(int) + stamped(rules, mask, dash)).max()
            assert overlap < 1.8 * 255
            closest = max(closest, overlap)
    assert closest > 1.7 * 255  # the limit is reached


@SIZES
def test_heads_are_further_than_the_margin_from_the_border(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        heads = np.concatenate([way[1:, :2] for way in ways(traced)])
        assert heads.min() >= rules.border + traced.margin
        assert heads.max() < size - rules.border - traced.margin


@SIZES
def test_the_long_paths_start_near_the_middle_and_at_their_distance(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        first, second = traced.dashes[0], traced.dashes[1]
        assert math.dist(first[:2], second[:2]) == pytest.approx(rules.seed_distance, abs=math.sqrt(0.5))
        full = np.argwhere(stamped(rules, tables(rules, traced).mask, first) == 255)
        assert full.min() >= 2 * rules.seed_distance - 1  # the kernel is one pixel further on
        assert full.max() < size - 2 * rules.seed_distance - 1


@SIZES
def test_one_path_joins_the_markers_where_the_label_says_so(size: int) -> None:
    chosen = []
    for traced in traces(size):
        targets = ways(traced)[:2]
        starts = [path for path in (0, 1) if (targets[path][0, :2] == traced.markers[0]).all()]
        ends = [path for path in (0, 1) if (targets[path][-1, :2] == traced.markers[1]).all()]
        assert len(starts) == 1
        assert (starts[0] if traced.label == 1 else 1 - starts[0]) in ends
        chosen.append((traced.label, starts[0]))
    if size == 32:  # enough of them: both paths, for both labels
        counts = np.unique(chosen, axis=0, return_counts=True)[1]
        assert len(counts) == 4
        assert counts.min() > len(traces(size)) / 4 - 4 * math.sqrt(len(traces(size)) * 3 / 16)


@SIZES
def test_a_picture_is_what_pillow_makes_of_lines_and_discs(size: int) -> None:
    """Each dash on a canvas of its own, each disc on one of twice the image's size, all merged and stretched."""
    rules = RULES[size]
    width = round(2 * rules.thickness)
    for traced in traces(size)[:10]:
        merged = np.zeros((size, size))
        reach = rules.dash + math.ceil(rules.thickness) + traced.margin
        for path, way in enumerate(ways(traced)):
            scale = rules.target if path < 2 else rules.distractor
            for number, (y, x, row) in enumerate(way.tolist()):
                turn = angle(rules, traced, row)
                end = along((2 * reach, 2 * reach), turn if number == 0 else back(turn), 2 * rules.dash)
                canvas = Image.new("L", (4 * reach + 1, 4 * reach + 1))
                ImageDraw.Draw(canvas).line([(2 * reach, 2 * reach), end[::-1]], fill=255, width=width)
                small = np.asarray(canvas.resize((2 * reach + 1, 2 * reach + 1), Image.Resampling.LANCZOS))
                wide = np.zeros((size + 2 * reach, size + 2 * reach))
                wide[y : y + 2 * reach + 1, x : x + 2 * reach + 1] = small / 255 * scale
                merged = np.maximum(merged, wide[reach:-reach, reach:-reach])
        places = np.arange(2 * size)
        for y, x in traced.markers:
            disc = (places[:, None] - 2 * y) ** 2 + (places - 2 * x) ** 2 <= (2 * rules.marker_radius) ** 2
            large = Image.fromarray(np.where(disc, 255, 0).astype(np.uint8))
            small = np.asarray(large.resize((size, size), Image.Resampling.LANCZOS))
            merged = np.maximum(merged, small / 255 * rules.marker)
        image = contours.draw(rules, traced)
        assert image.dtype == np.uint8
        assert image.shape == (size, size)
        assert (image.min(), image.max()) == (0, 255)
        np.testing.assert_allclose(image, merged / merged.max() * 255, atol=0.5001)


@pytest.mark.parametrize("place", [(2, 3), (64, 5), (125, 64), (60, 70)])
def test_a_marker_near_the_border_is_the_whole_image_s(place: tuple[int, int]) -> None:
    rules = RULES[128]
    side = len(markers(rules))
    places = np.arange(256)
    disc = (places[:, None] - 2 * place[0]) ** 2 + (places - 2 * place[1]) ** 2 <= (2 * rules.marker_radius) ** 2
    large = Image.fromarray(np.where(disc, 255, 0).astype(np.uint8))
    whole = np.asarray(large.resize((128, 128), Image.Resampling.LANCZOS))
    top, left = (min(max(c - side // 2, 0), 128 - side) for c in place)
    np.testing.assert_array_equal(
        markers(rules)[place[0] - top, place[1] - left], whole[top : top + side, left : left + side]
    )
    assert whole.sum() == whole[top : top + side, left : left + side].sum()


@pytest.mark.parametrize("size", [32, pytest.param(128, marks=pytest.mark.slow)])
def test_images_are_distributed_as_the_original_program_s(size: int) -> None:
    with np.load(FIXTURES / f"pathfinder-{size}.npz") as file:
        theirs = dict(file)
    differences = likeness.differences(theirs, likeness.statistics(likeness.ours(size, 2000)))
    assert set(differences) == set(theirs)
    assert {name: d for name, d in differences.items() if d >= likeness.LIMITS[size]} == {}


@SIZES
def test_a_seed_gives_the_images_it_gave(size: int) -> None:
    images, labels = np.empty((20, size, size), np.uint8), np.empty(20, np.int64)
    contours.fill(RULES[size], 0, 0, images, labels)
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() == PICTURES[size]


def test_an_image_is_the_same_wherever_it_is_made() -> None:
    rules = RULES[32]
    images, labels = np.empty((9, 32, 32), np.uint8), np.empty(9, np.int64)
    contours.fill(rules, 5, 1000, images, labels)
    alone, label = np.empty((1, 32, 32), np.uint8), np.empty(1, np.int64)
    for i in (8, 3):
        contours.fill(rules, 5, 1000 + i, alone, label)
        np.testing.assert_array_equal(alone[0], images[i])
        traced = contours.trace(rules, 5, 1000 + i)
        np.testing.assert_array_equal(contours.draw(rules, traced), images[i])
        assert label[0] == labels[i] == traced.label
    assert len({image.tobytes() for image in images}) == 9
    contours.fill(rules, 6, 1003, alone, label)
    assert (alone[0] != images[3]).any()


def test_nothing_in_a_picture_as_a_whole_tells_the_label() -> None:
    count = 2001
    images, labels = np.empty((count, 32, 32), np.uint8), np.empty(count, np.int64)
    contours.fill(RULES[32], 1, 0, images, labels)
    assert abs(labels.sum() - count / 2) < 1
    runs = (labels[1:] != labels[:-1]).mean()  # of pairs in a random order
    assert abs(runs - 0.75) < 0.05
    pixels = images.reshape(count, -1)
    for statistic in (pixels.mean(axis=1), pixels.std(axis=1), (pixels > 0).mean(axis=1), (pixels > 128).mean(axis=1)):
        one, other = statistic[labels == 1], statistic[labels == 0]
        assert abs(one.mean() - other.mean()) < 4 * statistic.std() * 2 / math.sqrt(count)
