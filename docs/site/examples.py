"""For mkdocstrings: `Example:` in a docstring starts a block of code, as `Examples:` does."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)
