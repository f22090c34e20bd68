"""Models for other runtimes: `onnx`, `torch` (PyTorch without linrnn) and `c`."""

from linrnn.export.c_source import c
from linrnn.export.onnx_file import onnx
from linrnn.export.program import torch

__all__ = ["c", "onnx", "torch"]
