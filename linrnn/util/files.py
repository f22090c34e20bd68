"""Files that are there whole or not at all, and what shows that they are as they were written."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


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


def sha256(tensors: Mapping[str, Tensor]) -> str:
    """Of the names and numbers of contiguous tensors on the CPU."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
