"""A saved model: a folder with its weights and its config."""

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import Tensor, nn

from linrnn.util.files import sha256, write

WEIGHTS, CONFIG = "model.safetensors", "config.json"
M = TypeVar("M", bound=nn.Module)


def write_model(folder: str | os.PathLike[str], config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write the weights with their checksum, and the config, into a folder."""
    folder = Path(folder)
    described = json.dumps(config, indent=2) + "\n"  # first: a config that JSON cannot hold leaves the old files
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    write(folder / WEIGHTS, safetensors.torch.save(tensors, {"sha256": sha256(tensors)}))
    write(folder / CONFIG, described.encode())


def read_model(folder: str | os.PathLike[str], build: Callable[[dict[str, Any]], M]) -> M:
    """The module that `build` makes of the config in a folder, with the weights of the folder."""
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"folder: expected {name} in {folder}, where Model.save put it; there is none")
    try:
        model = build(json.loads((folder / CONFIG).read_text()))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"folder: expected a model's config in {folder / CONFIG}, got one that fits none: {error}"
        ) from error
    try:
        with safetensors.safe_open(folder / WEIGHTS, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dictionary
            known = (file.metadata() or {}).get("sha256")
        if known not in (None, sha256(weights)):  # None: written by others
            raise RuntimeError("its checksum is another, it is damaged")
        model.load_state_dict(_alike(weights), assign=True)  # in the precision in which they were saved
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise ValueError(f"folder: expected the weights of {CONFIG} in {folder / WEIGHTS}: {error}") from error
    return model


def _alike(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Numbers of different precision in the highest one of them, as of published weights."""
    numbers = [tensor.dtype for tensor in weights.values() if tensor.is_floating_point()]
    widest = functools.reduce(torch.promote_types, numbers) if numbers else None
    return {name: tensor.to(widest) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
