"""Downloads from a server of our own, which cuts connections, forgets ranges and lies, as real ones do."""

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from linrnn.tasks.base import Archive
from linrnn.tasks.download import checksum as checksum_of
from linrnn.tasks.download import download, folder

pytest.importorskip("pooch")

CONTENT = os.urandom(300_000)
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    """Behaves by the first part of the path."""

    requests: list[tuple[str, str | None]]  # the path and the range of each
    close_after: int  # bytes, on /cut

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.requests.append((self.path, asked))
        how = self.path.split("/")[1]
        if how == "missing":
            self.send_error(404)
            return
        content = b"x" * len(CONTENT) if how == "wrong" else CONTENT[:-1] if how == "shorter" else CONTENT
        begin = 0 if asked is None or how == "rangeless" else int(re.fullmatch(r"bytes=(\d+)-", asked)[1])  # type: ignore[index]
        if begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        if begin:
            shift = 10 if how == "shifted" else 0
            self.send_header("Content-Range", f"bytes {begin - shift}-{len(content) - 1}/{len(content)}")
        content = content[: begin + 60_000] if how == "stingy" and begin else content
        if how == "encoded":
            self.send_header("Content-Encoding", "gzip")
        if how != "unsized":
            self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin : begin + self.close_after] if how == "cut" else content[begin:])

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Handler.requests, Handler.close_after = [], 100_000


def archive(server: str, *ways: str, checksum: str | None = MD5) -> Archive:
    return Archive("it.tar.gz", tuple(f"{server}/{way}/it.tar.gz" for way in ways), checksum, len(CONTENT))


def ranges() -> list[str | None]:
    return [asked for _, asked in Handler.requests]


def files() -> list[str]:
    return sorted(path.name for path in folder().iterdir())


def test_a_file_comes_once(server: str) -> None:
    told: list[tuple[str, int, int]] = []
    path = download(archive(server, "good"), lambda what, done, total: told.append((what, done, total)))
    assert path == folder() / "it.tar.gz"
    assert path.read_bytes() == CONTENT
    assert told[-1] == ("downloading it.tar.gz", len(CONTENT), len(CONTENT))
    assert download(archive(server, "good")) == path
    assert ranges() == [None]
    assert files() == ["it.tar.gz"]


