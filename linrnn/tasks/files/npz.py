"""NumPy's files as tasks: one .npz file, a folder of .npy files, or one .npy file and the files named after it."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays.inputs import damaged, open_array, refused
from linrnn.tasks.arrays.rows import blocks
from linrnn.tasks.arrays.splits import ALSO
from linrnn.tasks.base import SPLITS, Kind, Task
from linrnn.util.errors import unknown, wrong_value
from linrnn.util.files import DAMAGE, plain

SUFFIXES = (".npz", ".npy")
PARTS = ("inputs", "targets", "lengths", "tokens")
COMMON = (*PARTS, "labels", "channels", "splits")
NAMES = (*COMMON, "split", *SPLITS, *(f"{split}_{part}" for split in SPLITS for part in PARTS))
ALIASES = {"x": "inputs", "y": "targets"}  # as in scikit-learn and Keras, also in capitals


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
        path: of a .npz file with the arrays `inputs` and `targets`, and optionally `lengths`, `tokens`,
            `labels`, `channels`, and `splits`: for each example 0 or "train", 1 or "validation", 2 or "test", or three
            numbers of examples, or three fractions; or with the indices of each, `train`, `validation` and `test`; or
            with `train_inputs`, `validation_inputs`, `test_inputs` and so on. Without examples for validation, they are
            taken from the training examples. `X` and `y` stand for `inputs` and `targets`, and `x_train` for
            `train_inputs`. Or of a folder with such arrays as .npy files; or of one .npy file, the inputs, where my.npy
            is accompanied by my_targets.npy and so on, and inputs.npy by targets.npy. The arrays of .npy files are
            mapped into memory, not read.
        kind: what is learned; None infers it from the shapes and types of the arrays.
        vocabulary: for tokens: the number of symbols.
        period: for a forecast: the length of a season in steps.
        missing, fractions, seed, by_time: as for `Task.from_arrays`.
        name: of the task.
    """
    arrays = read(path)
    where = f"{path.name}: {', '.join(f'{key} {value.shape}' for key, value in arrays.items() if key in NAMES)}"
    if others := [name for name in arrays if name not in NAMES]:
        where += f"; not used: {', '.join(others)}"
    if "inputs" in arrays:
        splits = _divided(arrays)
    else:
        arrays, splits = _together(path, arrays)
    inputs, targets = arrays["inputs"], arrays.get("targets")
    if kind is None and targets is not None and _flags(targets):
        targets = targets.astype(np.uint8)
    found = kind or infer(inputs, targets)
    return Task.from_arrays(
        inputs, targets, arrays.get("lengths"), kind=found, tokens=arrays.get("tokens"), vocabulary=vocabulary,
        labels=_names(arrays.get("labels")), channels=_names(arrays.get("channels")), splits=splits,
        fractions=fractions, seed=seed, by_time=by_time, missing=missing, period=period, name=name or path.stem,
        source=where, options={"format": "npz", "kind": found},
    )  # fmt: skip


def read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in a file or a folder, by name. Python objects and pickles are an error, and are never loaded.

    An unknown name that is close to a known one is an error; a single array is the inputs.
    """
    if path.suffix == ".npz":
        arrays = _zipped(path)
    else:
        files = {file.stem: file for file in sorted(path.glob("*.npy"))} if path.is_dir() else _beside(path)
        root = path if path.is_dir() else None
        arrays = {name: open_array(plain(file, root)) for name, file in files.items()}
    if len(arrays) == 1 and not arrays.keys() & {*NAMES}:
        arrays = {"inputs": next(iter(arrays.values()))}
    arrays = _renamed(path, arrays)
    for name in arrays:
        if name not in NAMES and (near := difflib.get_close_matches(name, NAMES, n=1)):
            raise unknown(f"{path}: array", name, COMMON if near[0] in COMMON else NAMES)
    if "inputs" not in arrays and "train_inputs" not in arrays:
        raise wrong_value(str(path), "an array `inputs`, or `train_inputs`", ", ".join(arrays) or "no array")
    return arrays


def infer(inputs: NDArray[Any], targets: NDArray[Any] | None) -> Kind:
    """The kind of task of these arrays."""
    if targets is None:
        if inputs.dtype.kind not in "biu" or inputs.ndim != 2:
            came = f"none, with inputs {inputs.dtype} {inputs.shape}"
            raise wrong_value("targets", "an array `targets` with inputs that are not tokens", came)
        return "language"
    steps = inputs.ndim > 1 and targets.shape[1:2] == inputs.shape[1:2]
    if targets.dtype.kind == "f":
        return "forecast" if targets.ndim == 3 and not steps else "per-step" if steps else "regression"
    if targets.ndim == 1 or (targets.shape[1:] == (1,) and not steps):
        return "classification"
    return "per-step" if steps else "multi-label"


def _flags(targets: NDArray[Any]) -> bool:
    """Whether these are floats that are all 0 or 1: classes, not numbers."""
    if targets.dtype.kind != "f" or targets.ndim > 2:
        return False
    return all(np.isin(block, (0, 1)).all() for _, block in blocks(targets))


def _renamed(path: Path, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays by linrnn's names: X is the inputs, x_train the training inputs."""
    parted = {also: name for name, names in ALSO.items() for also in names}
    result: dict[str, NDArray[Any]] = {}
    for given, array in arrays.items():
        name, words = given, given.lower().split("_")
        if given.lower() in ALIASES:
            name = ALIASES[given.lower()]
        elif given in parted and "train" in arrays and "test" in arrays:
            name = parted[given]
        elif len(words) == 2 and words[1] in parted:  # x_train
            words.reverse()
        if len(words) == 2 and words[0] in parted:
            part = "targets" if words[1] == "labels" else ALIASES.get(words[1], words[1])
            name = f"{parted[words[0]]}_{part}" if part in PARTS else given
        if name in result or (name != given and name in arrays):
            raise wrong_value(f"{path}: array {given!r}", f"one array of {name}", "two")
        result[name] = array
    if "targets" not in result and "labels" in result and "inputs" in result:
        labels, inputs = result["labels"], result["inputs"]
        if labels.ndim and inputs.ndim and len(labels) == len(inputs):  # labels of examples, not names of classes
            result["targets"] = result.pop("labels")
    return result


