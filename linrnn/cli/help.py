"""`--help` of all commands: options by their use, a placeholder for each value, at any width of the window."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])
INDENT = 2
LEFT = 26  # columns for options, in a window of 80; a longer option has its text on the next line
SHORT = {"help_option_names": ["-h", "--help"]}
PLACEHOLDERS = {int: "N", float: "X"}


class _Plain:
    """A command whose usage line and help are written here, not by typer."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        command: Any = self
        pieces = [command.options_metavar]
        pieces += [_argument(param) for param in command.get_params(ctx) if param.param_type_name == "argument"]
        return [*pieces, "COMMAND ..."] if isinstance(command, TyperGroup) else pieces

    def format_help(self, ctx: Any, formatter: Any) -> None:
        command: Any = self
        console = Console()
        console.print(Text(command.get_usage(ctx).rstrip()), end="\n\n")
        console.print(Markdown(command.help or ""))
        for title, rows in _sections(command, ctx).items():
            console.print()
            console.print(Text(title, style="bold"))
            widest = max(len(left) for left, _ in rows) + 2 * INDENT
            for left, help in rows:
                _row(console, left, help, min(widest, LEFT, console.width // 3))


class Command(_Plain, TyperCommand):
    pass


class Group(_Plain, TyperGroup):
    pass


class App(typer.Typer):
    """`typer.Typer` with this help for the group and all of its commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, context_settings=SHORT, no_args_is_help=True, **options)

    def command(self, *names: Any, **options: Any) -> Callable[[F], F]:
        return super().command(*names, cls=Command, context_settings=SHORT, **options)


def _sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """The rows of each section, in the order in which the command's function names them."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if param.hidden:
            continue
        if param.param_type_name == "argument":
            row = param.metavar or param.name.upper(), param.help or ""
            sections.setdefault("Arguments", []).append(row)
        else:
            title = param.rich_help_panel or "Options"
            sections.setdefault(title, []).append((_option(param), _text(param, ctx)))
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            found: Any = command.get_command(ctx, name)
            title = found.rich_help_panel or "Commands"
            sections.setdefault(title, []).append((name, (found.help or "").partition("\n\n")[0]))
    if not isinstance(command, TyperGroup):
        return sections
    return {title: rows for title, rows in sections.items() if title != "Options"} | {"Options": sections["Options"]}


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    name = name if param.nargs == 1 or name.endswith("...") else f"{name}..."
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    """`--steps N`, `--compile/--no-compile`, `-h, --help`."""
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        names = f"{names}/{param.secondary_opts[0]}"
    return names if param.is_flag else f"{names} {_placeholder(param)}"


def _placeholder(param: Any) -> str:
    described = param.type_descriptor
    if param.metavar:
        return str(param.metavar)
    if described.choices:
        return "|".join(map(str, described.choices))
    return PLACEHOLDERS.get(described.annotation) or str(param.name).upper()


def _text(param: Any, ctx: Any) -> str:
    default = param.get_default(ctx, call=False)
    if default is None or default is False or "[default:" in (param.help or "") or not param.show_default:
        return param.help or ""
    word = param.opts[0].lstrip("-") if default is True else default
    return f"{param.help}  [default: {word}]"


def _row(console: Console, left: str, help: str, column: int) -> None:
    """An option and its text: in two columns, or below each other where the option is long."""
    text = Text()
    for i, part in enumerate(" ".join(help.split()).split("`")):
        text.append(part, style="cyan" if i % 2 else "")
    lines = list(text.wrap(console, max(console.width - column, 10)))
    start = Text(" " * INDENT).append(left, style="cyan")
    if len(start) + INDENT <= column and lines:
        start.pad_right(column - len(start))
        start.append_text(lines.pop(0))
    for line in (start, *(Text(" " * column).append_text(line) for line in lines)):
        line.rstrip()
        console.print(line, soft_wrap=True)