@pytest.mark.parametrize("checksum", [f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", None], ids=["sha256", "none"])
def test_other_checksums_and_none(server: str, checksum: str | None) -> None:
    path = download(archive(server, "good", checksum=checksum))
    assert checksum_of(path, archive(server, checksum=checksum)) == f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    download(archive(server, "good", checksum=checksum))
    assert ranges() == [None]


def test_a_file_that_was_spoilt_is_downloaded_again(server: str) -> None:
    path = download(archive(server, "good"))
    path.write_bytes(CONTENT[:-1])
    assert download(archive(server, "good")).read_bytes() == CONTENT
    assert ranges() == [None, None]


def test_a_cut_connection_is_an_error_and_the_next_attempt_goes_on(server: str) -> None:
    for received in (100_000, 200_000):
        with pytest.raises(OSError, match=rf"it\.tar\.gz: could not .*broke off after {received:,} of 300,000 bytes.*"):
            download(archive(server, "cut"))
        assert files() == ["it.tar.gz.part"]
        assert (folder() / "it.tar.gz.part").read_bytes() == CONTENT[:received]
    assert download(archive(server, "good")).read_bytes() == CONTENT
    assert ranges() == [None, "bytes=100000-", "bytes=200000-"]
    assert files() == ["it.tar.gz"]


def test_the_error_says_that_and_where_the_partial_file_is_kept(server: str) -> None:
    with pytest.raises(
        OSError, match=r"100,000 bytes are kept in .*part, and the same command continues there"
    ) as error:
        download(archive(server, "cut"))
    assert "\n" not in str(error.value)
    assert str(folder() / "it.tar.gz.part") in str(error.value)


def test_a_mirror_goes_on_where_the_first_place_broke_off(server: str) -> None:
    assert download(archive(server, "missing", "cut", "good")).read_bytes() == CONTENT
    assert ranges() == [None, None, "bytes=100000-"]


def test_a_server_that_knows_no_ranges_sends_it_from_the_start(server: str) -> None:
    assert download(archive(server, "cut", "rangeless")).read_bytes() == CONTENT
    assert ranges() == [None, "bytes=100000-"]


def test_a_server_that_sends_another_range_is_not_believed(server: str) -> None:
    with pytest.raises(OSError, match="asked for the bytes from 100,000 on, got bytes 99990-"):
        download(archive(server, "cut", "shifted"))
    assert (folder() / "it.tar.gz.part").read_bytes() == CONTENT[:100_000]


def test_an_answer_that_is_less_than_the_rest_counts_as_broken_off(server: str) -> None:
    """As the protocol allows; the answer is whole, the file is not."""
    with pytest.raises(OSError, match="broke off after 160,000 of 300,000 bytes"):
        download(archive(server, "cut", "stingy"))
    assert (folder() / "it.tar.gz.part").read_bytes() == CONTENT[:160_000]


def test_a_whole_partial_file_is_not_downloaded_again(server: str) -> None:
    """The process was killed between the last byte and the move."""
    folder().mkdir()
    (folder() / "it.tar.gz.part").write_bytes(CONTENT)
    assert download(archive(server, "good")).read_bytes() == CONTENT
    assert ranges() == ["bytes=300000-"]


def test_a_partial_file_that_is_too_long_is_begun_anew(server: str) -> None:
    folder().mkdir()
    (folder() / "it.tar.gz.part").write_bytes(CONTENT + b"more")
    assert download(archive(server, "good")).read_bytes() == CONTENT
    assert ranges() == ["bytes=300004-", None]


@pytest.mark.parametrize("how", ["unsized", "encoded"])
def test_bytes_are_taken_as_they_are(server: str, how: str) -> None:
    """From a server that does not say how many there are, and from one that calls a .tar.gz an encoding."""
    assert download(archive(server, how)).read_bytes() == CONTENT


def test_wrong_bytes_are_said_kept_aside_and_not_gone_on_with(server: str) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match=f"the checksum is wrong: expected md5 {MD5[4:]}, got [0-9a-f]+; ") as error:
            download(archive(server, "wrong"))
        assert str(folder() / "it.tar.gz.wrong") in str(error.value)
        assert files() == ["it.tar.gz.wrong"]
    assert (folder() / "it.tar.gz.wrong").read_bytes() == b"x" * len(CONTENT)
    assert download(archive(server, "wrong", "good")).read_bytes() == CONTENT
    assert ranges() == [None] * 4


def test_a_partial_file_of_other_bytes_does_not_spoil_every_attempt(server: str) -> None:
    folder().mkdir()
    (folder() / "it.tar.gz.part").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match="the checksum is wrong"):
        download(archive(server, "good"))
    assert download(archive(server, "good")).read_bytes() == CONTENT


def test_every_failure_is_listed(server: str) -> None:
    closed = f"{server.rpartition(':')[0]}:1"
    it = archive(server, "missing", "cut", "wrong")
    it = Archive(it.name, (*it.urls, f"{closed}/it.tar.gz"), "md5:0", it.bytes)
    with pytest.raises(OSError, match=r"it\.tar\.gz: could not be downloaded") as error:
        download(it)
    said = str(error.value)
    for words in (
        "/missing/it.tar.gz: 404 Not Found",
        "broke off",
        "the checksum is wrong",
        f"{closed}/it.tar.gz: no connection",
    ):
        assert words in said
    assert "\n" not in said
    assert "HTTPConnectionPool" not in said


def test_a_silent_server_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr("linrnn.tasks.download.PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/it"
        with pytest.raises(OSError, match=r"no answer within 0\.2 s"):
            download(Archive("it", (url,), None, 10))


def test_a_full_disk_is_said_before_the_download(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 0, 10))
    with pytest.raises(OSError, match="expected 300,000 bytes of free disk space, got 10"):
        download(archive(server, "good"))
    assert files() == []


def test_without_pooch_the_error_says_what_to_install(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'linrnn\[train\]'"):
        download(archive(server, "good"))
