"""Atomic writes, and checksums of tensors."""

import hashlib
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


def write(path: Path, data: bytes) -> None:
    """Write a temporary file, then rename it: a reader finds the old file or the new file, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def parts(folder: Path) -> list[Path]:
    """The temporary files that a kill in the middle of `write` left in a folder."""
    return [path for path in folder.glob(".*") if path.is_file() and re.fullmatch(r"\..+\.\d+-\d+", path.name)]


def sha256(tensors: Mapping[str, Tensor]) -> str:
    """The checksum of the names and numbers of contiguous tensors on the CPU."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