def _beside(path: Path) -> dict[str, Path]:
    """The file of the inputs, and the files named after it."""
    stem = "" if path.stem == "inputs" else f"{path.stem.removesuffix('_inputs')}_"
    others = {part: path.with_name(f"{stem}{part}.npy") for part in NAMES if part != "inputs"}
    if path.stem.lower() == "x" and not others["targets"].is_file():
        others["targets"] = path.with_name(f"{'y' if path.stem == 'x' else 'Y'}.npy")
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
        if isinstance(error, ValueError | TypeError) and "expected" in str(error):  # the message is linrnn's own
            raise
        if "pickle" in str(error).lower():  # what NumPy says of all files of other formats
            raise (refused(path) if _is_pickle(path) else _damaged_zip(path, "not a file of NumPy")) from None
        raise _damaged_zip(path, error) from None


def _is_pickle(path: Path) -> bool:
    """Whether a file begins as a pickle does."""
    with open(path, "rb") as file:
        return file.read(1) == b"\x80"


def _member(path: Path, file: Any, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = file[name]
    except DAMAGE as error:
        raise (refused(f"{path}: {name}") if "pickle" in str(error) else damaged(path, error)) from None
    if not isinstance(array, np.ndarray):  # the bytes of a file that is no .npy file
        raise wrong_value(str(path), "arrays by name, as numpy.savez writes them", f"a file {name!r} in it")
    return array


def _damaged_zip(path: Path, error: object) -> ValueError:
    return wrong_value(str(path), "arrays by name, as numpy.savez writes them", f"a damaged file ({error})")


def _together(path: Path, arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The arrays of three splits as one, and the examples of each split."""
    if "test_inputs" not in arrays:
        raise wrong_value(str(path), "an array `test_inputs` next to `train_inputs`", "none")
    names = [split for split in SPLITS if f"{split}_inputs" in arrays]
    sizes = [len(arrays[f"{split}_inputs"]) for split in names]
    result = {name: array for name, array in arrays.items() if name in ("labels", "channels")}
    for part in PARTS:
        some = [arrays.get(f"{split}_{part}") for split in names]
        there = [array for array in some if array is not None]
        if not there:
            continue
        for split, size, array in zip(names, sizes, some, strict=True):
            if array is None:
                raise wrong_value(f"{path}: {split}_{part}", "an array, as for the other splits", "none")
            if array.ndim == 0 or len(array) != size or array.shape[1:] != there[0].shape[1:]:
                expected = f"shape {(size, *there[0].shape[1:])}, as train_{part}"
                raise wrong_value(f"{path}: {split}_{part}", expected, array.shape)
        result[part] = np.concatenate(there)
    order = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return result, dict(zip(names, order, strict=True))


def _divided(arrays: dict[str, NDArray[Any]]) -> Any:
    """The splits, as `Task.from_arrays` takes them; None if the file has none."""
    if "train" in arrays and "test" in arrays:
        return {name: arrays[name] for name in SPLITS if name in arrays}
    return arrays.get("splits", arrays.get("split"))


def _names(array: NDArray[Any] | None) -> list[str] | None:
    return None if array is None else [str(name) for name in np.ravel(array).tolist()]
