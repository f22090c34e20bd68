"""Archives: the right files come out, whole; crafted and damaged ones do no harm and are named."""

import gzip
import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from linrnn.tasks.archive import unpacked

FILES = {
    "data/a.bin": b"a" * 3000,
    "data/b.bin": os.urandom(70_000),
    "data/deep/down/c.bin": b"",
    "data/readme.txt": b"not asked for",
}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def tar(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]], mode: str = "w:") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def plain_tar(path: Path, mode: str = "w:", prefix: str = "") -> Path:
    return tar(path, [(tarfile.TarInfo(prefix + name), content) for name, content in FILES.items()], mode)


def plain_zip(path: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


def unpack(path: Path, *members: str) -> dict[str, bytes]:
    with unpacked(path, members or ("*",), "toy") as folder:
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


KINDS: dict[str, Callable[[Path], Path]] = {
    "it.tar": plain_tar,
    "it.tar.gz": lambda path: plain_tar(path, "w:gz"),
    "it.tgz": lambda path: plain_tar(path, "w:gz"),
    "it.gz": lambda path: plain_tar(path, "w:gz"),
    "dotted.tar.gz": lambda path: plain_tar(path, "w:gz", prefix="./"),
    "it.zip": plain_zip,
    "stored.zip": lambda path: plain_zip(path, zipfile.ZIP_STORED),
    "misnamed.zip": plain_tar,
    "misnamed.tar.gz": plain_zip,
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_asked_for_comes_out_and_the_archive_stays(tmp_path: Path, data: Path, name: str) -> None:
    path = KINDS[name](tmp_path / name)
    before = path.read_bytes()
    path.chmod(0o400)
    assert unpack(path) == FILES
    assert unpack(path, "*.bin") == {file: content for file, content in FILES.items() if file.endswith(".bin")}
    assert set(unpack(path, "a.bin", "down/*")) == {"data/a.bin", "data/deep/down/c.bin"}
    assert set(unpack(path, "data/b.bin")) == {"data/b.bin"}
    assert path.read_bytes() == before
    assert list(data.iterdir()) == []


def test_a_folder_is_taken_as_it_is(tmp_path: Path, data: Path) -> None:
    with unpacked(tmp_path, ("*",), "toy") as folder:
        assert folder == tmp_path
    assert tmp_path.is_dir()


@pytest.mark.parametrize("name", ["it.tar.gz", "it.zip"])
def test_files_that_are_not_there_are_an_error(tmp_path: Path, name: str) -> None:
    path = KINDS[name](tmp_path / name)
    with pytest.raises(ValueError, match=rf"{path}: expected files like \*\.tsv or x/\*, got none"):
        unpack(path, "*.tsv", "x/*")
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        unpack(tmp_path / "none.tar")


@pytest.mark.parametrize("name", ["it.tar", "it.tar.gz", "it.zip"])
def test_it_tells_how_far_it_is(tmp_path: Path, name: str) -> None:
    path, told = KINDS[name](tmp_path / name), list[tuple[str, int, int]]()
    with unpacked(path, ("*",), "toy", lambda what, done, total: told.append((what, done, total))):
        pass
    assert {(what, total) for what, _, total in told} == {(f"unpacking {name}", path.stat().st_size)}
    far = [done for _, done, _ in told]
    assert far == sorted(far)
    assert 0 < far[-1] <= path.stat().st_size


def test_nothing_is_left_when_the_reader_fails_or_was_killed(tmp_path: Path, data: Path) -> None:
    path = plain_tar(tmp_path / "it.tar")
    (data / ".toy.unpacked").mkdir()
    (data / ".toy.unpacked" / "stale.bin").touch()
    assert "stale.bin" not in unpack(path)
    with pytest.raises(RuntimeError), unpacked(path, ("*",), "toy"):
        raise RuntimeError
    assert list(data.iterdir()) == []


EVIL_NAMES = ["{outside}/evil.bin", "../evil.bin", "data/../../evil.bin", "..\\evil.bin", "C:\\evil.bin", "C:evil.bin"]


@pytest.mark.parametrize("name", EVIL_NAMES)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_no_file_leaves_the_folder(tmp_path: Path, data: Path, kind: str, name: str) -> None:
    path, name = tmp_path / f"evil.{kind}", name.format(outside=tmp_path)
    if kind == "tar":
        tar(path, [(tarfile.TarInfo(name), b"evil")])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, b"evil")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"evil\.\w+: expected files that stay in their folder, got '.*evil\.bin'"):
        unpack(path)
    assert set(tmp_path.rglob("*")) == before


