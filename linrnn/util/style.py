"""The visual language of all pictures: colours that colour-blind people can tell apart, in a fixed order."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours. The first is ours (the LRU), the second what it is compared with.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK)


def subplots(
    rows: int, columns: int, *, width: float = 3.6, height: float = 3.0, **options: Any
) -> tuple["Figure", Any]:
    """A figure and its axes (rows, columns), without touching any global state of Matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def save(figure: "Figure", path: Path) -> None:
    """Into a file, and its folder where there is none yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def unit_circle(ax: Any) -> None:
    """The unit circle, and equal scales around it."""
    from matplotlib.patches import Circle

    ax.add_patch(Circle((0, 0), 1, fill=False, color=BLACK, linewidth=0.8))
    ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xlabel="Re λ", ylabel="Im λ")
