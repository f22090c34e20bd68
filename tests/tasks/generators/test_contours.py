import functools
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from linrnn.tasks.generators import contours
from linrnn.tasks.generators.contours import RULES, Trace

COUNTS = {32: 150, 64: 6, 128: 40}
SIZES = pytest.mark.parametrize("size", COUNTS)


@functools.cache
def traces(size: int) -> list[Trace]:
    return [contours.trace(RULES[size], 0, number) for number in range(COUNTS[size])]


def ways(traced: Trace) -> list[NDArray[np.float64]]:
    """The dashes of each path, (dashes, 4), in the order of the paths."""
    return [traced.dashes[traced.paths == path] for path in np.unique(traced.paths)]


def without_markers(traced: Trace) -> Trace:
    return traced._replace(markers=np.empty((0, 2)))


@SIZES
def test_there_are_two_long_paths_and_no_more_short_ones_than_wanted(size: int) -> None:
    rules = RULES[size]
    short = []
    for traced in traces(size):
        lengths = [len(way) for way in ways(traced)]
        assert lengths[:2] == [14, 14]
        assert set(lengths[2:]) <= {4}
        short.append(len(lengths) - 2)
        assert rules.margin_low <= traced.margin <= rules.margin_high
    assert max(short) == rules.distractors
    assert np.mean(short) > 0.6 * rules.distractors
    assert len({traced.margin for traced in traces(size)}) == (2 if size == 128 else 1)


