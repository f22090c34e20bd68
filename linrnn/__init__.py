"""Deep linear recurrent networks for long sequences."""

from linrnn.cores import LRU, RNN, Core, diagonalize, real_form
from linrnn.model import Model, ModelConfig, ModelState, load
from linrnn.recurrence import scan, scan_planes

__version__ = "0.1.0"

__all__ = [
    "LRU",
    "RNN",
    "Core",
    "Model",
    "ModelConfig",
    "ModelState",
    "diagonalize",
    "load",
    "real_form",
    "scan",
    "scan_planes",
]
