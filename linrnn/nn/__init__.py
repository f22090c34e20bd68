"""Replacements for `torch.nn.GRU`: layers with the same arguments, shapes and calls."""

from linrnn.nn.layers import LRU, S4D, S5
from linrnn.nn.parameters import param_groups

__all__ = ["LRU", "S4D", "S5", "param_groups"]
