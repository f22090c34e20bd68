"""Downloads that can be continued: from the official address, then from mirrors, with a check of the checksum."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from linrnn.tasks.base import Archive, Progress, silent
from linrnn.tasks.store import room, root
from linrnn.util import extras
from linrnn.util.files import named
from linrnn.util.locks import locked

if TYPE_CHECKING:
    import requests

BLOCK = 1 << 18  # bytes written at a time
PATIENCE = 30  # seconds without a byte from the server


def folder() -> Path:
    """The folder of downloads."""
    return root() / "downloads"


def download(archive: Archive, progress: Progress = silent) -> Path:
    """The path of an archive, which is downloaded if necessary.

    `pooch` computes checksums. An interrupted or killed transfer stays as NAME.part, and the next attempt, from any
    address, requests only the rest. A complete file with a wrong checksum is kept as NAME.wrong, which no attempt uses.
    """
    with extras.needed("downloading"):
        import pooch
    pooch.get_logger().setLevel("WARNING")
    folder().mkdir(parents=True, exist_ok=True)
    busy = f"{archive.name}: expected to be the only process that downloads it, got another process at work"
    with locked(folder() / f".{archive.name}.lock", busy, remove=True):
        return _retrieve(archive, _Resuming(archive, progress))


def _retrieve(archive: Archive, fetch: "_Resuming") -> Path:
    """Find the file downloaded before, or download it from the first address that has it."""
    path, failures = folder() / archive.name, []
    if path.is_file() and archive.checksum in (None, checksum(path, archive)):
        return path
    for url in archive.urls:
        try:
            fetch(url)
            os.replace(fetch.part, path)
            return path
        except (OSError, ValueError) as error:
            failures.append(f"{url}: {_reason(error)}")
    kept = fetch.part.stat().st_size if fetch.part.is_file() else 0
    hint = f"; {kept:,} bytes are kept in {fetch.part}, and the same command continues there" if kept else ""
    raise OSError(f"{archive.name}: could not be downloaded: {'; '.join(failures)}{hint}")


def checksum(path: Path, archive: Archive) -> str:
    """The checksum of a file, as the archive's is written; "sha256:..." where none was published."""
    import pooch

    kind = (archive.checksum or "sha256:").partition(":")[0]
    return f"{kind}:{pooch.file_hash(path, alg=kind)}"


class _Resuming:
    """Downloads a file to NAME.part and compares its checksum."""

    def __init__(self, archive: Archive, progress: Progress) -> None:
        self.archive, self.progress = archive, progress
        self.part = folder() / f"{archive.name}.part"

    def __call__(self, url: str) -> None:
        self._receive(url)
        self._check()

    def _receive(self, url: str) -> None:
        """Download the rest of the partial file."""
        import requests

        have = self.part.stat().st_size if self.part.is_file() else 0
        # Raw bytes: requests would decompress some responses, which then cannot be resumed.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as response:
            total = _total(response)
            if have and response.status_code == 416:  # nothing follows: the file is complete, or it is another file
                if have != total:
                    self.part.unlink()
                    self._receive(url)
                return
            response.raise_for_status()
            if response.status_code != 206:
                have = 0  # the server sends it from the start
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise ValueError(f"asked for the bytes from {have:,} on, got {response.headers.get('Content-Range')}")
            self._append(response, have, total)

    def _append(self, response: "requests.Response", have: int, total: int | None) -> None:
        """Append the received bytes to the file."""
        import urllib3

        expected = self.archive.bytes if total is None else total
        room(self.part.parent, expected - have)
        with named(self.part), open(self.part, "ab" if have else "wb") as file:
            try:
                for block in response.raw.stream(BLOCK, decode_content=False):
                    file.write(block)
                    have += len(block)
                    self.progress(f"downloading {self.archive.name}", have, expected)
            except urllib3.exceptions.HTTPError as error:
                raise OSError(_cut(have, total)) from error
        if total is not None and have != total:
            raise OSError(_cut(have, total))

    def _check(self) -> None:
        """Keep a file with a wrong checksum under a name that no attempt uses."""
        if self.archive.checksum is None:
            return
        found = checksum(self.part, self.archive)
        if found != self.archive.checksum:
            wrong = self.part.with_suffix(".wrong")
            os.replace(self.part, wrong)
            expected, came = self.archive.checksum.replace(":", " "), found.partition(":")[2]
            raise ValueError(f"the checksum is wrong: expected {expected}, got {came}; the file is kept as {wrong}")


def _total(response: "requests.Response") -> int | None:
    """The length of the whole file, if the server gives it."""
    length = response.headers.get("Content-Range", "").rpartition("/")[2]
    if not length and response.status_code == 200:
        length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def _reason(error: Exception) -> str:
    """The error of a library in one line."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {PATIENCE} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is refused"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)


def _cut(have: int, total: int | None) -> str:
    return f"the transfer broke off after {have:,} of {'?' if total is None else f'{total:,}'} bytes"
