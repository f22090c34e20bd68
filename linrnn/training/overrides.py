"""Changes to a recipe, as typed on a command line: "model.d_state=64"."""

import ast
import difflib
import functools
import math
from collections.abc import Collection, Iterable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from linrnn.paper import presets
from linrnn.recipes import ModelSettings, Recipe, Training, core_options
from linrnn.util.errors import wrong_value
from linrnn.util.types import describe

SECTIONS: dict[str, Any] = {"model": ModelSettings, "training": Training}


def override(recipe: Recipe, assignments: Iterable[str]) -> Recipe:
    """The recipe with some fields set, each given as "section.field=value".

    Values are parsed by the type of their field, and values of `model.options` by the signature of the core. If a field
    is set twice, the last value counts; otherwise the order does not matter, and `model.core` is applied first, as in
    `with_core`.

    Example:
        >>> override(recipe, ["model.d_state=64", "model.options.r_min=0.9", "training.clip=none"])
    """
    texts = dict(map(_split, assignments))
    if (core := texts.pop("model.core", None)) is not None:
        recipe = with_core(recipe, core)
    known = _fields(recipe.model.core)
    data = recipe.to_dict()
    for path, text in texts.items():
        if path not in known:
            raise _unknown(path, known)
        *sections, name = path.split(".")
        section = functools.reduce(dict.__getitem__, sections, data)
        section[name] = _parse(path, text, known[path])
    return Recipe.from_dict(data)


def with_core(recipe: Recipe, name: str) -> Recipe:
    """The recipe with another core: a preset of the paper's ladder, such as "diag-ring", or a core, such as "rnn".

    The core keeps the options that it has too: an RNN has no ring.
    """
    return presets.apply(recipe, name)


def _split(assignment: str) -> tuple[str, str]:
    """The path of a field and the text of its value."""
    path, equals, text = assignment.partition("=")
    if not equals:
        raise wrong_value(repr(assignment), "section.field=value, such as training.steps=1000", "no '='")
    return path.strip(), text.strip()


def _fields(core: str) -> dict[str, Any]:
    """All fields that can be set, and their types."""
    fields = {
        f"{section}.{name}": hint for section, kind in SECTIONS.items() for name, hint in get_type_hints(kind).items()
    }
    options = {f"model.options.{name}": hint for name, hint in core_options(core).items()}
    return {path: hint for path, hint in {**fields, **options}.items() if path != "model.options"}


def _unknown(path: str, known: Collection[str]) -> ValueError:
    """Suggests the nearest name in its section; without such a section, the field of that name or the nearest."""
    section, dot, name = path.rpartition(".")
    names = [field.rpartition(".")[2] for field in known if field.rpartition(".")[0] == section]
    near = [section + dot + match for match in difflib.get_close_matches(name, names, n=1)]
    if not names:
        same = [field for field in known if field.endswith(f".{name}")]
        near = same or difflib.get_close_matches(path, known, n=1)
    if near:
        return wrong_value(path, "a field of the recipe", f"none; did you mean {near[0]!r}?")
    return wrong_value(path, f"one of {', '.join([section + dot + name for name in names] or known)}", "none of them")


def _parse(path: str, text: str, hint: Any) -> Any:
    """The value of a text for a field of this type."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in sorted(kinds, key=lambda kind: kind is not NoneType):  # "none" is also a text
        try:
            return _read(text, kind)
        except (KeyError, ValueError):
            continue
    raise wrong_value(path, describe(hint), repr(text))


def _read(text: str, kind: Any) -> Any:
    words: dict[str, Any] = {}
    if get_origin(kind) is Literal:
        words = {str(choice): choice for choice in get_args(kind)}
    elif kind is bool:
        words = {"true": True, "false": False}
    elif kind is NoneType:
        words = {"none": None}
    if words:
        return words[text.lower()]
    if kind is Any:  # an option without an annotation: a Python literal, otherwise text
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text
    value = kind(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(text)
    return value
