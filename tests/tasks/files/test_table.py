"""Tables as tasks: windows, splits and targets against NumPy; errors that name the row and the column."""

import bz2
import gzip
import lzma
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linrnn.tasks.base import SPLITS, Task
from linrnn.tasks.files import open_data, read_new
from tests.tasks.test_arrays import every

STEPS = 100
RNG = np.random.default_rng(0)
VALUES = np.c_[np.arange(STEPS), RNG.normal(size=STEPS).round(3)]
DAYS = np.arange(STEPS).astype("datetime64[D]").astype(str)


def table(path: Path, *, header: str = "date,price,load", rows: Any = None, between: str = ",") -> Path:
    rows = [f"{day},{price},{load}" for day, (price, load) in zip(DAYS, VALUES, strict=True)] if rows is None else rows
    path.write_text("\n".join([header, *rows]).replace(",", between) + "\n")
    return path


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return table(tmp_path / "series.csv")


def spans(task: Task, part: str) -> list[set[int]]:
    """The rows that each split sees (inputs) or forecasts (targets); the price is the number of its row."""
    return [{int(n) for n in np.ravel(np.asarray(getattr(getattr(task, s), part))[:, :, 0])} for s in SPLITS]


def test_a_forecast_sees_a_window_and_learns_the_next_steps(series: Path) -> None:
    task = open_data(series, target="price", window=5, horizon=3, period=7, relative=False)
    assert (task.kind, task.horizon, task.period, task.classes, task.outputs) == ("forecast", 3, 7, 3, 1)
    assert (task.columns, task.labels) == (("price", "load"), ("price",))
    assert [len(getattr(task, name)) for name in SPLITS] == [80 - 7, 10 - 2, 10 - 2]
    for name, first in zip(SPLITS, (0, 80 - 5, 90 - 5), strict=True):
        split = getattr(task, name)
        for i in range(len(split)):
            np.testing.assert_allclose(split.inputs[i], VALUES[first + i : first + i + 5], rtol=1e-6)
            np.testing.assert_allclose(split.targets[i, :, 0], VALUES[first + i + 5 : first + i + 8, 0])
    train = VALUES[:80]
    np.testing.assert_allclose(task.mean or (), train.mean(0))
    np.testing.assert_allclose(task.std or (), train.std(0))
    assert task.target_mean == pytest.approx((train[:, 0].mean(),))
    assert task.target_std == pytest.approx((train[:, 0].std(),))


def test_changes_where_they_are_small(series: Path) -> None:
    """The price rises steadily; the load is noise, of which changes are larger than the deviation."""
    changes = open_data(series, target="price", window=5, horizon=3)
    assert changes.relative
    assert changes.note == "the next 3 steps of price after 5, as changes from the last value"
    assert changes.options["relative"] is True
    assert changes.target_mean == pytest.approx((2,))
    assert changes.target_std == pytest.approx((np.std([1, 2, 3]),))
    assert ((changes.mean or ())[0], (changes.std or ())[0]) == pytest.approx((-2, np.std(range(5))))
    assert (changes.mean or ())[1] == pytest.approx(VALUES[:80, 1].mean())
    assert not open_data(series, target="load", window=5, horizon=3).relative
    assert open_data(series, target="load", window=5, horizon=3, relative=True).relative
    with pytest.raises(ValueError, match="relative: expected None without a horizon, got True"):
        open_data(series, target="price", relative=True)


def test_no_row_is_forecast_in_two_splits(series: Path) -> None:
    """A window may look back into the part before its own; what it forecasts is nowhere else seen or forecast."""
    task = open_data(series, target="price", window=4, horizon=2, fractions=(0.5, 0.25, 0.25))
    a, b, c = spans(task, "targets")
    assert (a, b, c) == (set(range(4, 50)), set(range(50, 75)), set(range(75, 100)))
    seen = spans(task, "inputs")
    assert seen == [set(range(48)), set(range(46, 73)), set(range(71, 98))]


def test_a_window_longer_than_the_later_parts(series: Path) -> None:
    task = open_data(series, target="price", window=60, horizon=4)
    assert [len(getattr(task, name)) for name in SPLITS] == [17, 7, 7]
    assert spans(task, "inputs")[1] == set(range(20, 86))
    few = open_data(series, target="price", window=5, horizon=2, fractions=(0.08, 0.02, 0.9))
    assert spans(few, "inputs")[1] == set(range(3, 8)), "no further back than the series goes"


