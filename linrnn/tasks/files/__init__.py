"""The user's files as tasks, one module for each format; `open_data` chooses by the suffix or by the content of a
folder."""

import inspect
from pathlib import Path
from typing import Any

from linrnn.tasks.base import Task
from linrnn.tasks.files.formats import FORMATS, WHAT, format_of
from linrnn.tasks.files.new import New, read_new
from linrnn.util.errors import check_choice, unknown, wrong_value
from linrnn.util.files import named
from linrnn.util.types import check_path, check_type

__all__ = ["FORMATS", "New", "format_of", "open_data", "options_of", "read_new"]


def open_data(path: str | Path, **options: Any) -> Task:
    """A task from a file or folder.

    Args:
        path: a .npz or .npy file or a folder of .npy files; a table (.csv, .tsv, .parquet); a folder with a folder of
            audio for each class; or a text (.txt, .text, .md).
        options: the arguments of `load` in the module of the format; None has no effect.

    Example:
        >>> task = linrnn.tasks.files.open_data("readings.csv", target="price", window=512, horizon=24)
    """
    check_path("path", path)
    path = Path(path).expanduser()
    format_ = format_of(path)
    given = {name: value for name, value in options.items() if value is not None}
    known = {name: options_of(name) for name in FORMATS}
    for name in given:
        if name not in known[format_]:
            others = [WHAT[other] for other, names in known.items() if name in names]
            if not others:
                raise unknown("options", name, sorted(known[format_]))
            raise wrong_value(name, f"for {' and '.join(others)} only", f"{given[name]!r} for {path}")
    check_type("kind", given.get("kind"), str | None)
    with named(path):
        task: Task = FORMATS[format_].load(path, **given)
    return task


def options_of(format_: str) -> list[str]:
    """The options of a format."""
    check_choice("format_", format_, FORMATS)
    return [name for name in inspect.signature(FORMATS[format_].load).parameters if name != "path"]
