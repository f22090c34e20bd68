"""`import linrnn.onnx`: models as ONNX files, see `linrnn.export.onnx`."""

from linrnn.export.onnx import export

__all__ = ["export"]
