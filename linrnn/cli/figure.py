"""The command `linrnn figure`: the paper's analyses, each with its picture, its numbers and its claims."""

import importlib
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from linrnn.cli.console import bars, out
from linrnn.paper import figures as experiments
from linrnn.paper.figures.base import Result
from linrnn.util import files
from linrnn.util.errors import unknown, wrong_value
from linrnn.util.provenance import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

FRAME = 150  # milliseconds
GIF_DPI = 64  # less than half of a picture's, since there are many frames


def figure(
    name: Annotated[str, typer.Argument(help="A figure's name, `all`, or `list` to see them.", metavar="NAME")],
    run: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of a run, for `depth`, or of several, for `ladder` and `pathx`.", metavar="RUN"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Seconds instead of minutes: fewer and smaller runs.")] = False,
    folder: Annotated[Path, typer.Option("--out", help="Where the files go.", metavar="DIR")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, help="The seed of all random draws.")] = 0,
) -> None:
    """Make a figure of the paper: NAME.png, NAME.svg and NAME.json, with its claims checked.

    Prints each claim, its measurement and whether it holds; the exit code is 1 if a claim does not hold.

    **Examples**

    - `linrnn figure list`: what there is
    - `linrnn figure gain --quick`
    - `linrnn figure all --out figures`
    - `linrnn figure depth runs/recall-lru`: an animation of a run's eigenvalues
    - `linrnn figure ladder results/lra`: the average over tasks, rung by rung
    """
    known = [*experiments.FIGURES, *experiments.FROM_RUNS, "all", "list"]
    if name not in known:
        raise unknown("NAME", name, known)
    if (run is not None) != (name in experiments.FROM_RUNS):
        words = ", ".join(f"`{each}`" for each in experiments.FROM_RUNS)
        raise wrong_value("RUN", f"a folder for {words}, and only for these", "none" if run is None else run)
    if name == "list":
        _list()
        return
    names = list(experiments.FIGURES) if name == "all" else [name]
    records = [_make(each, folder, run, quick, seed) for each in names]
    if len(records) > 1:
        _summarize(records)
    if not all(finding["holds"] for record in records for finding in record["findings"]):
        raise typer.Exit(1)


def save(result: Result, record: dict[str, Any], path: Path) -> list[Path]:
    """Write the picture, the record and any animation as PATH.png, .svg, .json and .gif; returns these files."""
    contents = {
        ".png": _render(result.figure, "png"),
        ".svg": _render(result.figure, "svg"),
        ".json": _json(record),
    }
    if result.frames:
        contents[".gif"] = _animate([result.figure, *result.frames])
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_name(path.name + ending) for ending in contents]
    for file, data in zip(written, contents.values(), strict=True):
        files.write(file, data)
    return written


def _make(name: str, folder: Path, run: Path | None, quick: bool, seed: int) -> dict[str, Any]:
    """Run an experiment, save and show its results; returns the record."""
    start = time.perf_counter()
    with bars(out, name) as progress:
        if run is not None:  # figures of recorded runs, which are deterministic
            make: Callable[..., Result] = importlib.import_module(f"linrnn.paper.figures.{name}").run_on
            result = make(run, progress=progress)
        else:
            result = experiments.figure(name)(quick=quick, seed=seed, progress=progress)
    how: dict[str, Any] = {"quick": quick, "seed": seed} if run is None else {"run": str(run)}
    record = {
        "name": name,
        **how,
        "seconds": round(time.perf_counter() - start, 2),
        "findings": [vars(finding) for finding in result.findings],
        "numbers": result.numbers,
        **provenance(),
    }
    written = save(result, record, folder / name)
    table = Table("claim", "measured", "holds", title=f"{name}, {record['seconds']:.1f} s")
    for finding in result.findings:
        table.add_row(escape(finding.claim), escape(finding.measured), _mark(finding.holds))
    out.print(table)
    out.print(escape("  ".join(map(str, written))), soft_wrap=True, highlight=False)
    return record


def _list() -> None:
    table = Table("figure", "what it shows")
    for name, about in experiments.FIGURES.items():
        table.add_row(name, escape(about))
    for name, about in experiments.FROM_RUNS.items():
        table.add_row(f"{name} RUN", escape(about))
    out.print(table)


def _summarize(records: list[dict[str, Any]]) -> None:
    table = Table("figure", "claims that hold", "seconds", title="all figures")
    for record in records:
        holds = [finding["holds"] for finding in record["findings"]]
        whose = " (our own claims)" if record["name"] in experiments.OWN else ""
        table.add_row(
            record["name"] + whose, f"{sum(holds)} of {len(holds)} {_mark(all(holds))}", f"{record['seconds']:.1f}"
        )
    out.print(table)


def _mark(holds: bool) -> str:
    return "[green]yes[/]" if holds else "[bold red]NO[/]"


def _json(record: dict[str, Any]) -> bytes:
    """JSON with each list of numbers on one line."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), text).encode() + b"\n"


def _render(figure: "Figure", kind: str) -> bytes:
    """The same bytes for the same figure: without a date, and with fixed names inside an SVG."""
    import matplotlib

    data = io.BytesIO()
    if kind == "png":
        _pixels(figure).save(data, "PNG", optimize=True)
        return data.getvalue()
    with matplotlib.rc_context({"svg.hashsalt": "linrnn"}):
        figure.savefig(data, format=kind, metadata={"Date": None})
    return data.getvalue()


def _pixels(figure: "Figure", dpi: float | None = None, colours: int = 256) -> "Image.Image":
    """With a palette of the drawing's few colours, the file has a third of the size."""
    from PIL import Image

    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=dpi or figure.dpi)
    return Image.open(data).convert("RGB").quantize(colours)


def _animate(frames: list["Figure"]) -> bytes:
    """A GIF that starts again after a pause on its last frame."""
    images = [_pixels(frame, GIF_DPI, 32) for frame in frames]
    durations = [FRAME] * (len(images) - 1) + [10 * FRAME]
    data = io.BytesIO()
    images[0].save(data, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
    return data.getvalue()
