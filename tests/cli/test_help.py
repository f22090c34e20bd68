"""`--help` of every command, in narrow and wide windows, and `--version`."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import linrnn
from linrnn.cli import app as cli
from linrnn.cli.help import App


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


ALL = [*commands(typer.main.get_command(cli.app))]


def said(app: typer.Typer, *arguments: str) -> str:
    came = CliRunner().invoke(app, arguments)
    assert came.exit_code == 0, came.output
    return came.output


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_and_has_no_types(width: int, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert len(ALL) > 25
    for path in ALL:
        shown = said(cli.app, *path, flag)
        assert max(map(len, shown.splitlines())) <= width, path
        assert not re.search(r"[<>]\w* ?\w*[<>]|\bNone\b", shown), path
        assert shown.startswith(f"Usage: {' '.join(['root', *path])}")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")


@pytest.mark.usefixtures("narrow")
def test_the_commands_stand_in_the_order_of_use() -> None:
    shown = said(cli.app, "--help")
    sections = [line for line in shown.splitlines()[3:] if line and not line.startswith(" ")]
    assert sections == [*cli.SECTIONS, "Options"]
    names = re.findall(r"(?m)^  (\w+)  ", shown)
    assert names == [name for section in cli.SECTIONS.values() for name in section]


@pytest.mark.usefixtures("narrow")
def test_every_form_of_a_parameter() -> None:
    app = App()

    @app.command()
    def act(
        where: str,
        others: list[str] = typer.Argument([], metavar="FILE"),  # noqa: B008
        count: int = typer.Option(3, min=1, help="Of the `things` there are."),
        both: bool = typer.Option(True, "--both/--one", help="Two."),
        quiet: bool = typer.Option(False, "-q", "--quiet", help="Nothing."),
        a_long_name_of_an_option: str | None = typer.Option(None, help="Below."),
        other: float = typer.Option(0.5, help="Elsewhere.", rich_help_panel="More"),
        secret: int = typer.Option(1, hidden=True),
    ) -> None:
        """Do it.

        All of it.
        """

    assert [line.rstrip() for line in said(app, "--help").splitlines()][:-1] == [
        "Usage: act [OPTIONS] WHERE [FILE...]", "",
        "Do it.", "",
        "All of it.", "",
        "Arguments",
        "  WHERE",
        "  FILE", "",
        "Options",
        "  --count N         Of the things there are. [default: 3]",
        "  --both/--one      Two. [default: both]",
        "  -q, --quiet       Nothing.",
        "  --a-long-name-of-an-option A_LONG_NAME_OF_AN_OPTION",
        "                    Below.",
        "  --install-completion",
        "                    Install completion for the current",
        "                    shell.",
        "  --show-completion",
        "                    Show completion for the current shell,",
        "                    to copy it or customize the",
        "                    installation.",
        "  -h, --help        Show this message and exit.", "",
        "More",
        "  --other X  Elsewhere. [default: 0.5]",
    ]  # fmt: skip


def test_version() -> None:
    assert said(cli.app, "--version").startswith(f"linrnn {linrnn.__version__}, torch {torch.__version__}, python 3.")
