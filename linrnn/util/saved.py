"""A saved model: a folder with its weights and its config.

The file of the weights also holds the config, so that one atomic write replaces the model. config.json is for readers
and other programs; if it differs from the config in the weights, loading is an error.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from linrnn.util.files import json_object, named, plain, read_json, sha256, write
from linrnn.util.locks import locked
from linrnn.util.types import check_path

WEIGHTS, CONFIG, LOCK = "model.safetensors", "config.json", ".linrnn-lock"
SIZES = ("depth", "d_model", "d_state", "channels", "vocabulary", "classes")
M = TypeVar("M", bound=nn.Module)


def write_model(folder: str | os.PathLike[str], config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write the weights, with the config and a checksum of both, and then the config once more as JSON, into a folder.

    If it is stopped, a folder with an earlier model has the old or the new model.
    """
    check_path("folder", folder)
    folder = Path(folder)
    described = (
        json.dumps(config, indent=2) + "\n"
    )  # first, so that a config that JSON cannot represent does not change the old files
    folder.mkdir(parents=True, exist_ok=True)
    shared = _shared(weights)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.items() if name not in shared}
    with locked(folder / LOCK, remove=True):
        about = {"config": described, "replaces": _digest(folder / CONFIG)}
        about |= {"shared": json.dumps(shared)} if shared else {}
        data = safetensors.torch.save(tensors, about | {"sha256": sha256(tensors, about=about)})
        write(folder / WEIGHTS, data)
        write(folder / CONFIG, described.encode())


def read_model(folder: str | os.PathLike[str], build: Callable[[dict[str, Any]], M]) -> M:
    """The module that `build` makes of the config in a folder, with the weights of the folder."""
    folder = Path(folder)
    digest = _digest(folder / CONFIG)  # read before the weights, which are written first
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"folder: expected {WEIGHTS} in {folder}, which Model.save writes; there is none")
    weights, about = _read_weights(folder / WEIGHTS)
    config = _config(folder, about, digest)
    try:
        shared = json_object(about.get("shared", "{}"))
        weights |= {name: weights[kept] for name, kept in shared.items()}
        model = build_to_fit(build, config, weights)
        model.load_state_dict(_alike(weights), assign=True)  # in the saved precision
        _share(model, shared)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"folder: expected a model's config in {folder / CONFIG}, got values that fit no model: {error}"
        ) from error
    except RuntimeError as error:
        raise ValueError(f"folder: expected the weights of {CONFIG} in {folder / WEIGHTS}: {error}") from error
    return model


def _shared(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """The names of shared weights, such as the head of a model whose encoder has the same matrix, and for each the name
    of the weight that it shares."""
    first: dict[object, str] = {}
    shared = {}
    for name, tensor in weights.items():
        place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and (kept := first.setdefault(place, name)) != name:
            shared[name] = kept
    return shared


def _share(model: nn.Module, shared: Mapping[str, str]) -> None:
    """Make the weights of these names one weight again, which an optimizer counts once."""
    for name, kept in shared.items():
        (owner, _, attribute), (source, _, same) = name.rpartition("."), kept.rpartition(".")
        setattr(model.get_submodule(owner), attribute, getattr(model.get_submodule(source), same))


def build_to_fit(build: Callable[[dict[str, Any]], M], config: dict[str, Any], weights: Mapping[str, Tensor]) -> M:
    """The module that `build` makes of a config; a RuntimeError, before anything large is allocated, if the weights are
    not of its names and shapes."""
    largest = max((n for tensor in weights.values() for n in tensor.shape), default=0)
    for name in SIZES:  # these sizes take time and memory even on `meta`
        value, bound = config.get(name), len(weights) if name == "depth" else max(4 * largest, 4096)
        if type(value) is int and value > bound:
            raise RuntimeError(f"{name} = {value:,} is too large for them")
    try:
        with torch.device("meta"):
            sketch = build(config)
    except (NotImplementedError, RuntimeError):  # a user's core that cannot be built on the device `meta`
        return build(config)
    sketch.load_state_dict({name: tensor.to("meta") for name, tensor in weights.items()}, assign=True)
    return build(config)


def _read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The weights and the metadata in their file. Their checksum is compared, and left out."""
    try:
        with named(path), safetensors.safe_open(plain(path), "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dictionary
            about = dict(file.metadata() or {})
        known = about.pop("sha256", None)
        # Earlier versions have a checksum of names and numbers only; files of other programs have none.
        if known != sha256(weights, about=about) and ("config" in about or known not in (None, sha256(weights))):
            raise ValueError("the checksum differs, so the file is damaged")
    except (safetensors.SafetensorError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"folder: expected the weights of {CONFIG} in {path}: {error}") from error
    return weights, about


def _config(folder: Path, about: Mapping[str, str], digest: str) -> dict[str, Any]:
    """The config in the file of the weights, or, for earlier versions, in config.json."""
    path = folder / CONFIG
    if "config" not in about:
        if not path.is_file():
            raise FileNotFoundError(f"folder: expected {CONFIG} in {folder}, which Model.save writes; there is none")
        return _read_config(path)
    config = json_object(about["config"])
    if digest and digest != about.get("replaces"):  # or the process was killed between the two writes
        found = _read_config(path)
        for name in {**config, **found}:
            if config.get(name) != found.get(name):
                expected = f"{path} with {name} = {config.get(name)!r}, as {WEIGHTS} was saved"
                raise ValueError(f"folder: expected {expected}, got {found.get(name)!r}")
    return config


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, "JSON")
    except ValueError as error:
        raise ValueError(
            f"folder: expected a model's config in {path}, got values that fit no model: {error}"
        ) from error


def _digest(path: Path) -> str:
    """The checksum of a file; empty if there is none."""
    return hashlib.sha256(plain(path).read_bytes()).hexdigest() if path.exists() else ""


def _alike(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of mixed precision, such as published weights, in the highest precision among them."""
    numbers = [tensor.dtype for tensor in weights.values() if tensor.is_floating_point()]
    widest = functools.reduce(torch.promote_types, numbers) if numbers else None
    return {name: tensor.to(widest) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
