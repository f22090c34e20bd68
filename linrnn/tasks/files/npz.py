"""NumPy's files as tasks: one .npz file, a folder of .npy files, or one .npy file and those named after it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.base import SPLITS, Kind, Task
from linrnn.util.errors import unknown, wrong_value
from linrnn.util.files import DAMAGE, plain

SUFFIXES = (".npz", ".npy")
PARTS = ("inputs", "targets", "lengths", "tokens")
NAMES = (*PARTS, "labels", "channels", "split", *(f"{split}_{part}" for split in SPLITS for part in PARTS))


def load(
    path: Path,
    *,
    kind: Kind | None = None,
    vocabulary: int | None = None,
    period: int | None = None,
    missing: Literal["error", "mean", "drop"] = "error",
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    by_time: bool = False,
    name: str | None = None,
) -> Task:
    """A task from arrays in files.

    Args:
        path: of a .npz file with the arrays `inputs` and `targets`, and, where there are any, `lengths`, `tokens`,
            `labels`, `channels`, and `split` (0 for training, 1 for validation, 2 for test); or with `train_inputs`,
            `validation_inputs`, `test_inputs` and so on. Or of a folder with such arrays as .npy files; or of one .npy
            file, the inputs, where X.npy is accompanied by X_targets.npy and so on, and inputs.npy by targets.npy. The
            arrays of .npy files are mapped into memory, not read.
        kind: what is learned; None infers it from the shapes and types of the arrays.
        vocabulary: how many symbols there are, for tokens.
        period: the length of a season in steps, of a forecast.
        missing, fractions, seed, by_time: as for `Task.from_arrays`.
        name: of the task.
    """
    arrays = read(path)
    where = f"{path.name}: {', '.join(f'{key} {value.shape}' for key, value in arrays.items())}"
    splits: dict[str, NDArray[Any]] | None = None
    if "inputs" not in arrays:
        arrays, splits = _together(path, arrays)
    elif "split" in arrays:
        splits = _numbered(arrays["split"], len(arrays["inputs"]))
    inputs, targets = arrays["inputs"], arrays.get("targets")
    found = kind or infer(inputs, targets)
    return Task.from_arrays(
        inputs, targets, arrays.get("lengths"), kind=found, tokens=arrays.get("tokens"), vocabulary=vocabulary,
        labels=_names(arrays.get("labels")), channels=_names(arrays.get("channels")), splits=splits,
        fractions=fractions, seed=seed, by_time=by_time, missing=missing, period=period, name=name or path.stem,
        source=where, options={"format": "npz", "kind": found},
    )  # fmt: skip


def read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in a file or a folder, by name. Python objects and pickles are refused, and never loaded."""
    if path.suffix == ".npz":
        arrays = _zipped(path)
    else:
        files = {file.stem: file for file in sorted(path.glob("*.npy"))} if path.is_dir() else _beside(path)
        arrays = {name: _open(plain(file, path if path.is_dir() else None), "c") for name, file in files.items()}
    for name in arrays:
        if name not in NAMES:
            raise unknown(f"{path}: array", name, NAMES)
    if "inputs" not in arrays and "train_inputs" not in arrays:
        raise wrong_value(str(path), "an array `inputs`, or `train_inputs`", ", ".join(arrays) or "no array")
    return arrays


def infer(inputs: NDArray[Any], targets: NDArray[Any] | None) -> Kind:
    """The kind of task that these arrays are for."""
    if targets is None:
        return "language"
    steps = inputs.ndim > 1 and targets.shape[1:2] == inputs.shape[1:2]
    if targets.dtype.kind == "f":
        return "forecast" if targets.ndim == 3 and not steps else "per-step" if steps else "regression"
    if targets.ndim == 1:
        return "classification"
    return "per-step" if steps else "multi-label"


def _beside(path: Path) -> dict[str, Path]:
    """The file of the inputs, and those named after it."""
    stem = "" if path.stem == "inputs" else f"{path.stem.removesuffix('_inputs')}_"
    others = {part: path.with_name(f"{stem}{part}.npy") for part in NAMES if part != "inputs"}
    return {"inputs": path, **{part: file for part, file in others.items() if file.is_file()}}


def _zipped(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with open(path, "rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise wrong_value(str(path), "arrays by name, as numpy.savez writes them", "a single array")
            return {name: _member(path, file, name) for name in file.files}
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged_zip(path, error) from None
    except DAMAGE as error:
        if isinstance(error, ValueError | TypeError) and "expected" in str(error):  # it is in our words already
            raise
        raise (_refused(path) if "pickle" in str(error).lower() else _damaged_zip(path, error)) from None


def _member(path: Path, file: Any, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = file[name]
    except DAMAGE as error:
        raise (_refused(f"{path}: {name}") if "pickle" in str(error) else _damaged(path, error)) from None
    return array


def _open(path: Path, mode: Literal["c"]) -> NDArray[Any]:
    """Mapped copy-on-write: never written back, and PyTorch takes it without a copy."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    except DAMAGE as error:
        if any(word in str(error).lower() for word in ("pickle", "python object")):
            raise _refused(path) from None
        raise _damaged(path, error) from None
    return array


def _refused(path: object) -> TypeError:
    return TypeError(f"{path}: expected an array of numbers, got Python objects (a pickle), which are never loaded")


def _damaged_zip(path: Path, error: Exception) -> ValueError:
    return wrong_value(str(path), "arrays by name, as numpy.savez writes them", f"a damaged file ({error})")


def _damaged(path: Path, error: Exception) -> ValueError:
    return wrong_value(str(path), "a NumPy array", f"none, or one that is damaged ({error})")


def _together(path: Path, arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The arrays of three splits as one, and which examples are whose."""
    for split in SPLITS:
        if f"{split}_inputs" not in arrays:
            raise wrong_value(str(path), f"an array `{split}_inputs` beside `train_inputs`", "none")
    sizes = [len(arrays[f"{split}_inputs"]) for split in SPLITS]
    result = {name: array for name, array in arrays.items() if name in ("labels", "channels")}
    for part in PARTS:
        some = [arrays.get(f"{split}_{part}") for split in SPLITS]
        there = [array for array in some if array is not None]
        if not there:
            continue
        for split, size, array in zip(SPLITS, sizes, some, strict=True):
            if array is None:
                raise wrong_value(f"{path}: {split}_{part}", "an array, as for the other splits", "none")
            if array.ndim == 0 or len(array) != size or array.shape[1:] != there[0].shape[1:]:
                expected = f"shape {(size, *there[0].shape[1:])}, as train_{part}"
                raise wrong_value(f"{path}: {split}_{part}", expected, array.shape)
        result[part] = np.concatenate(there)
    order = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return result, dict(zip(SPLITS, order, strict=True))


def _numbered(split: NDArray[Any], examples: int) -> dict[str, NDArray[Any]]:
    if split.shape != (examples,) or split.dtype.kind not in "iu" or not np.isin(split, (0, 1, 2)).all():
        raise wrong_value("split", f"0, 1 or 2 for each of {examples} inputs", f"{split.dtype} {split.shape}")
    return {name: np.flatnonzero(split == number) for number, name in enumerate(SPLITS)}


def _names(array: NDArray[Any] | None) -> list[str] | None:
    return None if array is None else [str(name) for name in np.ravel(array).tolist()]
