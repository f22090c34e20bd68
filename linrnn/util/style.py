"""The visual language of all pictures: colours that colour-blind people can tell apart, in a fixed order."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linrnn.util import extras
from linrnn.util.files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours. The first is for the LRU, the second for the alternative.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000",
)  # fmt: skip
GREY = "#999999"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK)


def subplots(
    rows: int, columns: int, *, width: float = 3.6, height: float = 3.0, **options: Any
) -> tuple["Figure", Any]:
    """A figure and its axes (rows, columns), without touching any global state of Matplotlib."""
    with extras.needed("a picture"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def spectra(
    before: list[Any], now: list[Any], labels: tuple[str, str], title: str, widest: float | None = None
) -> "Figure":
    """Each block's eigenvalues at two times, complex arrays (N,).

    Above, the complex plane; below, the memory of each eigenvalue in steps, 1/ν for |λ| = exp(-ν), over its phase up to
    `widest`·π.
    """
    figure, axes = subplots(2, len(now), width=max(2.4, 5 / len(now)), height=2.7, sharey="row")
    limit = max(1.1, *(1.05 * float(abs(lam).max(initial=0)) for lam in (*before, *now)))
    for i, (disk, memory) in enumerate(axes.T):
        unit_circle(disk)
        for lam, colour, label in zip((before[i], now[i]), (GREY, BLUE), labels, strict=True):
            disk.scatter(lam.real, lam.imag, s=6, color=colour, label=label)
            stable = lam[(abs(lam) > 0) & (abs(lam) < 1)]
            memory.scatter(np.angle(stable) / np.pi, -1 / np.log(abs(stable)), s=6, color=colour)
        disk.set(title=f"block {i + 1}", xlim=(-limit, limit), ylim=(-limit, limit), ylabel="" if i else "Im λ")
        memory.set(yscale="log", xlabel="phase / π", ylabel="" if i else "memory 1/ν, steps")
        if widest is not None:
            memory.set(xlim=(-widest, widest))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title)
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG or SVG file atomically, and make its folder if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix[1:])
    write(path, data.getvalue())


def unit_circle(ax: Any) -> None:
    """The unit circle, and equal scales around it."""
    from matplotlib.patches import Circle

    ax.add_patch(Circle((0, 0), 1, fill=False, color=BLACK, linewidth=0.8))
    ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xlabel="Re λ", ylabel="Im λ")
