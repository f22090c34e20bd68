"""A folder of audio as a task: one folder for each class."""

import importlib.util
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks.arrays.splits import ALSO
from linrnn.tasks.base import SPLITS, Task
from linrnn.tasks.files import wav
from linrnn.util.errors import check_integer, wrong_value
from linrnn.util.files import plain

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".opus")


def load(
    path: Path,
    *,
    rate: int | None = None,
    seconds: float | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    name: str | None = None,
) -> Task:
    """A task from a folder with a folder of audio files for each class, or with train, validation and test folders that
    hold such folders. Without a folder for validation, its examples are taken from the training examples.

    Args:
        path: of the folder.
        rate: the samples in a second, to which files are resampled; None for the rate of most files.
        seconds: longer files are cut to this time; None keeps all samples.
        fractions: the parts for training, validation and test, if there are no folders for them.
        seed: of the order from which splits are cut.
        name: of the task.
    """
    if rate is not None:
        check_integer("rate", rate, 1)
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise wrong_value("seconds", "a number above 0", seconds)
    parts = _split_folders(path)
    groups = [_by_class(folder) for folder in parts.values()] or [_by_class(path)]
    classes = sorted({name for group in groups for name in group})
    files = [(file, classes.index(name)) for group in groups for name, some in group.items() for file in some]
    if len(classes) < 2:
        raise wrong_value(str(path), "folders of audio files for at least two classes", classes or "none")
    heard = [read(plain(file, path)) for file, _ in files]
    rates = Counter(own for _, own in heard)
    common = rate or max(rates, key=lambda own: (rates[own], -own))
    sequences = [prepare(samples, own, common, seconds) for samples, own in heard]
    others = ", ".join(f"{own:,}" for own in sorted(rates) if own != common)
    bounds = np.cumsum([0, *(sum(map(len, group.values())) for group in groups)])
    splits = {name: np.arange(*bounds[i : i + 2]) for i, name in enumerate(parts)} or None
    return Task.from_arrays(
        sequences, [target for _, target in files], kind="classification", labels=classes, splits=splits,
        fractions=fractions, seed=seed, channels=["audio"], name=name or path.resolve().name,
        note=f"{len(classes)} classes of audio at {common:,} Hz{f', resampled from {others} Hz' if others else ''}",
        source=f"{path.name}: {len(files):,} files",
        options={"format": "audio", "rate": common, "seconds": seconds},
    )  # fmt: skip


def read(path: Path) -> tuple[NDArray[np.float32], int]:
    """The samples of a file, averaged over channels, and the number of samples per second."""
    if path.suffix.lower() != ".wav":
        return _by_soundfile(path)
    try:
        return wav.read(path)
    except ValueError as error:  # soundfile reads more encodings
        if importlib.util.find_spec("soundfile") is None:
            raise
        try:
            return _by_soundfile(path)
        except ValueError:
            raise error from None


def _by_soundfile(path: Path) -> tuple[NDArray[np.float32], int]:
    try:
        import soundfile
    except ImportError:
        raise ModuleNotFoundError(f"{path}: {path.suffix} files need soundfile: pip install 'linrnn[data]'") from None
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except Exception as error:  # soundfile's own kinds
        raise wav.unreadable(path, error) from error
    if len(samples) == 0:
        raise wav.unreadable(path, "no samples")
    return samples.mean(1), int(rate)


def prepare(samples: NDArray[np.float32], own: int, rate: int, seconds: float | None) -> NDArray[np.float32]:
    """Samples (steps, 1) at another rate, of at most some seconds."""
    if seconds is not None:
        samples = samples[: max(1, round(seconds * own))]
    return (samples if own == rate else resample(samples, own, rate))[:, None]


def resample(samples: NDArray[np.float32], own: int, rate: int) -> NDArray[np.float32]:
    """Resample to the number of samples of the other rate, without the frequencies above its limit."""
    steps = max(1, round(len(samples) * rate / own))
    spectrum = np.fft.rfft(samples)[: steps // 2 + 1]
    return (np.fft.irfft(spectrum, steps) * (steps / len(samples))).astype(np.float32)


def holds_audio(path: Path) -> bool:
    """Whether the folders in a folder, or the folders in these, have audio files."""
    return any(_audio(folder) for folder in path.iterdir() if folder.is_dir())


def _split_folders(path: Path) -> dict[str, Path]:
    """The folders of the splits, if all folders are splits and include training and test; otherwise none."""
    names = {also: name for name, known in ALSO.items() for also in known}
    folders = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _audio(folder)]
    found = {names.get(folder.name.lower(), ""): folder for folder in folders}
    if len(found) < len(folders) or not {"train", "test"} <= found.keys() or "" in found:
        return {}
    return {name: found[name] for name in SPLITS if name in found}


def _by_class(folder: Path) -> dict[str, list[Path]]:
    """The audio files of each class."""
    found = {place.name: sorted(_audio(place)) for place in sorted(folder.iterdir()) if place.is_dir()}
    return {name: files for name, files in found.items() if files}


def _audio(folder: Path) -> list[Path]:
    """The audio files of a folder and of the folders in it."""
    return [file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")]