def test_all_columns_are_forecast_unless_some_are_named(series: Path) -> None:
    task = open_data(series, window=5, horizon=2)
    assert (task.labels, task.classes) == (("price", "load"), 4)
    chosen = open_data(series, target="price", columns="load", window=5, horizon=2)
    assert (chosen.columns, chosen.labels) == (("load", "price"), ("price",)), "a series knows its own past"


def test_rows_are_put_in_the_order_of_time(tmp_path: Path, series: Path) -> None:
    lines = series.read_text().splitlines()
    shuffled = table(tmp_path / "shuffled.csv", rows=RNG.permutation(lines[1:]).tolist())
    expected, found = (open_data(p, target="price", window=5, horizon=3, time="date") for p in (series, shuffled))
    np.testing.assert_array_equal(every(found, "inputs"), every(expected, "inputs"))
    np.testing.assert_array_equal(every(found, "targets"), every(expected, "targets"))


def test_windows_take_the_memory_of_the_series(tmp_path: Path) -> None:
    long = table(tmp_path / "long.csv", header="a", rows=[str(n % 97) for n in range(5000)])
    task = open_data(long, window=400, horizon=50)
    low, high = np.lib.array_utils.byte_bounds(task.train.inputs)
    assert high - low <= 5000 * 4
    assert task.train.inputs.nbytes > 100 * 5000 * 4


def test_series_of_a_group_stay_apart(tmp_path: Path) -> None:
    rows = [f"{'ab'[i % 2]},{i // 2},{(i % 2) * 1000 + i // 2}" for i in range(100)]
    path = table(tmp_path / "g.csv", header="shop,t,price", rows=rows)
    options: dict[str, Any] = {"target": "price", "group": "shop", "time": "t", "fractions": (0.6, 0.2, 0.2)}
    task = open_data(path, window=3, horizon=2, **options)
    assert task.columns == ("price",)
    assert [len(getattr(task, name)) for name in SPLITS] == [2 * 26, 2 * 9, 2 * 9]
    for name in SPLITS:
        split = getattr(task, name)
        both = np.concatenate([np.asarray(split.inputs), np.asarray(split.targets)], 1)[..., 0]
        assert (np.diff(both) == 1).all()
    assert {int(n) for n in np.ravel(task.test.targets)} == {*range(40, 50), *range(1040, 1050)}


def test_series_that_are_too_short_are_named(tmp_path: Path) -> None:
    rows = [f"{'ab'[i >= 96]},{i},{i}" for i in range(100)]
    path = table(tmp_path / "g.csv", header="shop,t,price", rows=rows)
    task = open_data(path, target="price", group="shop", time="t", window=5, horizon=3)
    assert "without 1 series that are too short, such as 'b'" in task.note
    with pytest.raises(
        ValueError, match="at least 5 rows in each series, the window of the model, got 4 in series 'b'"
    ):
        read_new(path, task)


HOLED = [f"{DAYS[i]},{price},{'' if i in (3, 60) else load}" for i, (price, load) in enumerate(VALUES)]


def test_missing_cells(tmp_path: Path) -> None:
    path = table(tmp_path / "s.csv", rows=HOLED)
    options: dict[str, Any] = {"target": "price", "window": 5, "horizon": 3}
    with pytest.raises(ValueError, match=r"missing: .* cells: 2 in 'load', the first in row 5, column 'load'"):
        open_data(path, **options)
    filled = open_data(path, missing="mean", relative=False, **options)
    load = np.delete(VALUES[:80, 1], [3, 60])
    np.testing.assert_allclose(filled.mean or (), [VALUES[:80, 0].mean(), load.mean()])
    assert len(filled.train) == 73
    assert filled.train.inputs[0, 3, 1] == pytest.approx(load.mean(), rel=1e-5)
    assert filled.missing.startswith("2 in 'load'")
    dropped = open_data(path, missing="drop", **options)
    whole = [i for i in range(73) if not {3, 60} & set(range(i, i + 5))]
    assert np.asarray(dropped.train.inputs)[:, 0, 0].tolist() == whole
    unknown = open_data(path, target="load", window=5, horizon=3, missing="mean")
    known = [i for i in range(73) if not {3, 60} & set(range(i + 5, i + 8))]
    assert np.asarray(unknown.train.inputs)[:, 0, 0].tolist() == known, "a target that nobody knows is never made up"


