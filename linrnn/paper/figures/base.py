"""What every experiment gives: its findings, the numbers behind them, and a picture."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from linrnn.tasks.base import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, what was measured, in words, and whether it holds."""

    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    Attributes:
        findings: claim by claim.
        numbers: what is behind them and the picture, as plain lists and numbers, for JSON.
        figure: the picture.
        frames: more pictures of the same size, for an animation that starts with `figure`.
    """

    findings: list[Finding]
    numbers: dict[str, Any]
    figure: "Figure"
    frames: list["Figure"] = field(default_factory=list)


class Experiment(Protocol):
    """The function `run` of each figure's module."""

    def __call__(self, *, quick: bool, seed: int, progress: Progress) -> Result:
        """Compute the numbers, check the claims and draw the picture.

        Args:
            quick: take seconds instead of minutes: fewer and smaller runs, with the same claims checked.
            seed: of everything random.
            progress: called with what is done and how much of it.
        """
        ...