def entry(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b""


LINKS = {
    "symbolic-out": [entry("a.bin", tarfile.SYMTYPE, "/etc/passwd")],
    "symbolic-up": [entry("a.bin", tarfile.SYMTYPE, "../../secret")],
    "symbolic-inside": [entry("a.bin", tarfile.SYMTYPE, "b.bin")],
    "hard-out": [entry("a.bin", tarfile.LNKTYPE, "../../secret")],
    "hard-inside": [(tarfile.TarInfo("b.bin"), b"b"), entry("a.bin", tarfile.LNKTYPE, "b.bin")],
    "fifo": [entry("a.bin", tarfile.FIFOTYPE)],
    "character-device": [entry("a.bin", tarfile.CHRTYPE)],
    "block-device": [entry("a.bin", tarfile.BLKTYPE)],
}


@pytest.mark.parametrize("members", LINKS.values(), ids=LINKS)
def test_links_and_devices_are_refused(
    tmp_path: Path, data: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    (tmp_path / "secret").write_text("mine")
    path = tar(tmp_path / "evil.tar", members)
    with pytest.raises(ValueError, match=r"evil\.tar, a\.bin: expected a plain file, got a link or a device"):
        unpack(path)
    assert list(data.iterdir()) == []


def test_a_link_to_a_folder_plants_nothing_outside(tmp_path: Path, data: Path) -> None:
    """A link that is not asked for is not made, so that the file behind it lands in a folder of that name."""
    (tmp_path / "outside").mkdir()
    members = [entry("link", tarfile.SYMTYPE, str(tmp_path / "outside")), (tarfile.TarInfo("link/a.bin"), b"evil")]
    assert unpack(tar(tmp_path / "evil.tar", members), "*.bin") == {"link/a.bin": b"evil"}
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused_in_zips(tmp_path: Path, kind: int) -> None:
    path, info = tmp_path / "evil.zip", zipfile.ZipInfo("a.bin")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match=r"evil\.zip, a\.bin: expected a plain file, got a link or a device"):
        unpack(path)


def test_modes_are_not_taken_over(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.bin")
    info.mode, info.uid = 0o6777, 12345
    path = tar(tmp_path / "it.tar", [(info, b"a")])
    with unpacked(path, ("*",), "toy") as folder:
        status = (folder / "a.bin").stat()
    assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID | 0o111)
    assert status.st_uid == os.getuid()


@pytest.mark.parametrize("members", [("a", "a/b"), ("a/b", "a")])
def test_a_file_in_the_place_of_a_folder(tmp_path: Path, members: tuple[str, str]) -> None:
    path = tar(tmp_path / "evil.tar", [(tarfile.TarInfo(name), b"x") for name in members])
    with pytest.raises((ValueError, OSError)):
        unpack(path)


@pytest.mark.parametrize("name", ["it.tar", "it.tar.gz", "it.zip"])
def test_what_would_not_fit_on_the_disk_is_not_unpacked(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = KINDS[name](tmp_path / name)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100_000, 40_000, 60_000))
    with pytest.raises(OSError, match=r"expected 7\d,\d{3} bytes of free disk space, got 60,000"):
        unpack(path)
    assert list(data.iterdir()) == []


def test_a_bomb_does_not_go_off(tmp_path: Path) -> None:
    """10 TB of zeros, as a tar header declares them."""
    info = tarfile.TarInfo("bomb.bin")
    info.size = 10 * 1000**4
    (tmp_path / "bomb.tar.gz").write_bytes(gzip.compress(info.tobuf() + bytes(100_000)))
    with pytest.raises(OSError, match="expected 10,000,000,000,000 bytes of free disk space"):
        unpack(tmp_path / "bomb.tar.gz")


def test_a_zip_that_declares_less_than_it_holds_writes_no_more(tmp_path: Path) -> None:
    content = plain_zip(tmp_path / "it.zip").read_bytes()
    size = (70_000).to_bytes(4, "little")
    assert content.count(size) >= 2
    (tmp_path / "evil.zip").write_bytes(content.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"evil\.zip: expected .*damaged"):
        unpack(tmp_path / "evil.zip")


@pytest.mark.parametrize("kept", [0, 1, 10, 300, 512, 4096, 5000, 40_000, -20_000, -9_000, -1100, -20, -5, -1])
@pytest.mark.parametrize("name", ["it.tar.gz", "it.zip", "it.tar"])
def test_a_truncated_archive_is_named(tmp_path: Path, data: Path, name: str, kept: int) -> None:
    """Cut in headers, between files, in their middle and near the end; a tar file's padding alone may be missing."""
    path = KINDS[name](tmp_path / name)
    content = path.read_bytes()
    padding = len(content) - len(content.rstrip(b"\0")) - 512 if name == "it.tar" else 0
    path.write_bytes(content[: kept - padding if kept < 0 else kept])
    with pytest.raises(ValueError, match=rf"{path}: expected a folder or a whole tar, tar\.gz or zip archive, got"):
        unpack(path)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("name", ["it.tar.gz", "it.zip"])
def test_a_single_wrong_byte_in_a_file_is_found(tmp_path: Path, name: str) -> None:
    path = KINDS[name](tmp_path / name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path}: expected .*damaged"):
        unpack(path)


def test_a_damaged_header_does_not_pass_for_the_end(tmp_path: Path) -> None:
    """tarfile alone would give the first file and be content."""
    path = plain_tar(tmp_path / "it.tar")
    content = bytearray(path.read_bytes())
    second = content.index(b"data/b.bin")
    content[second + 148 : second + 156] = b"0000000\0"  # its checksum
    path.write_bytes(content)
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["data/a.bin"]
    with pytest.raises(ValueError, match=r"it\.tar: expected .*the end of the archive is missing"):
        unpack(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello, this is no archive", gzip.compress(b"just text", mtime=0), b"PK\3\4nothing"],
    ids=["nothing", "text", "compressed text", "a zip's first bytes"],
)
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "it.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path}: expected a folder or a whole tar"):
        unpack(path)


def test_an_encrypted_zip_is_named(tmp_path: Path) -> None:
    content = bytearray(plain_zip(tmp_path / "it.zip").read_bytes())
    for header, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.index(header)
        content[at + flags] |= 1
    (tmp_path / "it.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"it\.zip: expected .*encrypted"):
        unpack(tmp_path / "it.zip")
