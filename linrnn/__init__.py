"""Deep linear recurrent networks for long sequences."""

import os
import sys

if "torch" not in sys.modules:  # idle OpenMP threads sleep instead of spinning, and leave their cores to other programs
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from linrnn import agents, export, nn, online, recipes, tasks
from linrnn.cores import (
    DLR,
    GRU,
    LRU,
    LSTM,
    RGLRU,
    RNN,
    S4,
    S4D,
    S5,
    Core,
    MinGRU,
    diagonalize,
    real_form,
    register_core,
)
from linrnn.model import Model, ModelConfig, ModelState
from linrnn.nn import param_groups
from linrnn.recipes import register_task
from linrnn.recurrence import scan, scan_planes
from linrnn.streaming import Stream
from linrnn.streaming.warm_up import warm_up
from linrnn.tasks import Task
from linrnn.training import Run, load, resume, train

__version__ = "0.1.0"

__all__ = [
    "DLR",
    "GRU",
    "LRU",
    "LSTM",
    "RGLRU",
    "RNN",
    "S4",
    "S4D",
    "S5",
    "Core",
    "MinGRU",
    "Model",
    "ModelConfig",
    "ModelState",
    "Run",
    "Stream",
    "Task",
    "agents",
    "diagonalize",
    "export",
    "load",
    "nn",
    "online",
    "param_groups",
    "real_form",
    "recipes",
    "register_core",
    "register_task",
    "resume",
    "scan",
    "scan_planes",
    "tasks",
    "train",
    "warm_up",
]
