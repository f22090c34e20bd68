"""Training: the loop, the optimizer and its schedule, runs and their checkpoints."""

from linrnn.training.loop import InterruptedRun, NonFiniteLossError, TimeIsUp, resume, train
from linrnn.training.prediction import Predictions, generate, predict
from linrnn.training.processes import Processes
from linrnn.training.run import Run, load
from linrnn.training.settings import Settings

__all__ = [
    "InterruptedRun",
    "NonFiniteLossError",
    "Predictions",
    "Processes",
    "Run",
    "Settings",
    "TimeIsUp",
    "generate",
    "load",
    "predict",
    "resume",
    "train",
]
