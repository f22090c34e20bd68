"""Tables as columns: CSV by the standard library, Parquet by pyarrow."""

import csv
import io
import itertools
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.files.packed import opened
from linrnn.util.errors import unknown, wrong_type, wrong_value

FLAGS = {"true": 1.0, "false": 0.0}
EMPTY = {"", "na", "n/a", "nan", "null", "none", "-"}


@dataclass
class Column:
    """A column of a table.

    Attributes:
        name: in the first line.
        numbers: NaN where a cell is empty or no number.
        texts: the cells; None for columns of numbers whose texts are not needed.
        integers: whether all numbers are integers.
        seen: whether there is a number.
        wrong: the row and the text of the first cell that is neither empty nor a number.
        comma: whether numbers may have a decimal comma.
        words: the count of cells that are neither empty nor numbers.
    """

    name: str
    numbers: Any = field(default_factory=lambda: array("d"))
    texts: list[str] | None = None
    integers: bool = True
    seen: bool = False
    wrong: tuple[int, str] | None = None
    comma: bool = False
    words: int = 0

    @property
    def text(self) -> bool:
        """Whether this is a column of text: neither its first nonempty cell nor most of the others are numbers."""
        return self.wrong is not None and not self.seen and 2 * self.words > np.isfinite(self.numbers).sum()

    @property
    def has_numbers(self) -> bool:
        return self.seen or (self.wrong is not None and not self.text)

    def add(self, cell: str, row: int) -> None:
        if self.texts is not None:
            self.texts.append(cell)
        if self.comma:
            cell = cell.replace(",", ".", 1)
        try:
            number = float(cell)
        except ValueError:
            number = FLAGS.get(cell.strip().lower(), np.nan)
            if number == number:
                self.seen = self.seen or self.wrong is None
            elif cell.strip().lower() not in EMPTY:
                self.wrong = self.wrong or (row, cell)
                self.words += 1
        else:
            self.seen = self.seen or (self.wrong is None and number == number)
            self.integers = self.integers and (number != number or cell.strip().lstrip("+-").isdecimal())
        self.numbers.append(number)

    def values(self) -> NDArray[np.float64]:
        """The numbers; a cell without a number is an error with its row and column."""
        if self.wrong is not None:
            row, cell = self.wrong
            raise wrong_type(f"column {self.name!r}", "numbers", f"{cell!r} in row {row:,}")
        return np.asarray(self.numbers, np.float64)


class Columns:
    """A table and its source; rows are counted like lines in an editor, with the names in row 1."""

    def __init__(self, path: Path, columns: Sequence[Column], rows: int) -> None:
        self.path, self.rows = path, rows
        self.by_name = {column.name: column for column in columns}
        if rows == 0:
            raise wrong_value(str(path), "at least one row below the names of the columns", "none")

    def __getitem__(self, name: str) -> Column:
        return self.by_name[name]

    def numeric(self) -> list[str]:
        """The columns of numbers, except one without a name, which is the index that pandas writes.

        A column with text among numbers is included, so that its values are an error.
        """
        return [name for name, column in self.by_name.items() if name and not column.text and column.has_numbers]