def labelled(path: Path, label: Any) -> Path:
    return table(path, header="day,x,y,what", rows=[f"{i},{i / 2},{i * 3},{label(i)}" for i in range(STEPS)])


def test_labelled_steps(tmp_path: Path) -> None:
    path = labelled(tmp_path / "s.csv", lambda i: "rest" if i % 7 else "walk")
    task = open_data(path, target="what", time="day", window=8)
    assert (task.kind, task.labels, task.columns) == ("per-step", ("rest", "walk"), ("x", "y"))
    assert [len(getattr(task, name)) for name in SPLITS] == [10, 2, 2]
    assert task.test.lengths is not None
    assert task.test.lengths.tolist() == [8, 2]
    np.testing.assert_allclose(task.validation.inputs[0, :, 0], np.arange(80, 88) / 2)
    assert task.validation.targets[0].tolist() == [int(i % 7 == 0) for i in range(80, 88)]
    numbers = open_data(labelled(path, lambda i: i / 3), target="what")
    assert numbers.numeric_targets
    assert numbers.labels == ("what",)
    codes = open_data(labelled(path, lambda i: 10 if i % 3 else 9), target="what")
    assert codes.labels == ("9", "10")


def grouped(path: Path, label: Any) -> Path:
    rows = [f"p{i % 20},{i // 20},{i},{label(i % 20, i)}" for i in range(200) if i < 150 or i % 3]
    return table(path, header="person,t,x,what", rows=rows)


def test_labelled_sequences(tmp_path: Path) -> None:
    task = open_data(grouped(tmp_path / "s.csv", lambda p, i: "ab"[p % 2]), target="what", group="person", time="t")
    assert (task.kind, task.labels, task.columns) == ("classification", ("a", "b"), ("x",))
    assert [len(getattr(task, name)) for name in SPLITS] == [16, 2, 2]
    for name in SPLITS:
        split = getattr(task, name)
        for row, target, length in zip(split.inputs[..., 0], split.targets, split.lengths, strict=True):
            person = int(row[0])
            expected = [i for i in range(200) if i % 20 == person and (i < 150 or i % 3)]
            assert row[:length].tolist() == expected
            assert target == person % 2
    number = open_data(grouped(tmp_path / "s.csv", lambda p, i: p / 7), target="what", group="person")
    assert number.kind == "regression"
    steps = open_data(grouped(tmp_path / "s.csv", lambda p, i: "ab"[i % 3 > 0]), target="what", group="person")
    assert steps.kind == "per-step"


@pytest.mark.parametrize(("suffix", "between"), [(".csv", ";"), (".tsv", "\t"), (".CSV", ","), (".csv", "|")])
def test_semicolons_tabs_and_a_byte_order_mark(tmp_path: Path, series: Path, suffix: str, between: str) -> None:
    path = table(tmp_path / f"other{suffix}", between=between)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found, expected = (open_data(p, target="price", window=5, horizon=3) for p in (path, series))
    np.testing.assert_array_equal(every(found, "inputs"), every(expected, "inputs"))


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zip", ".zip"])
def test_compressed_tables(tmp_path: Path, series: Path, suffix: str) -> None:
    path = tmp_path / f"packed{suffix}"
    if suffix.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(series, "packed.csv")
    else:
        kinds: dict[str, Any] = {"gz": gzip, "bz2": bz2, "xz": lzma}
        path.write_bytes(kinds[suffix.rpartition(".")[2]].compress(series.read_bytes()))
    found, expected = (open_data(p, target="price", window=5, horizon=3) for p in (path, series))
    assert found.name == "packed"
    np.testing.assert_array_equal(every(found, "inputs"), every(expected, "inputs"))
    np.testing.assert_array_equal(read_new(path, found).inputs, read_new(series, found).inputs)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"expected a \.\w+ file, got a damaged file"):
        open_data(path, target="price", window=5, horizon=3)


