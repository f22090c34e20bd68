"""Tables (CSV, Parquet) as tasks: forecasts of series, labelled steps, and labelled sequences.

With a horizon the task is a forecast: from a window of all columns of numbers to the next steps of the target. Without
a horizon each row is a step of one labelled series or, with a column that names the sequence of each row, of many
sequences.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks import arrays
from linrnn.tasks.arrays import series, statistics
from linrnn.tasks.base import Split, Task
from linrnn.tasks.files.columns import Column, Columns, check_names, is_number, moments_of, read
from linrnn.tasks.files.packed import plain_name
from linrnn.util.errors import check_integer, wrong_value

SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")
CLASSES = 100  # integers with at most this number of different values are classes
WINDOW, SHORTEST, FEW = 256, 16, 32  # steps of a labelled series that are learned together, in a few windows at least


class Rows(NamedTuple):
    """The rows of a table in the order of its series.

    Attributes:
        order: the rows, by series and, in each, by time.
        segments: where each series starts and ends in this order.
        names: of the series.
    """

    order: NDArray[np.int64]
    segments: list[tuple[int, int]]
    names: list[str]


def load(
    path: Path,
    *,
    target: str | Sequence[str] | None = None,
    window: int | None = None,
    horizon: int | None = None,
    columns: str | Sequence[str] | None = None,
    time: str | None = None,
    group: str | None = None,
    period: int | None = None,
    relative: bool | None = None,
    missing: Literal["error", "mean", "drop"] = "error",
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    name: str | None = None,
) -> Task:
    """A task from a table.

    Args:
        path: of a CSV or Parquet file.
        target: the column, or columns, to learn; for a forecast None takes all columns of numbers.
        window: the steps that the model reads; for a labelled series, the steps of an example.
        horizon: the steps to forecast.
        columns: the columns that the model reads; None: all columns of numbers.
        time: the column of times, by which rows are sorted; it is not an input.
        group: the column with the series of each row; it is not an input.
        period: the length of a season in steps, for the seasonal naive forecast; None: inferred from the training part.
        relative: for a forecast, learn changes from the last value of the window; None: if they are smaller than the
            deviation of the target in the training part.
        missing: what to do about empty cells: "error", "mean" or "drop".
        fractions: the shares of training, validation and test: of each series in time, or of the sequences.
        seed: of the random order from which sequences are divided.
        name: of the task.

    Example:
        >>> task = linrnn.tasks.files.open_data("readings.csv", target="price", window=512, horizon=24)
    """
    named = {"target": _list(target), "columns": _list(columns), "time": _list(time), "group": _list(group)}
    table = read(path, named)
    numbers = [column for column in table.numeric() if column not in (time, group)]
    arrays.check_missing(missing)
    if horizon is None and not named["target"]:
        raise wrong_value("target", f"one of the columns {', '.join(table.by_name)}", None)
    for option in ("window", "horizon"):
        if (value := locals()[option]) is not None:
            check_integer(option, value, 1)
    for option, value in (("period", period), ("relative", relative)):
        if horizon is None and value is not None:
            raise wrong_value(option, "None without a horizon", value)
    if time is not None and time == group:
        raise wrong_value("group", "another column than time", repr(group))
    for goal in named["target"]:
        if goal in (time, group):
            raise wrong_value("target", "a column that is neither time nor group", repr(goal))
    reserved = named["time"] + named["group"] + ([] if horizon is not None else named["target"])
    check_names("columns", named["columns"], [column for column in table.by_name if column not in reserved])
    inputs = named["columns"] or [column for column in numbers if column not in reserved]
    rows = arrange(table, time, group)
    given = {"target": named["target"], "columns": inputs, "window": window, "horizon": horizon, "time": time}
    options = {"format": "table", **given, "group": group, "missing": missing}
    about = {"name": name or plain_name(path).stem, "source": f"{path.name}: {table.rows:,} rows", "options": options}
    used = {*inputs, *named["target"], time, group}
    if others := [column or "a column without a name" for column in table.by_name if column not in used]:
        about["source"] = f"{about['source']}; not used: {', '.join(others)}"
    if horizon is not None:
        if window is None:
            raise wrong_value("window", "a number of steps before the forecast", None)
        goals = named["target"] or inputs
        inputs = inputs + [goal for goal in goals if goal not in inputs]  # the past of the target is an input
        options["columns"] = inputs
        task = _forecast(table, rows, inputs, goals, window, horizon, fractions, missing, period, about)
        return _as_changes(task, relative)
    if not inputs:
        raise wrong_value("columns", "at least one column of numbers besides the target", "none")
    if group is None:
        options["window"] = window or min(WINDOW, max(SHORTEST, int(table.rows * fractions[0]) // FEW))
    return _labelled(table, rows, inputs, options, fractions, seed, missing, about)


def arrange(table: Columns, time: str | None, group: str | None) -> Rows:
    """Rows by series and time; two rows of one series at one time are an error."""
    series_of, names = np.zeros(table.rows, np.int64), [""]
    if group is not None:
        first: dict[str, int] = {}
        series_of = np.array([first.setdefault(cell, len(first)) for cell in table[group].texts or ()])
        names = list(first)
    moments = np.arange(table.rows, dtype=np.float64) if time is None else moments_of(table[time])
    if np.isnan(moments).any():
        row = int(np.flatnonzero(np.isnan(moments))[0])
        raise wrong_value(f"time: column {time!r}", "a time in each row", f"none in row {row + 2:,}")
    order = np.lexsort((moments, series_of))
    again = (np.diff(moments[order]) == 0) & (np.diff(series_of[order]) == 0)
    if again.any():
        a, b = order[int(np.flatnonzero(again)[0]) :][:2].tolist()
        came = f"rows {a + 2:,} and {b + 2:,} at one time; group= names the column that tells series apart"
        raise wrong_value(f"time: column {time!r}", "one row at each time", came)
    bounds = np.searchsorted(series_of[order], np.arange(len(names) + 1)).tolist()
    return Rows(order, list(itertools.pairwise(bounds)), names)


def numbers_of(table: Columns, names: Sequence[str], rows: Rows) -> NDArray[np.float64]:
    """Columns of numbers (rows, columns), in order; infinite numbers and empty cells count as missing."""
    values = np.stack([table[name].values() for name in names], axis=1)[rows.order]
    values[~statistics.finite(values)] = np.nan
    return values


def _forecast(
    table: Columns,
    rows: Rows,
    inputs: list[str],
    goals: list[str],
    window: int,
    horizon: int,
    fractions: Sequence[float],
    missing: str,
    period: int | None,
    about: dict[str, Any],
) -> Task:
    values = numbers_of(table, inputs, rows)
    holes = _holes(values, inputs, rows, missing)
    index = [inputs.index(goal) for goal in goals]
    found = series.forecast(
        values, index, rows.segments, window=window, horizon=horizon, fractions=fractions, missing=missing
    )
    train = found.splits[0][1]
    if (np.asarray(train[:, 0]) == train[0, 0]).all() and (np.asarray(train[-1]) == train[0, 0]).all():
        raise wrong_value("target", "a column that varies in its training part", f"{goals}, which is constant")
    note = f"the next {horizon:,} steps of {', '.join(goals)} after {window:,}"
    if short := [name for name, (a, b) in zip(rows.names, rows.segments, strict=True) if b - a < window + horizon]:
        note += f", without {len(short):,} series that are too short, such as {short[0]!r}"
    if period is None:
        (first, end), *_ = series.parts([max(rows.segments, key=lambda some: some[1] - some[0])], fractions)[0]
        period = series.season(values[first:end, index[0]])
        note += f", with a season of {period:,}" if period is not None else ""
    mean, std = tuple(found.mean.tolist()), tuple(found.std.tolist())
    train_split, validation, test = (Split(a, None, b) for a, b in found.splits)
    return Task(
        kind="forecast", train=train_split, validation=validation, test=test, classes=horizon * len(goals),
        labels=tuple(goals), channels=len(inputs), columns=tuple(inputs), mean=mean, std=std, horizon=horizon,
        target_mean=tuple(mean[i] for i in index), target_std=tuple(std[i] for i in index), period=period,
        note=note, missing=holes or "none", **about,
    )  # fmt: skip


def _as_changes(task: Task, relative: bool | None) -> Task:
    """The forecast as a forecast of changes, if requested, or if changes are smaller than the deviation."""
    changed = task.as_changes()
    if relative is None:
        assert None not in (task.target_std, changed.target_std, changed.target_mean)
        size = np.hypot(changed.target_mean or 0, changed.target_std or 0)
        relative = bool((size / np.array(task.target_std)).mean() < 1)
    options = {**task.options, "relative": relative}
    note = f"{task.note}, as changes from the last value" if relative else task.note
    return dataclasses.replace(changed if relative else task, options=options, note=note)


def _labelled(
    table: Columns,
    rows: Rows,
    inputs: list[str],
    options: dict[str, Any],
    fractions: Sequence[float],
    seed: int,
    missing: Literal["error", "mean", "drop"],
    about: dict[str, Any],
) -> Task:
    """A target at each step; or one for each sequence, if it is the same in all rows of a sequence."""
    values, goals = numbers_of(table, inputs, rows), options["target"]
    holes = _holes(values, inputs, rows, missing)
    targets, labels = _targets([table[goal] for goal in goals], rows)
    splits: dict[str, list[int]] | None = None
    if options["group"] is None:
        cut = series.parts(rows.segments, fractions)
        pieces = [
            [(a, min(a + options["window"], end)) for start, end in part for a in range(start, end, options["window"])]
            for part in cut
        ]
        bounds = np.cumsum([0, *map(len, pieces)]).tolist()
        splits = {n: list(range(*bounds[i : i + 2])) for i, n in enumerate(("train", "validation", "test"))}
        segments = [piece for part in pieces for piece in part]
    else:
        segments = rows.segments
    one = options["group"] is not None and all(_constant(targets[a:b]) for a, b in segments)
    numeric = targets.dtype.kind == "f"
    goal: Any = [targets[a] if one else targets[a:b] for a, b in segments]
    kind: Any = ("regression" if numeric else "classification") if one else "per-step"
    task = Task.from_arrays(
        [values[a:b] for a, b in segments], np.stack(goal) if one else goal, kind=kind, channels=inputs, splits=splits,
        fractions=fractions, seed=seed, missing=missing, labels=goals if numeric else labels,
        note=f"{', '.join(goals)} of {'each sequence' if one else 'each step'}", **about,
    )  # fmt: skip
    object.__setattr__(task, "missing", holes or "none")  # in rows of the table, not in examples
    return task


def _targets(columns: list[Column], rows: Rows) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Classes by row, and their names; or numbers (rows, columns)."""
    first = columns[0]
    texts = [(text or "").strip() for text in first.texts or ()]
    classes = first.text or (first.integers and len(set(texts)) <= CLASSES)
    if len(columns) > 1 or not classes:
        values = np.stack([column.values() for column in columns], axis=1)[rows.order]
        return values, None
    empty = [i for i, text in enumerate(texts) if not text]
    if empty:
        raise wrong_value(f"target: column {first.name!r}", "a class in each row", f"none in row {empty[0] + 2:,}")
    names = sorted(set(texts), key=float if all(map(is_number, texts)) else None)
    ids = {text: i for i, text in enumerate(names)}
    return np.array([ids[text] for text in texts], np.int64)[rows.order], tuple(names)


def _constant(targets: NDArray[Any]) -> bool:
    return bool((targets == targets[0]).all())


def _holes(values: NDArray[np.float64], names: list[str], rows: Rows, missing: str) -> str:
    """The count of missing numbers, and the place of the first; empty if there are none. With missing="error" they are
    an error."""
    bad = np.isnan(values)
    if not bad.any():
        return ""
    at = np.argwhere(bad)
    row, column = at[np.argmin(rows.order[at[:, 0]])].tolist()
    counts = ", ".join(f"{count:,} in {name!r}" for name, count in zip(names, bad.sum(0), strict=True) if count)
    found = f"{counts}, the first in row {rows.order[row] + 2:,}, column {names[column]!r}"
    if missing == "error":
        expected = "a number in each cell, or missing='mean' or missing='drop'"
        raise wrong_value("missing", expected, f"empty or infinite cells: {found}")
    return found


def _list(names: str | Sequence[str] | None) -> list[str]:
    if names is None:
        return []
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
