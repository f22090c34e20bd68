"""Numba's files of compiled code, damaged or without room: the same numbers, and one warning."""

import errno
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import IndexDataCacheFile

from linrnn.util.kernel_cache import KernelCache

SOURCE = """
from linrnn.util.jit import jit

@jit
def plus_one(x):
    return x + 1

@jit
def plus_two(x):
    return x + 2
"""
WARNING = "expected whole files of compiled kernels in .*compiles the kernels itself"


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A function that imports two kernels as a new process would."""
    monkeypatch.setattr(KernelCache, "warned", False)
    source = tmp_path / "kernels.py"
    source.write_text(SOURCE)

    def load() -> Any:
        spec = importlib.util.spec_from_file_location("kernels", source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def use(module: Any) -> None:
    assert (module.plus_one(1), module.plus_two(1)) == (2, 3)


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 10, 0.5], ids=["empty", "first-bytes", "half"])
def test_a_file_that_was_cut_off(kernels: Callable[[], Any], tmp_path: Path, ending: str, left: float) -> None:
    use(kernels())
    files = list(tmp_path.rglob(f"*.{ending}"))
    assert len(files) == 2
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data[: int(left * len(data)) if isinstance(left, float) else left])
    with pytest.warns(UserWarning, match=WARNING) as told:
        use(kernels())
    assert len(told) == 1
    use(kernels())  # the files are whole again: a warning would be an error


def test_zeros_in_place_of_a_file(kernels: Callable[[], Any], tmp_path: Path) -> None:
    use(kernels())
    for file in tmp_path.rglob("*.nbi"):
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.warns(UserWarning, match=WARNING):
        use(kernels())


def test_a_full_disk(kernels: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(IndexDataCacheFile, "_open_for_write", full)
        with pytest.warns(UserWarning, match=r"No space left on device.*compiles") as told:
            use(kernels())
    assert len(told) == 1
    assert not list(tmp_path.rglob("*.nb*"))


def test_whole_files_are_used(kernels: Callable[[], Any]) -> None:
    use(kernels())
    module = kernels()
    use(module)
    assert sum(module.plus_one.stats.cache_hits.values()) == 1
    assert not module.plus_one.stats.cache_misses
