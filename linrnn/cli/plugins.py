"""The user's modules that register cores and tasks: `--import MODULE`, and entry points in `linrnn.plugins`."""

import importlib
import os
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Annotated

import typer

GROUP = "linrnn.plugins"

Modules = Annotated[
    list[str] | None,
    typer.Option("--import", help="Import a module that registers cores or tasks; repeatable.", metavar="MODULE"),
]


def import_modules(modules: Iterable[str]) -> None:
    """Import modules from the current folder or from installed packages; a failure is a ValueError that names the
    module."""
    for module in modules:
        if os.getcwd() not in sys.path:  # a console script does not look there
            sys.path.insert(0, os.getcwd())
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ValueError(f"--import {module}: {_reason(error)}") from error


def load_installed() -> None:
    """Load the entry points of installed packages: a module, or a function in it that is then called."""
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except Exception as error:
            raise ValueError(f"plugin {point.name} ({point.value}): {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
