"""Series cut into windows: parts by time for training, validation and test, and windows that lie in one part."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays import statistics
from linrnn.tasks.arrays.rows import take
from linrnn.tasks.arrays.splits import NAMES, check_fractions
from linrnn.util.errors import wrong_value

Segment = tuple[int, int]  # rows from the first to before the second
LONGEST_SEASON, LEAST = 10_000, 0.3  # steps, and a correlation


class Forecast(NamedTuple):
    """Windows of a series, and the steps after each: (inputs, targets) of each split, all views of one array.

    Attributes:
        splits: (inputs, targets) of each split.
        mean, std: of each column in the training part.
    """

    splits: list[tuple[NDArray[Any], NDArray[Any]]]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]


def parts(segments: Sequence[Segment], fractions: Sequence[float]) -> list[list[Segment]]:
    """Each series cut into its first, middle and last part, for training, validation and test."""
    check_fractions(fractions)
    result: list[list[Segment]] = [[], [], []]
    for start, end in segments:
        bounds = [start, *(start + round((end - start) * part) for part in np.cumsum(fractions)[:2]), end]
        for number in range(3):
            result[number].append((bounds[number], bounds[number + 1]))
    return result


def season(values: NDArray[np.float64]) -> int | None:
    """The length of the season of a series in steps, from its autocorrelation around a straight line; None if no season
    is clear.

    Candidates are lags with a maximum above .3, another maximum at twice the lag and a minimum between them. The first
    candidate whose correlation is close to the largest is the season.
    """
    values = np.where(np.isfinite(values), values, np.nanmean(values)) if np.isfinite(values).any() else values * 0
    steps = np.arange(len(values))
    most = min(len(values) // 3, LONGEST_SEASON)
    rest = values - np.polyval(np.polyfit(steps, values, 1), steps) if most >= 2 else values * 0
    if not rest.std() > 1e-9 * np.abs(values).max():
        return None
    power = np.abs(np.fft.rfft(rest / rest.std(), 2 * len(rest))) ** 2
    found = np.fft.irfft(power)[: 2 * most + 2] / (len(rest) - np.arange(2 * most + 2))
    inner = found[1 : most + 1]
    peaks = 1 + np.flatnonzero((inner > found[:most]) & (inner >= found[2 : most + 2]) & (inner > LEAST))
    clear = [lag for lag in peaks.tolist() if found[2 * lag] > LEAST and found[3 * lag // 2] < found[lag] - LEAST]
    return next((lag for lag in clear if found[lag] >= 0.9 * found[clear].max()), None)


def forecast(
    values: NDArray[np.float64],
    targets: Sequence[int],
    segments: Sequence[Segment],
    *,
    window: int,
    horizon: int,
    fractions: Sequence[float],
    missing: str,
) -> Forecast:
    """Every window of all columns (steps, columns) of one series whose forecast steps are in one part of it.

    A window of the validation and the test part may include steps of the previous part; no step is forecast in two
    parts.

    Args:
        values: with NaN where a number is missing.
        targets: the columns that are forecast.
        segments: the series.
        window, horizon: steps before and after the moment of the forecast.
        fractions: the parts for training, validation and test.
        missing: "mean" fills missing inputs, "drop" drops their windows; windows with a missing target are dropped.
    """
    span = window + horizon
    divided = parts(segments, fractions)
    for name, some in zip(NAMES, divided, strict=True):
        longest = max(end - start for start, end in some)
        if name == "train" and longest < span:
            expected = f"at most {longest:,} steps together, the length of the {name} part of the longest series"
            raise wrong_value("window, horizon", expected, f"{window:,} + {horizon:,}")
        if longest < horizon:
            raise wrong_value("horizon", f"at most {longest:,}, the steps of the {name} part", f"{horizon:,}")
    begins = [start for start, _ in divided[0]]
    divided = [divided[0], *(_looking_back(some, begins, window) for some in divided[1:])]
    train = np.concatenate([values[start:end] for start, end in divided[0]])
    found = statistics.moments(train)
    if not found.number.all():
        raise wrong_value("columns", "numbers in the training part of each", f"none in column {found.number.argmin()}")
    finite = np.isfinite(values)
    bad = np.cumsum(np.r_[0, ~finite[:, list(targets)].all(1)])
    bad_inputs = bad * 0 if missing == "mean" else np.cumsum(np.r_[0, ~finite.all(1)])
    double = statistics.coarse(found)
    filled = np.where(finite, values, found.mean).astype(np.float64 if double else np.float32)
    goals = filled[:, list(targets)]
    inputs = np.lib.stride_tricks.sliding_window_view(filled, window, axis=0).transpose(0, 2, 1)
    outputs = np.lib.stride_tricks.sliding_window_view(goals, horizon, axis=0).transpose(0, 2, 1)[window:]
    splits = []
    for name, some in zip(NAMES, divided, strict=True):
        starts = np.concatenate([np.arange(start, max(start, end - span + 1)) for start, end in some])
        whole = bad_inputs[starts + window] == bad_inputs[starts]
        known = bad[starts + span] == bad[starts + window]
        usable = starts[whole & known]
        if len(usable) == 0:
            raise wrong_value(f"missing={missing!r}", f"a window of the {name} part without missing values", "none")
        splits.append((take(inputs, usable), take(outputs, usable)))
    return Forecast(splits, found.mean, found.std)


def _looking_back(part: Sequence[Segment], begins: Sequence[int], window: int) -> list[Segment]:
    """The steps of a part, and the window before them, as far as the series has steps there."""
    return [(max(begin, start - window), end) for (start, end), begin in zip(part, begins, strict=True)]
