"""Folders of audio as tasks: samples against those that were written, and errors that name the file."""

import struct
import sys
import wave
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from linrnn.tasks.base import SPLITS
from linrnn.tasks.files import audio, open_data, read_new, wav

RNG = np.random.default_rng(0)


def write(path: Path, samples: NDArray[Any], bits: int = 16, rate: int = 8000) -> Path:
    """Samples (steps, channels) in -1 to 1, as the standard library writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.round(samples * (2 ** (bits - 1) - 1)).astype("<i4")
    raw = whole.view(np.uint8).reshape(*samples.shape, 4)[..., : bits // 8]
    data = (whole + 128).astype(np.uint8).tobytes() if bits == 8 else raw.tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(data)
    return path


def riff(code: int, bits: int, raw: bytes, channels: int = 1, extra: bytes = b"") -> bytes:
    form = struct.pack("<HHIIHH", code, channels, 8000, 8000 * bits // 8, bits // 8, bits) + extra
    other = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # of an odd size, with its padding
    chunks = other + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(raw)) + raw
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks


def folder(path: Path, count: int = 10) -> Path:
    """Files of 100, 101, ... samples, all of which are the number of the file / 100."""
    for name in ("bee", "ant"):
        for i in range(count):
            write(path / name / f"{i:02d}.wav", np.full((100 + i, 1), (i + 1) / 100 * (1 if name == "ant" else -1)))
    return path


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_of_each_width(tmp_path: Path, bits: int, channels: int) -> None:
    samples = RNG.uniform(-1, 1, (50, channels))
    found, rate = wav.read(write(tmp_path / "a.wav", samples, bits, 44_100))
    assert rate == 44_100
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, samples.mean(1), atol=2.0 ** (2 - bits) + 1e-6)


def test_floats_and_the_extensible_format(tmp_path: Path) -> None:
    samples = RNG.uniform(-1, 1, 9).astype("<f4")
    (tmp_path / "a.wav").write_bytes(riff(3, 32, samples.tobytes()))
    np.testing.assert_array_equal(wav.read(tmp_path / "a.wav")[0], samples)
    extra = struct.pack("<HHI", 22, 16, 0) + struct.pack("<H", 1) + bytes(14)
    (tmp_path / "b.wav").write_bytes(riff(0xFFFE, 16, np.array([16384, -32768], "<i2").tobytes(), extra=extra))
    assert wav.read(tmp_path / "b.wav")[0].tolist() == [0.5, -1]


def test_a_folder_a_class(tmp_path: Path) -> None:
    task = open_data(folder(tmp_path / "insects"))
    assert (task.name, task.kind, task.labels, task.channels) == ("insects", "classification", ("ant", "bee"), 1)
    assert [len(getattr(task, name)) for name in SPLITS] == [16, 2, 2]
    seen = set()
    for name in SPLITS:
        split = getattr(task, name)
        for row, target, length in zip(split.inputs[..., 0], split.targets, split.lengths, strict=True):
            number = round(abs(row[0]) * 100)
            assert length == 99 + number
            assert (row[:length] == row[0]).all()
            assert not row[length:].any()
            assert target == (row[0] < 0)
            seen.add((number, int(target)))
    assert len(seen) == 20
    assert task.options == {"format": "audio", "rate": 8000, "seconds": None, "pixels": False}


def test_folders_for_the_splits(tmp_path: Path) -> None:
    for number, name in enumerate(SPLITS, start=1):
        folder(tmp_path / "all" / name, number)
    task = open_data(tmp_path / "all")
    assert [len(getattr(task, name)) for name in SPLITS] == [2, 4, 6]
    assert task.labels == ("ant", "bee")


def test_folders_for_training_and_test_alone(tmp_path: Path) -> None:
    for number, name in ((10, "training"), (3, "Test")):
        folder(tmp_path / "all" / name, number)
    task = open_data(tmp_path / "all")
    assert [len(getattr(task, name)) for name in SPLITS] == [18, 2, 6]
    assert task.labels == ("ant", "bee")
    (tmp_path / "all" / "Test").rename(tmp_path / "all" / "wasp")
    assert open_data(tmp_path / "all").labels == ("training", "wasp"), "folders of a class may hold folders"


def test_a_rate_and_a_time(tmp_path: Path) -> None:
    task = open_data(folder(tmp_path / "insects"), seconds=0.005, rate=4000)
    assert task.train.inputs.shape == (16, 20, 1)
    assert task.train.lengths is None
    time = np.arange(800) / 8000
    tone = np.sin(2 * np.pi * 200 * time).astype(np.float32)
    expected = np.sin(2 * np.pi * 200 * np.arange(400) / 4000)
    np.testing.assert_allclose(audio.resample(tone, 8000, 4000), expected, atol=1e-5)
    np.testing.assert_allclose(audio.resample(expected.astype(np.float32), 4000, 8000), tone, atol=1e-5)
    high = np.sin(2 * np.pi * 3000 * time).astype(np.float32)
    assert np.abs(audio.resample(high, 8000, 4000)).max() < 1e-5, (
        "what the rate cannot hold does not come back as noise"
    )


def test_files_of_different_rates(tmp_path: Path) -> None:
    """They are resampled to the rate of most files, which the note says, or to one that is given."""
    write(folder(tmp_path / "insects") / "bee" / "00.wav", np.ones((300, 1)) / 2, rate=16_000)
    task = open_data(tmp_path / "insects")
    assert task.options["rate"] == 8000
    assert task.note == "2 classes of audio at 8,000 Hz, resampled from 16,000 Hz"
    lengths = np.concatenate([np.asarray(getattr(task, name).lengths) for name in SPLITS])
    assert sorted(lengths)[-1] == 150
    other = open_data(tmp_path / "insects", rate=4000)
    assert other.options["rate"] == 4000
    assert other.note == "2 classes of audio at 4,000 Hz, resampled from 8,000, 16,000 Hz"


def test_other_encodings_by_the_real_soundfile(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    tone = (np.sin(np.arange(400) / 9) / 2).astype(np.float32)
    folder(tmp_path / "insects")
    for name, subtype, most in (("x.flac", "PCM_16", 1e-4), ("x.wav", "ULAW", 0.03), ("x.ogg", "VORBIS", 0.1)):
        path = tmp_path / "insects" / "ant" / name
        soundfile.write(path, np.stack([tone, tone], 1), 8000, subtype=subtype)
        samples, rate = audio.read(path)
        assert rate == 8000
        assert np.abs(samples - tone).max() < most
    task = open_data(tmp_path / "insects")
    assert sum(len(getattr(task, name)) for name in SPLITS) == 23
    assert read_new(tmp_path / "insects" / "ant" / "x.flac", task).inputs.shape == (1, 400, 1)
    (tmp_path / "insects" / "ant" / "y.flac").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"y\.flac: expected readable audio, got"):
        open_data(tmp_path / "insects")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not start as a .wav file does"),
        (b"ID3 not a wave", "does not start as a .wav file does"),
        (riff(1, 16, b""), "no samples"),
        (riff(1, 12, b"abcd"), "format 1 with 12 bits"),
        (riff(85, 16, b"abcd"), "format 85 with 16 bits"),
        (riff(1, 16, b"abcd")[:40], "no format or no samples"),
    ],
)
def test_unreadable_files(tmp_path: Path, data: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # which might read 12 bits
    (folder(tmp_path / "insects") / "ant" / "bad.wav").write_bytes(data)
    with pytest.raises(ValueError, match=rf"bad\.wav: expected readable audio, got .*{why}"):
        open_data(tmp_path / "insects")


def test_mistakes(tmp_path: Path) -> None:
    folder(tmp_path / "insects")
    for options, message in (
        ({"seconds": 0}, "seconds: expected a number above 0, got 0"),
        ({"rate": 0}, "rate: expected at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            open_data(tmp_path / "insects", **options)
    folder(tmp_path / "one", 4)
    for file in (tmp_path / "one" / "bee").iterdir():
        file.unlink()
    with pytest.raises(
        ValueError, match=r"one: expected folders of audio files for at least two classes, got \['ant'\]"
    ):
        open_data(tmp_path / "one")


def test_other_formats_need_soundfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder(tmp_path / "insects") / "ant" / "x.flac").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"x\.flac: \.flac files need soundfile: pip install 'linrnn\[data\]'"
    ):
        open_data(tmp_path / "insects")
    fake = ModuleType("soundfile")
    fake.read = lambda path, dtype, always_2d: (np.full((7, 2), [0.25, 0.75], dtype), 8000)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "soundfile", fake)
    samples, rate = audio.read(tmp_path / "insects" / "ant" / "x.flac")
    assert (samples.tolist(), rate) == ([0.5] * 7, 8000)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Format not recognised.")

    fake.read = fail  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"x\.flac: expected readable audio, got Format not recognised"):
        audio.read(tmp_path / "insects" / "ant" / "x.flac")


def test_new_files(tmp_path: Path) -> None:
    task = open_data(folder(tmp_path / "insects"), seconds=0.01)
    write(tmp_path / "new" / "b.wav", np.full((50, 1), 0.5), rate=8000)
    write(tmp_path / "new" / "a.wav", np.full((400, 1), 0.5), rate=16_000)
    new = read_new(tmp_path / "new", task)
    assert new.names == ["a.wav", "b.wav"]
    assert (new.inputs.shape, None if new.lengths is None else new.lengths.tolist()) == ((2, 80, 1), [80, 50])
    assert read_new(tmp_path / "new" / "b.wav", task).names == ["b.wav"]
