"""Errors that name the argument, what was expected and what came."""

from torch import Tensor


def wrong_value(argument: str, expected: str, came: object) -> ValueError:
    return ValueError(_message(argument, expected, came))


def wrong_type(argument: str, expected: str, came: object) -> TypeError:
    return TypeError(_message(argument, expected, came))


def shape(x: Tensor) -> str:
    """The shape of `x` as people write it: (2, 3)."""
    return str(tuple(x.shape))


def _message(argument: str, expected: str, came: object) -> str:
    return f"{argument}: expected {expected}, got {came}"