def check_names(option: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError, with the nearest name, unless all are columns."""
    for name in names:
        if name not in known:
            raise unknown(option, name, known)


def read(path: Path, named: dict[str, list[str]]) -> Columns:
    """A table from a file.

    Args:
        path: of a CSV file, with commas, semicolons, tabs or bars, or of a Parquet file.
        named: the columns that an option names, by option; their texts are kept, and unknown names are errors.
    """
    return _parquet(path, named) if path.suffix.lower() in (".parquet", ".pq") else _csv(path, named)


def _csv(path: Path, named: dict[str, list[str]]) -> Columns:
    keep = {name for names in named.values() for name in names}
    try:
        with opened(path) as data, io.TextIOWrapper(data, "utf-8-sig", newline="") as file:
            first = file.readline()
            delimiter = max(",;\t|", key=first.count)
            lines = csv.reader(itertools.chain([first], file), delimiter=delimiter, strict=True)
            names = [cell.strip() for cell in next(lines, [])]
            _check_header(path, names, named)
            comma = delimiter != ","  # then 3,14 is a number
            columns = [Column(name, texts=[] if name in keep else None, comma=comma) for name in names]
            rows = 0
            for cells in lines:
                if not cells:
                    continue
                if len(cells) != len(columns):
                    came = f"{len(cells)} in row {lines.line_num:,}"
                    raise wrong_value(str(path), f"{len(columns)} cells in each row", came)
                rows += 1
                for column, cell in zip(columns, cells, strict=True):
                    column.add(cell, lines.line_num)
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except csv.Error as error:
        raise wrong_value(str(path), "a CSV file", f"a damaged file ({error})") from None
    return Columns(path, columns, rows)


def _check_header(path: Path, names: list[str], named: dict[str, list[str]]) -> None:
    if not names or all(is_number(name) for name in names):
        raise wrong_value(str(path), "the names of the columns in its first line", ", ".join(names[:5]) or "none")
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise wrong_value(str(path), "columns with different names", f"{twice!r} twice")
    for option, wanted in named.items():
        check_names(option, wanted, names)


def _parquet(path: Path, named: dict[str, list[str]]) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ModuleNotFoundError(f"{path}: Parquet files need pyarrow: pip install 'linrnn[data]'") from None
    try:
        table = parquet.read_table(path)
    except Exception as error:  # pyarrow's own kinds
        raise wrong_value(str(path), "a Parquet file", f"a damaged file ({error})") from error
    _check_header(path, list(table.column_names), named)
    columns = [_from_array(name, table.column(name).to_numpy(zero_copy_only=False)) for name in table.column_names]
    return Columns(path, columns, table.num_rows)


def _from_array(name: str, values: NDArray[Any]) -> Column:
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64)
        texts = [str(value) for value in values.tolist()] if values.dtype.kind != "f" else None
        return Column(name, numbers, texts, values.dtype.kind != "f", bool(np.isfinite(numbers).any()))
    column = Column(name, texts=[])
    for row, value in enumerate(values.tolist() if values.dtype.kind == "O" else values.astype(str).tolist(), start=2):
        column.add("" if value is None else str(value), row)
    return column


def moments_of(column: Column) -> NDArray[np.float64]:
    """The times of a column: numbers unchanged, dates as seconds."""
    if column.wrong is None:
        return column.values()
    result = np.empty(len(column.texts or ()))
    month_first = _month_first(column.texts or ())
    for i, cell in enumerate(column.texts or ()):
        try:
            time = _date(cell.strip(), month_first)
            result[i] = time.replace(tzinfo=time.tzinfo or UTC).timestamp()
        except ValueError:
            expected = "numbers, or dates such as 2024-05-01, 2024-05-01 12:30:00, 01.05.2024 or 05/31/2024"
            raise wrong_value(f"time: column {column.name!r}", expected, f"{cell!r} in row {i + 2:,}") from None
    return result


def _month_first(cells: Iterable[str]) -> bool | None:
    """Whether dates such as 05/31/2024 begin with the month, by the numbers above 12; None if all are below."""
    found = [match.groups() for cell in cells if (match := re.match(r"\s*(\d{1,2})/(\d{1,2})/\d{4}\b", cell))]
    first, second = (max((int(pair[i]) for pair in found), default=0) for i in (0, 1))
    return None if (first > 12) == (second > 12) else second > 12


def _date(cell: str, month_first: bool | None) -> datetime:
    """A date of ISO 8601, also with slashes or without a day; or with the year last, after points or slashes."""
    if found := re.fullmatch(r"(\d{4})[-/](\d{1,2})(?:[-/](\d{1,2}))?(?:[T ]+(\d.*))?", cell):
        year, month, day, clock = found.groups()
    elif found := re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?: +(\d.*))?", cell):
        day, month, year, clock = found.groups()
    elif found := re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{4})(?: +(\d.*))?", cell):
        if month_first is None:
            raise ValueError("the order of day and month is unknown")
        month, day, year, clock = found.groups()
        month, day = (month, day) if month_first else (day, month)
    else:
        return datetime.fromisoformat(cell)
    hour, colon, rest = (clock or "00:00").partition(":")
    return datetime.fromisoformat(f"{year}-{month:0>2}-{day or '1':0>2}T{hour:0>2}{colon}{rest}")


def not_utf8(path: Path) -> ValueError:
    """The error for a file that is not UTF-8: it names the first wrong byte, its position and its line."""
    before, came = 0, "other text"
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                came = f"byte 0x{line[error.start]:02x} at position {before + error.start:,}, line {number:,}"
                break
            before += len(line)
    return wrong_value(str(path), "text in UTF-8", came)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
