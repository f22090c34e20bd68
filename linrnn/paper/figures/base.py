"""The result of every experiment: its findings, their numbers, and a picture."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from linrnn.tasks.base import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, the measurement in words, and whether the claim holds."""

    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Result:
    """The result of an experiment.

    Attributes:
        findings: claim by claim.
        numbers: the data of the findings and the picture, as plain lists and numbers, for JSON.
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
            quick: take seconds instead of minutes: fewer and smaller runs; the same claims are checked.
            seed: of all random draws.
            progress: called with the name of the part, the steps done and the steps in all.
        """
        ...