@SIZES
def test_a_path_goes_on_after_each_gap_and_turns_little(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        for way in ways(traced):
            starts, ends = way[:, :2], way[:, 2:]
            directions = (ends - starts) / rules.dash
            np.testing.assert_allclose(np.hypot(*directions.T), 1)
            pivots = ends[:-1] + traced.margin * directions[:-1]
            np.testing.assert_allclose(starts[1:] - traced.margin * directions[1:], pivots)
            turns = np.arccos(np.clip((directions[1:] * directions[:-1]).sum(axis=1), -1, 1))
            assert turns.max() < math.pi / 2 / rules.continuity


@pytest.mark.parametrize("size", [32, 128])
def test_turns_follow_the_squared_cosine(size: int) -> None:
    """The paths' first turns, with nothing near yet: their mean is that of the weights, for pixels close enough."""
    rules = RULES[size]
    turns = []
    for traced in traces(size):
        for way in ways(traced)[:2]:
            angles = np.arctan2(way[:2, 2] - way[:2, 0], way[:2, 3] - way[:2, 1])
            turns.append(abs(np.angle(np.exp(1j * (angles[1] - angles[0])))))
    grid = np.linspace(0, math.pi / 2 / rules.continuity, 1000)
    weights = np.cos(rules.continuity * grid) ** 2
    mean = (grid * weights).sum() / weights.sum()
    spread = math.sqrt(((grid - mean) ** 2 * weights).sum() / weights.sum())
    assert abs(np.mean(turns) - mean) < 5 * spread / math.sqrt(len(turns))


@SIZES
def test_no_dashes_come_near_each_other_but_neighbours_on_a_path(size: int) -> None:
    rules = RULES[size]
    steps = np.linspace(0, 1, 21)[:, None]
    for traced in traces(size)[:30]:
        points = traced.dashes[:, None, :2] * (1 - steps) + traced.dashes[:, None, 2:] * steps
        for i, j in itertools.combinations(range(len(points)), 2):
            if traced.paths[i] == traced.paths[j] and not (traced.paths[i + 1 : j] == traced.paths[i]).any():
                continue
            gap = np.hypot(*(points[i][:, None] - points[j]).T).min() - rules.thickness
            assert gap > 2 * traced.margin - 1e-9


@SIZES
def test_the_border_is_kept_free(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        edge = rules.border + rules.thickness / 2
        assert traced.dashes.min() >= edge
        assert traced.dashes.max() <= size - edge


@SIZES
def test_the_long_paths_start_near_the_middle_and_at_their_distance(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        first, second = (way[0, :2] for way in ways(traced)[:2])
        assert 2 * rules.seed_distance <= first.min()
        assert first.max() <= size - 2 * rules.seed_distance
        assert math.dist(first, second) == pytest.approx(rules.seed_distance)


@SIZES
def test_one_path_joins_the_markers_where_the_label_says_so(size: int) -> None:
    rules = RULES[size]
    chosen = []
    for traced in traces(size):
        targets = ways(traced)[:2]
        (start,) = [path for path in (0, 1) if math.dist(targets[path][0, :2], traced.markers[0]) < 1e-9]
        (end,) = [path for path in (0, 1) if math.dist(targets[path][-1, 2:], traced.markers[1]) < 1e-9]
        assert traced.label == (start == end)
        chosen.append((traced.label, start))
        ends = [place for way in targets for place in (way[0, :2], way[-1, 2:])]
        assert min(math.dist(a, b) for a, b in itertools.combinations(ends, 2)) >= 2 * rules.marker_radius + 2
    if size == 32:  # enough of them: both paths, for both labels
        counts = np.unique(chosen, axis=0, return_counts=True)[1]
        assert len(counts) == 4
        assert counts.min() > len(traces(size)) / 4 - 4 * math.sqrt(len(traces(size)) * 3 / 16)


@SIZES
def test_pictures_show_exactly_two_filled_discs(size: int) -> None:
    rules = RULES[size]
    rows, columns = np.mgrid[:size, :size]
    for traced in traces(size):
        image, bare = contours.draw(rules, traced), contours.draw(rules, without_markers(traced))
        discs = np.zeros(image.shape, bool)
        for y, x in np.floor(traced.markers):
            discs |= np.hypot(rows - y, columns - x) <= rules.marker_radius
        assert ndimage.label(discs, np.ones((3, 3)))[1] == 2
        bright = image >= image[discs].min()
        inner = ndimage.binary_erosion(bright, np.ones((3, 3)), border_value=1)  # of no dash, which is too thin
        assert ndimage.label(inner, np.ones((3, 3)))[1] == 2
        assert discs[inner].all()
        scale = image[~discs].max() / bare[~discs].max()  # all but the discs is the same, stretched
        np.testing.assert_allclose(image[~discs], bare[~discs] * scale, atol=2)


@SIZES
def test_pictures_go_from_black_to_white(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        image = contours.draw(rules, traced)
        assert image.dtype == np.uint8
        assert image.shape == (size, size)
        assert (image.min(), image.max()) == (0, 255)


@SIZES
def test_paths_do_not_touch_in_the_picture(size: int) -> None:
    rules = RULES[size]
    for traced in traces(size):
        drawn = []
        for path in np.unique(traced.paths):
            mine = traced.paths == path
            alone = without_markers(traced)._replace(dashes=traced.dashes[mine], paths=traced.paths[mine])
            drawn.append(contours.draw(rules, alone) > 100)
        for a, b in itertools.combinations(drawn, 2):
            assert not (ndimage.binary_dilation(a, np.ones((3, 3))) & b).any()


def test_the_reduction_is_the_lanczos_filter_of_pillow() -> None:
    large = np.random.default_rng(0).random((128, 128), dtype=np.float32)
    weights, starts = contours._lanczos(64)
    ours = contours._halve(contours._halve(large, weights, starts).T.copy(), weights, starts).T
    pillow = np.asarray(Image.fromarray(large).resize((64, 64), Image.Resampling.LANCZOS))
    np.testing.assert_allclose(ours, pillow, atol=1e-6)


@SIZES
def test_a_picture_is_what_pillow_makes_of_the_dashes_as_rectangles(size: int) -> None:
    """Drawn point by point, 8×8 points to a pixel of twice the size, and reduced by Pillow."""
    rules = RULES[size]
    traced = without_markers(traces(size)[0])
    fine = (np.arange(16 * size) + 0.5) / 16
    brightness = np.zeros((len(fine), len(fine)), np.float32)
    for (y0, x0, y1, x1), path in zip(traced.dashes, traced.paths, strict=True):
        dy, dx = (y1 - y0) / rules.dash, (x1 - x0) / rules.dash
        along = (fine[:, None] - y0) * dy + (fine - x0) * dx
        across = (fine[:, None] - y0) * dx - (fine - x0) * dy
        inside = (along >= 0) & (along <= rules.dash) & (abs(across) <= rules.thickness / 2)
        brightness[inside] = rules.target if path < 2 else rules.distractor
    large = brightness.reshape(2 * size, 8, 2 * size, 8).mean(axis=(1, 3))
    small = np.asarray(Image.fromarray(large).resize((size, size), Image.Resampling.LANCZOS)).clip(0)
    ours = contours.draw(rules, traced) / 255
    assert np.abs(ours - small / small.max()).max() < 0.2
    assert np.abs(ours - small / small.max()).mean() < 0.01


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
