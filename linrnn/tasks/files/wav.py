"""Samples of .wav files, by the standard library: PCM of 8, 16, 24 and 32 bits, and floats."""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linrnn.util.errors import wrong_value

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE


def read(path: Path) -> tuple[NDArray[np.float32], int]:
    """The samples, from -1 to 1, averaged over channels, and the number of samples per second."""
    data = path.read_bytes()
    chunks = _chunks(path, data)
    if len(chunks.get(b"fmt ", b"")) < 16 or b"data" not in chunks:
        raise unreadable(path, "no format or no samples in it")
    code, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunks[b"fmt "][:16])
    if code == EXTENSIBLE and len(chunks[b"fmt "]) >= 26:
        code = struct.unpack("<H", chunks[b"fmt "][24:26])[0]
    width = bits // 8
    if channels < 1 or rate < 1 or (code, bits) not in [*((PCM, n) for n in (8, 16, 24, 32)), (FLOAT, 32), (FLOAT, 64)]:
        raise unreadable(path, f"format {code} with {bits} bits and {channels} channels")
    raw = chunks[b"data"]
    raw = raw[: len(raw) // (width * channels) * width * channels]
    if not raw:
        raise unreadable(path, "no samples")
    samples = _numbers(raw, code, bits).reshape(-1, channels).mean(1).astype(np.float32)
    return samples, rate


def unreadable(path: Path, why: object) -> ValueError:
    return wrong_value(str(path), "readable audio", why)


def _chunks(path: Path, data: bytes) -> dict[bytes, bytes]:
    """The parts of a RIFF file, by name."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise unreadable(path, "a file that does not start as a .wav file does")
    chunks: dict[bytes, bytes] = {}
    place = 12
    while place + 8 <= len(data):
        name, size = struct.unpack("<4sI", data[place : place + 8])
        chunks.setdefault(name, data[place + 8 : place + 8 + size])
        place += 8 + size + size % 2
    return chunks


def _numbers(raw: bytes, code: int, bits: int) -> NDArray[np.float64]:
    if code == FLOAT:
        return np.frombuffer(raw, f"<f{bits // 8}").astype(np.float64)
    if bits == 8:
        return (np.frombuffer(raw, np.uint8).astype(np.float64) - 128) / 128
    if bits == 24:  # the three bytes as the upper bytes of four
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 2.0**31
    return np.frombuffer(raw, f"<i{bits // 8}") / 2.0 ** (bits - 1)
