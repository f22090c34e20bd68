"""The paper's analyses, one file each: `linrnn figure NAME` makes the picture and checks the claim."""

import importlib

from linrnn.paper.figures.base import Experiment, Finding, Result
from linrnn.util.errors import unknown

__all__ = ["FIGURES", "FROM_RUNS", "OWN", "Experiment", "Finding", "Result", "figure"]

FIGURES = {  # the name, which is also the name of its file, and what it shows
    "spectrum": "where the eigenvalues of random matrices and of the ring initialization lie",
    "gain": "how the state blows up as |λ| → 1, and that γ prevents it",
    "impulse": "what states remember over 16,384 steps, with all phases and with small ones",
    "powers": "why λ is learned as exp(-ν + iθ)",
    "kernel": "does a linear RNN learn a long convolution faster than a tanh RNN?",
    "relu": "what ReLU does to a sine's spectrum",
    "koopman": "a nonlinear system as MLP → linear RNN → linear map",
    "discretization": "where S4D's eigenvalues land in the unit disk, and how strongly inputs enter",
    "realform": "complex diagonal and real 2×2 blocks: the same map",
    "levels": "what an accuracy on ListOps means: how much of an expression a model must know, and for how long",
}

FROM_RUNS = {  # figures of recorded runs: `linrnn figure NAME RUN`, the folder of a run or of several
    "depth": "how the eigenvalues of each block move during training of a run",
    "ladder": "the average accuracy over tasks, rung by rung from the tanh RNN to the LRU",
    "pathx": "training with and without γ and small phases: the curves of a sweep",
}

OWN = ("levels", "depth")  # the claims are linrnn's, not the paper's


def figure(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in FIGURES:
        raise unknown("name", name, FIGURES)
    run: Experiment = importlib.import_module(f"linrnn.paper.figures.{name}").run
    return run
