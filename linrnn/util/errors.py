"""Errors in one form: `argument: expected X, got Y`; and checks that raise them."""

import difflib
import re
from collections.abc import Container, Iterable

import torch
from torch import SymInt, Tensor

LARGEST = 2**63 - 1  # the largest size PyTorch can hold


def wrong_value(argument: str, expected: str, came: object) -> ValueError:
    return ValueError(_message(argument, expected, came))


def wrong_type(argument: str, expected: str, came: object) -> TypeError:
    return TypeError(_message(argument, expected, came))


def unknown(argument: str, came: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not in `known`. It lists the known names and suggests the nearest."""
    known = list(known)
    near = difflib.get_close_matches(came, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return wrong_value(argument, " or ".join(map(repr, known)), repr(came) + hint)


def check_tensor(argument: str, came: object) -> None:
    """Raise TypeError unless `came` is a dense tensor."""
    if not isinstance(came, Tensor):
        raise wrong_type(argument, "a tensor", type(came).__name__)
    if came.layout is not torch.strided or came.is_nested:
        kind = "nested" if came.is_nested else str(came.layout).removeprefix("torch.")
        raise wrong_type(argument, "a dense tensor", f"a {kind} one")


def check_integer(argument: str, came: object, least: int, most: int = LARGEST) -> None:
    """Raise TypeError or ValueError unless `came` is an integer from `least` to `most`, or a symbolic size."""
    if isinstance(came, bool) or not isinstance(came, int | SymInt):
        raise wrong_type(argument, "an integer", repr(came))
    if came < least:
        raise wrong_value(argument, f"at least {least}", came)
    if not torch.compiler.is_compiling() and came > most:  # the comparison would bound a symbolic size
        raise wrong_value(argument, f"at most {most}", came)


def check_classes(argument: str, came: Tensor, classes: int) -> None:
    """Raise ValueError unless integers are from 0 to below `classes`. Only a CPU checks, since it is fast there."""
    if came.device.type != "cpu" or torch.compiler.is_compiling() or not came.numel():
        return
    low, high = (int(x) for x in came.aminmax())
    if low < 0 or high >= classes:
        raise wrong_value(argument, f"classes from 0 to {classes - 1}", low if low < 0 else high)


def check_switch(argument: str, came: object) -> None:
    """Raise TypeError unless `came` is True or False."""
    if not isinstance(came, bool):
        raise wrong_type(argument, "True or False", f"{came!r}"[:80])


def check_choice(argument: str, came: object, choices: Iterable[str]) -> None:
    """Raise TypeError or ValueError unless `came` is one of the strings `choices`."""
    if not isinstance(came, str):
        raise wrong_type(argument, " or ".join(map(repr, choices)), repr(came))
    if came not in choices:
        raise unknown(argument, came, choices)


def check_new_name(argument: str, came: object, known: Container[str]) -> None:
    """Raise TypeError unless `came` is a string, and ValueError unless it is a valid name that is not in `known`."""
    if not isinstance(came, str):
        raise wrong_type(argument, "text", repr(came))
    if not re.fullmatch(r"[\w-]+", came):
        raise wrong_value(argument, "letters, digits, _ and -", repr(came))
    if came in known:
        raise wrong_value(argument, "a name that is not registered yet", repr(came))


def shape(x: Tensor) -> str:
    """The shape of `x` as text: (2, 3)."""
    return str(tuple(x.shape))


def _message(argument: str, expected: str, came: object) -> str:
    return f"{argument}: expected {expected}, got {came}"
