"""Files that are there whole or not at all."""

import os
import re
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file beside its place, then move it there: whoever reads it finds the old one or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def parts(folder: Path) -> list[Path]:
    """What a kill in the middle of `write` left in a folder."""
    return [path for path in folder.glob(".*") if path.is_file() and re.fullmatch(r"\..+\.\d+", path.name)]
