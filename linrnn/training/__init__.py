"""Training: the loop, the optimizer and its schedule, runs and their checkpoints."""

from linrnn.training.loop import InterruptedRun, NonFiniteLossError, Settings, resume, train
from linrnn.training.processes import Processes
from linrnn.training.run import Run, load

__all__ = ["InterruptedRun", "NonFiniteLossError", "Processes", "Run", "Settings", "load", "resume", "train"]