def test_archives_that_hold_no_table(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", "a")
        archive.writestr("b.csv", "b")
    with pytest.raises(ValueError, match=r"a\.zip: expected a \.zip file with one file in it, got 2 files"):
        open_data(tmp_path / "a.zip")
    (tmp_path / "a.npz.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"expected a compressed \.csv, .* got a compressed '\.npz'"):
        open_data(tmp_path / "a.npz.gz")


def test_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("\n".join(["price;load", *(f"{a};{b}".replace(".", ",") for a, b in VALUES)]))
    task = open_data(path, target="price", window=5, horizon=3)
    np.testing.assert_allclose(task.train.inputs[0], VALUES[:5], rtol=1e-6)


def test_cells_in_quotes_and_blank_lines(tmp_path: Path) -> None:
    rows = [f'"no, {i % 2}","{i}"' for i in range(40)]
    (tmp_path / "q.csv").write_text("\n\n".join(['"the label",x', *rows]))
    assert open_data(tmp_path / "q.csv", target="the label", window=2).labels == ("no, 0", "no, 1")


def rows(*changes: tuple[int, str]) -> list[str]:
    result = [f"{day},{price},{load}" for day, (price, load) in zip(DAYS, VALUES, strict=True)]
    for row, line in changes:
        result[row - 2] = line
    return result


FORECAST = {"target": "price", "window": 5, "horizon": 3}
MISTAKES: list[Any] = [
    (rows(), {**FORECAST, "target": "prise"}, "target: .* got 'prise'; did you mean 'price'"),
    (rows(), {**FORECAST, "columns": "price,laod"}, "columns: .* got 'laod'; did you mean 'load'"),
    (rows(), {**FORECAST, "time": "dat"}, "time: .* got 'dat'; did you mean 'date'"),
    (rows(), {**FORECAST, "group": "pierce"}, "group: .* got 'pierce'; did you mean 'price'"),
    (rows(), {**FORECAST, "columns": "date"}, "column 'date': expected numbers, got '1970-01-01' in row 2"),
    (rows(), {"horizon": 3}, "window: expected a number of steps before the forecast, got None"),
    (rows(), {"window": 3}, "target: expected one of the columns date, price, load, got None"),
    (rows(), {**FORECAST, "window": 0}, "window: expected at least 1, got 0"),
    (rows(), {**FORECAST, "window": 78}, "window, horizon: expected at most 80 steps together, .* got 78 \\+ 3"),
    (rows(), {**FORECAST, "horizon": 11}, "horizon: expected at most 10, the steps of the validation part, got 11"),
    (rows(), {**FORECAST, "window": 5_000}, "expected at most 80 steps together, the length of the train"),
    (rows(), {"target": "price", "period": 7}, "period: expected None without a horizon, got 7"),
    (rows((40, "2000-01-01,abc,1")), FORECAST, "column 'price': expected numbers, got 'abc' in row 40"),
    (rows((2, "2000-01-01,1,abc")), FORECAST, "column 'load': expected numbers, got 'abc' in row 2"),
    (rows((40, "2000-01-01,1")), FORECAST, "expected 3 cells in each row, got 2 in row 40"),
    (rows((40, "soon,1,1")), {**FORECAST, "time": "date"}, "time: column 'date': .* got 'soon' in row 40"),
    (rows((40, f"{DAYS[0]},1,1")), {**FORECAST, "time": "date"}, "one row at each time, got rows 2 and 40 at one time"),
    (rows((40, ",1,1")), {**FORECAST, "time": "date"}, "time: column 'date': .* got '' in row 40"),
    (rows(), {**FORECAST, "time": "price"}, "target: expected a column that is neither time nor group, got 'price'"),
    (rows(), {"target": "load", "group": "load"}, "target: expected a column that is neither time nor group"),
    (rows(), {**FORECAST, "time": "date", "group": "date"}, "group: expected another column than time, got 'date'"),
    ([], FORECAST, "expected at least one row below the names"),
    (rows()[:3], FORECAST, "window, horizon: expected at most 2 steps together"),
    ([f"{i},1,{load}" for i, (_, load) in enumerate(VALUES)], FORECAST, "target: .* varies .* constant"),
    ([f"{i},1,{load}" for i, (_, load) in enumerate(VALUES)], {"target": "price"}, "at least two classes"),
    (rows(), {**FORECAST, "missing": "zero"}, "missing: expected 'error' or 'mean' or 'drop', got 'zero'"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "options", "message"), MISTAKES, ids=map(str, range(len(MISTAKES))))
def test_mistakes(tmp_path: Path, lines: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        open_data(table(tmp_path / "s.csv", rows=lines), **options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected the names of the columns in its first line, got none"),
        (b"1,2\n3,4\n", "expected the names of the columns in its first line, got 1, 2"),
        (b"a,a\n3,4\n", "expected columns with different names, got 'a' twice"),
        (b"a,b\n1,2\n3,\xff4\n", "s.csv: expected text in UTF-8, got byte 0xff at position 10, line 3"),
        (b'a,b\n1,2\n3,"4\n', "s.csv: expected a CSV file, got a damaged file"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "s.csv").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        open_data(tmp_path / "s.csv", window=1, horizon=1)


def test_the_last_window_is_what_a_forecast_starts_from(series: Path, tmp_path: Path) -> None:
    task = open_data(series, target="price", window=5, horizon=3)
    new = read_new(series, task)
    np.testing.assert_allclose(new.inputs, VALUES[None, -5:])
    assert new.names == ["series"]
    with pytest.raises(ValueError, match="expected at least 5 rows in each series, the window of the model, got 4"):
        read_new(table(tmp_path / "short.csv", rows=rows()[:4]), task)
    with pytest.raises(ValueError, match=r"columns: expected 'date' or 'prize'.* got 'price'; did you mean 'prize'"):
        read_new(table(tmp_path / "other.csv", header="date,prize,load"), task)
    holed = table(tmp_path / "holed.csv", rows=rows((99, "x,1,")))
    with pytest.raises(ValueError, match=r"expected finite numbers, got 1 missing .* step 2, column 'load'"):
        read_new(holed, task)
    patient = open_data(series, target="price", window=5, horizon=3, missing="mean")
    assert read_new(holed, patient).inputs[0, 2, 1] == pytest.approx((patient.mean or ())[1])


def test_new_sequences_are_whole(tmp_path: Path) -> None:
    path = grouped(tmp_path / "s.csv", lambda p, i: "ab"[p % 2])
    new = read_new(path, open_data(path, target="what", group="person"))
    assert new.names[:2] == ["p0", "p1"]
    assert new.inputs[3, :2, 1].tolist() == [3, 23]


def test_the_index_of_pandas_text_and_flags(tmp_path: Path) -> None:
    """A first column without a name is no input, nor is text; true and false are numbers, or classes."""
    lines = [f"{i},{p},{'ab'[i % 2]},{i % 3 == 0}" for i, (p, _) in enumerate(VALUES)]
    path = table(tmp_path / "s.csv", header=",price,who,holiday", rows=lines)
    task = open_data(path, target="price", window=5, horizon=3)
    assert task.columns == ("price", "holiday")
    assert task.source == "s.csv: 100 rows; not used: a column without a name, who"
    np.testing.assert_array_equal(task.train.inputs[0, :, 1], [1, 0, 0, 1, 0])
    classes = open_data(path, target="holiday", window=5)
    assert (classes.kind, classes.labels) == ("per-step", ("False", "True"))


def test_a_season_is_looked_for(tmp_path: Path) -> None:
    lines = [f"{0.1 * i + 5 * np.sin(i * 2 * np.pi / 12) + RNG.normal():.3f}" for i in range(200)]
    path = table(tmp_path / "s.csv", header="price", rows=lines)
    task = open_data(path, window=24, horizon=6)
    assert task.period == 12
    assert "after 24, with a season of 12" in task.note
    assert open_data(path, window=24, horizon=6, period=7).period == 7
    noise = table(tmp_path / "n.csv", header="price", rows=[f"{RNG.normal():.3f}" for _ in range(200)])
    assert open_data(noise, window=24, horizon=6).period is None


@pytest.mark.parametrize(
    "form",
    [
        "{d:02}.{m:02}.{y} 12:30",
        "{y}/{m:02}/{d:02}",
        "{y}-{n:02}",
        "{y}-{m}-{d}T00:00:00Z",
        "{m}/{d}/{y} 9:30",
        "{d:02}/{m:02}/{y}",
    ],
)
def test_forms_of_dates(tmp_path: Path, form: str) -> None:
    days = [np.datetime64("1990-01-01") + 40 * i for i in range(40)]
    dates = [form.format(y=(p := str(day).split("-"))[0], m=int(p[1]), d=int(p[2]), n=int(p[1])) for day in days]
    order = RNG.permutation(40)
    path = table(tmp_path / "s.csv", header="date,price", rows=[f"{dates[i]},{i + i % 3}" for i in order])
    task = open_data(path, target="price", window=4, horizon=2, time="date", relative=False)
    np.testing.assert_array_equal(task.train.inputs[0, :, 0], [0, 2, 4, 3])


def test_dates_of_which_day_and_month_are_unclear(tmp_path: Path) -> None:
    path = table(tmp_path / "s.csv", header="date,price", rows=[f"0{1 + i % 9}/01/{2000 + i},{i}" for i in range(40)])
    with pytest.raises(ValueError, match=r"dates such as .* got '01/01/2000' in row 2"):
        open_data(path, target="price", window=4, horizon=2, time="date")


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "s.parquet").write_bytes(b"x")
    with pytest.raises(ModuleNotFoundError, match=r"Parquet files need pyarrow: pip install 'linrnn\[data\]'"):
        open_data(tmp_path / "s.parquet", window=5, horizon=3)


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """The table of `series`, as pyarrow writes it, with columns of other types."""
    pyarrow, written = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    whole = pyarrow.array([None, *range(1, STEPS)], pyarrow.int64())
    columns = {
        "date": DAYS.astype("datetime64[ns]"),
        "price": pyarrow.array(VALUES[:, 0]).cast(pyarrow.int32()),
        "load": VALUES[:, 1],
        "day": pyarrow.array(DAYS.astype("datetime64[D]").tolist(), pyarrow.date32()),
        "zone": pyarrow.array(DAYS.astype("datetime64[us]")).cast(pyarrow.timestamp("us", "Europe/Paris")),
        "who": pyarrow.array(["a", None] * 50).dictionary_encode(),
        "up": VALUES[:, 1] > 0,
        "gaps": whole,
        "money": whole.cast(pyarrow.decimal128(24, 2)),
        "lists": [[1, 2]] * STEPS,
    }
    written.write_table(pyarrow.table(columns), tmp_path / "s.parquet")
    return tmp_path / "s.parquet"


@pytest.mark.parametrize("time", ["date", "day", "zone"])
def test_parquet(series: Path, parquet: Path, time: str) -> None:
    options: dict[str, Any] = {"target": "price", "window": 5, "horizon": 3}
    expected = open_data(series, time="date", **options)
    found = open_data(parquet, time=time, columns="price,load", **options)
    np.testing.assert_array_equal(every(found, "inputs"), every(expected, "inputs"))
    np.testing.assert_array_equal(read_new(parquet, found).inputs, read_new(series, expected).inputs)


def test_types_of_parquet_columns(parquet: Path) -> None:
    with pytest.raises(ValueError, match=r"missing: .* 1 in 'gaps', 1 in 'money', the first in row 2, column 'gaps'"):
        open_data(parquet, window=5, horizon=3)
    task = open_data(parquet, window=5, horizon=3, missing="drop")
    assert task.columns == ("price", "load", "up", "gaps", "money")
    assert task.train.inputs[0, :, 4].tolist() == [1, 2, 3, 4, 5]
    classes = open_data(parquet, target="up", columns="price,load")
    assert (classes.kind, classes.labels) == ("per-step", ("False", "True"))
    with pytest.raises(TypeError, match="column 'who': expected numbers, got 'a' in row 2"):
        open_data(parquet, target="who", window=5, horizon=3)
    with pytest.raises(TypeError, match=r"column 'lists': expected numbers, got .* in row 2"):
        open_data(parquet, target="lists", window=5, horizon=3)
    parquet.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="expected a Parquet file, got a damaged file"):
        open_data(parquet, window=5, horizon=3)
