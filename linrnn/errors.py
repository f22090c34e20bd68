"""Errors that name the argument, what was expected and what came."""

import difflib
from collections.abc import Iterable

from torch import Tensor


def wrong_value(argument: str, expected: str, came: object) -> ValueError:
    return ValueError(_message(argument, expected, came))


def wrong_type(argument: str, expected: str, came: object) -> TypeError:
    return TypeError(_message(argument, expected, came))


def unknown(argument: str, came: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among those known: it lists them, and suggests the nearest."""
    known = list(known)
    near = difflib.get_close_matches(came, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return wrong_value(argument, " or ".join(map(repr, known)), repr(came) + hint)


def shape(x: Tensor) -> str:
    """The shape of `x` as people write it: (2, 3)."""
    return str(tuple(x.shape))


def _message(argument: str, expected: str, came: object) -> str:
    return f"{argument}: expected {expected}, got {came}"
