"""For mkdocstrings: `Example:` starts a block of code, as `Examples:` does, and `a, b: text` describes both names."""

import re
from typing import Any

import griffe

NAMES = re.compile(r"(?m)^( +)(\w+)((?:, \w+)+)(: .*(?:\n\1 +.*)*)$")


class Examples(griffe.Extension):
    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if not obj.is_alias and obj.docstring is not None:
            text = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)
            obj.docstring.value = NAMES.sub(separate, text)


def separate(match: re.Match[str]) -> str:
    """An entry for each name; the second and later names refer to the first."""
    indent, first, others, text = match.groups()
    return "".join(
        [f"{indent}{first}{text}", *(f"\n{indent}{name}: see `{first}`." for name in others[2:].split(", "))]
    )
