"""Deep linear recurrent networks for long sequences."""

from linrnn import export, recipes, tasks
from linrnn.cores import DLR, GRU, LRU, LSTM, RNN, S4, S4D, S5, Core, diagonalize, real_form, register_core
from linrnn.model import Model, ModelConfig, ModelState
from linrnn.recipes import register_task
from linrnn.recurrence import scan, scan_planes
from linrnn.streaming import Stream
from linrnn.tasks import Task
from linrnn.training import Run, load, resume, train

__version__ = "0.1.0"

__all__ = [
    "DLR",
    "GRU",
    "LRU",
    "LSTM",
    "RNN",
    "S4",
    "S4D",
    "S5",
    "Core",
    "Model",
    "ModelConfig",
    "ModelState",
    "Run",
    "Stream",
    "Task",
    "diagonalize",
    "export",
    "load",
    "real_form",
    "recipes",
    "register_core",
    "register_task",
    "resume",
    "scan",
    "scan_planes",
    "tasks",
    "train",
]
