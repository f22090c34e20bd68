"""The command `linrnn table`: our runs in the paper's tables, with the paper's numbers."""

import html
import json
import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from linrnn.cli.console import log, out
from linrnn.paper import published as paper
from linrnn.paper import tables
from linrnn.paper.tables import Filled
from linrnn.util import files
from linrnn.util.errors import unknown, wrong_value

ENDINGS = {".md": "markdown", ".tex": "latex", ".html": "html"}
NAME = 40  # the width of the column of names
# LaTeX's special characters, and characters that its usual fonts lack.
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "[": "{[}", "]": "{]}", "–": "--", "✗": r"$\times$",
    "γ": r"$\gamma$", "Λ": r"$\Lambda$", "π": r"$\pi$",
}  # fmt: skip


def table(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(paper.TABLES)}.", metavar="NAME")],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders that contain runs at any depth.  [default: runs]", metavar="FOLDER"),
    ] = None,
    kind: Annotated[
        Literal["markdown", "latex", "html"] | None,
        typer.Option("--format", help="Text for a document.  [default: by the ending of --out]"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="A file to write instead of printing.", metavar="FILE")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the commands that would fill the missing cells.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="For --plan: the number for each cell.")] = tables.SEEDS,
    bench: Annotated[
        Path | None, typer.Option(help="For `speed`: a record of `linrnn bench train --json FILE`.", metavar="FILE")
    ] = None,
) -> None:
    """Finished runs in a table of the paper: our numbers and the paper's, mean and standard error over seeds.

    A run counts in the paper's row only with the paper's settings: seed, learning rate and eval_every are free, and of
    several rates the rate with the best validation accuracy counts. Any other LRU has its own row, whose name lists the
    differences. Runs that do not count are named below the table, with the reason.

    **Examples**

    - `linrnn table normalization`
    - `linrnn table parameterization runs results/lra --format latex --out ladder.tex`
    - `linrnn table speed --bench results/bench/train.json`
    - `linrnn table ring --plan --seeds 1 > missing.sh`: what to run
    """
    if name not in paper.TABLES:
        raise unknown("NAME", name, paper.TABLES)
    for folder in folders or []:
        if not folder.is_dir():
            raise wrong_value("FOLDER", "a folder with runs", folder)
    if bench is not None and name != "speed":
        raise wrong_value("--bench", "only with `speed`", bench)
    places = folders or [Path("runs")]
    runs = tables.collect(places)
    measured = None if bench is None else _record(bench)
    filled = [tables.fill(section, runs, measured) for section in paper.TABLES[name]]
    if plan:
        _finish("".join(f"{command}\n" for command in tables.plan(filled, places[0], seeds)), file)
    elif kind is None and file is None:
        for each in filled:
            out.print(_rich(each))
    else:
        write = WRITERS[_format(kind, file)]
        _finish("\n".join(write(each) for each in filled), file)
    _say_left_out(filled)


def _record(bench: Path) -> Any:
    try:
        record = json.loads(bench.read_text())
    except (OSError, ValueError) as error:
        raise wrong_value("--bench", "what `linrnn bench train --json FILE` wrote", f"{bench}: {error}") from error
    if not isinstance(record, dict) or not {"machine", "results"} <= record.keys():
        raise wrong_value("--bench", "what `linrnn bench train --json FILE` wrote", f"{bench}, another kind of file")
    return record


def _format(kind: str | None, file: Path | None) -> str:
    if kind is None and file is not None and file.suffix not in ENDINGS:
        raise wrong_value("--out", f"a name that ends in {', '.join(ENDINGS)}, or --format", file)
    return kind or ENDINGS[file.suffix if file is not None else ""]


def _finish(text: str, file: Path | None) -> None:
    if file is None:
        sys.stdout.write(text)
        return
    files.write(file, text.encode())
    log.print(f"written to {escape(str(file))}")


def _say_left_out(filled: list[Filled]) -> None:
    """The runs that count in no part of the table, each once."""
    counted = {str(run.folder) for each in filled for *_, runs in each.cells() for run in runs}
    for what, reason in {what: why for each in filled for what, why in each.left_out.items()}.items():
        if what not in counted:
            log.print(f"[yellow]left out:[/] {escape(f'{what}: {reason}')}")
    for folder in dict.fromkeys(run.folder for each in filled for run in each.unfinished):
        log.print(f"[yellow]not finished:[/] {escape(str(folder))}")


def _models(filled: Filled) -> list[list[list[str]]]:
    """The lines of each model, with its name only on the first."""
    return [
        [["" if i else name, whose, *cells] for i, (_, whose, cells) in enumerate(lines)]
        for name, lines in groupby(tables.lines(filled), key=lambda line: line[0])
    ]


def _header(filled: Filled) -> list[str]:
    return ["", "", *(column.name for column in filled.section.columns)]


def _caption(filled: Filled) -> str:
    section = filled.section
    data = "".join(f" Our data, {task}: {source}." for task, source in tables.sources(filled).items())
    return f"{tables.legend(filled)}{data} The paper's numbers: {section.source}."


def _rich(filled: Filled) -> Table:
    result = Table(title=escape(filled.section.title), caption=escape(_caption(filled)), caption_justify="left")
    for i, name in enumerate(_header(filled)):
        width = NAME if i == 0 else None  # variants have long names, which are wrapped
        result.add_column(name, justify="left" if i < 2 else "right", no_wrap=i > 1, max_width=width)
    for lines in _models(filled):
        for line in lines:
            ours = line[1].startswith("ours")
            result.add_row(*map(escape, line), style=None if ours else "dim", end_section=line is lines[-1])
    return result


def _markdown(filled: Filled) -> str:
    def row(cells: list[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    header = _header(filled)
    rows = [row(line) for lines in _models(filled) for line in lines]
    rule = row(["---", "---", *("---:" for _ in header[2:])])
    parts = [f"**{filled.section.title}**", "\n".join([row(header), rule, *rows]), _caption(filled)]
    return "\n\n".join(parts) + "\n"


def _latex(filled: Filled) -> str:
    def clean(text: str) -> str:
        return re.sub(r"[^ -~]|[\\&%$#_{}~^\[\]]", lambda match: LATEX.get(match[0], match[0]), text)

    def row(cells: list[str]) -> str:
        return f"{' & '.join(map(clean, cells))} \\\\"

    header = _header(filled)
    body = [text for lines in _models(filled) for text in [*map(row, lines), r"\hline"]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}",
            r"\hline",
            row(header),
            r"\hline",
            *body,
            r"\end{tabular}",
            rf"\caption{{{clean(filled.section.title)}. {clean(_caption(filled))}}}",
            r"\end{table}",
            "",
        ]
    )


def _html(filled: Filled) -> str:
    def row(tag: str, cells: list[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    groups = ["\n".join(["<tbody>", *(row("td", line) for line in lines), "</tbody>"]) for lines in _models(filled)]
    caption = f"<b>{html.escape(filled.section.title)}.</b> {html.escape(_caption(filled))}"
    head = f"<thead>\n{row('th', _header(filled))}\n</thead>"
    return "\n".join(
        ['<meta charset="utf-8">', "<table>", f"<caption>{caption}</caption>", head, *groups, "</table>", ""]
    )


WRITERS: dict[str, Callable[[Filled], str]] = {"markdown": _markdown, "latex": _latex, "html": _html}
