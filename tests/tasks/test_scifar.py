from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from linrnn import tasks
from linrnn.tasks import scifar, scifar_grey
from linrnn.tasks.base import Source, silent
from linrnn.tasks.store import Draft

NAMES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
BOTH = [pytest.param(module.SOURCE, id=module.SOURCE.name) for module in (scifar, scifar_grey)]


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CIFAR-10 with 20 random pictures in each file; the folder that holds it."""
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    folder = tmp_path / "official" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in NAMES:
        records = rng.integers(256, size=(20, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / name).write_bytes(records.tobytes())
    return folder.parent


def import_from(folder: Path, source: Source = scifar.SOURCE) -> tasks.Task:
    assert source.read is not None
    source.read(folder, Draft(source.name), silent)
    return tasks.load(source.name)


def pictures(folder: Path, names: list[str]) -> list[tuple[int, NDArray[np.uint8]]]:
    """Label and picture (32, 32, 3) of each record, pixel by pixel as the format is described."""
    found = []
    for name in names:
        data = (folder / "cifar-10-batches-bin" / name).read_bytes()
        for start in range(0, len(data), 3073):
            label, planes = data[start], data[start + 1 : start + 3073]
            picture = np.empty((32, 32, 3), np.uint8)
            for row, column, channel in np.ndindex(32, 32, 3):
                picture[row, column, channel] = planes[1024 * channel + 32 * row + column]
            found.append((label, picture))
    return found


def test_pictures_are_sequences_of_coloured_pixels_row_by_row(batches: Path) -> None:
    task = import_from(batches)
    expected = pictures(batches, NAMES[-1:])
    assert task.test.inputs.shape == (20, 1024, 3)
    assert task.test.inputs.dtype == np.uint8
    assert task.test.lengths is None
    assert task.test.targets.dtype == np.int64
    assert task.test.targets.tolist() == [label for label, _ in expected]
    for sequence, (_, picture) in zip(task.test.inputs, expected, strict=True):
        np.testing.assert_array_equal(sequence, picture.reshape(1024, 3))


@pytest.mark.parametrize("source", BOTH)
def test_validation_is_a_tenth_of_train_and_every_picture_is_there_once(batches: Path, source: Source) -> None:
    task = import_from(batches, source)
    assert (len(task.train), len(task.validation), len(task.test)) == (90, 10, 20)
    assert "100 pictures, 10 of them validation, 20 test" in task.source
    convert = scifar_grey.grey if task.channels == 1 else np.asarray
    expected = sorted((label, convert(picture).tobytes()) for label, picture in pictures(batches, NAMES[:-1]))
    stored = [
        (int(target), inputs.tobytes())
        for split in (task.train, task.validation)
        for inputs, target in zip(split.inputs, split.targets, strict=True)
    ]
    assert sorted(stored) == expected
    assert stored != expected, "validation is drawn, not cut off"


@pytest.mark.parametrize("source", BOTH)
def test_the_split_is_the_same_every_time(batches: Path, source: Source) -> None:
    once = np.array(import_from(batches, source).validation.inputs)
    again = import_from(batches / "cifar-10-batches-bin", source)  # the folder itself will do, too
    np.testing.assert_array_equal(again.validation.inputs, once)


def test_grey_is_what_pillow_makes_of_it(batches: Path) -> None:
    task = import_from(batches, scifar_grey.SOURCE)
    assert task.test.inputs.shape == (20, 1024, 1)
    for sequence, (_, picture) in zip(task.test.inputs, pictures(batches, NAMES[-1:]), strict=True):
        np.testing.assert_array_equal(sequence.reshape(32, 32), np.asarray(Image.fromarray(picture).convert("L")))


def test_grey_matches_pillow_for_colours_of_the_whole_cube() -> None:
    axis = np.unique(np.append(np.arange(0, 256, 5), [1, 2, 127, 128, 254]))
    colours = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).astype(np.uint8).reshape(1, -1, 3)
    np.testing.assert_array_equal(scifar_grey.grey(colours)[..., 0], np.asarray(Image.fromarray(colours).convert("L")))


def test_what_a_model_needs_to_know(batches: Path) -> None:
    colour, grey = (import_from(batches, module.SOURCE) for module in (scifar, scifar_grey))
    assert (colour.name, colour.classes, colour.documents, colour.channels) == ("scifar", 10, 1, 3)
    assert colour.mean == (0.4914, 0.4822, 0.4465)
    assert colour.std == (0.247, 0.243, 0.261)
    assert (grey.name, grey.classes, grey.documents, grey.channels) == ("scifar-grey", 10, 1, 1)
    assert grey.mean == (122.6 / 255,)
    assert grey.std == (61 / 255,)


@pytest.mark.parametrize("name", ["data_batch_3.bin", "test_batch.bin"])
@pytest.mark.parametrize("keep", [0, 3072, 20 * 3073 - 1], ids=["empty", "no_record", "a_byte_short"])
def test_a_truncated_file_is_an_error_that_names_it(batches: Path, name: str, keep: int) -> None:
    path = batches / "cifar-10-batches-bin" / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=rf"{name}: expected whole records of 3,073 bytes, got {keep:,} bytes"):
        import_from(batches)
    with pytest.raises(FileNotFoundError):
        tasks.load("scifar")


def test_a_missing_file_is_an_error_that_names_it(batches: Path) -> None:
    (batches / "cifar-10-batches-bin" / "data_batch_2.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_2\.bin: expected a file of the CIFAR-10 binary version, got no"):
        import_from(batches)
    with pytest.raises(ValueError, match=r"data_batch_1\.bin: expected a file of the CIFAR-10 binary version, got no"):
        import_from(batches.parent / "data")


def test_a_label_that_is_none_is_an_error(batches: Path) -> None:
    path = batches / "cifar-10-batches-bin" / "data_batch_5.bin"
    data = bytearray(path.read_bytes())
    data[7 * 3073] = 10
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"data_batch_5\.bin: expected labels below 10, got 10"):
        import_from(batches)


@pytest.mark.parametrize("source", BOTH)
def test_the_archive_is_the_official_one(source: Source) -> None:
    assert source.archive is not None
    assert source.archive.urls[0] == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert source.archive.checksum == "md5:c32a1d4ab5d03f1284b67883e8d87530"
    assert source.archive.bytes == 170_052_171
    assert source.examples == (45_000, 5_000, 10_000)
