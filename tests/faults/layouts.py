"""Small data in official layouts, and a server that has it."""

import dataclasses
import functools
import io
import os
import tarfile
import zipfile
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np

from linrnn import tasks
from linrnn.tasks.base import Archive

CIFAR = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
LISTOPS = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")


def write(folder: Path) -> None:
    """Two sets of reviews as folders, CIFAR-10 as tar.gz, ListOps as zip."""
    folder.mkdir(parents=True)
    reviews(folder / "text", "a review")
    reviews(folder / "other-text", "another review")
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as archive:
        for name, data in cifar().items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with zipfile.ZipFile(folder / "listops.zip", "w") as packed:
        for name in LISTOPS:
            packed.writestr(name, "Source\tTarget\n" + "".join(f"[MAX {i} 2 ]\t{max(i, 2)}\n" for i in range(6)))


def reviews(folder: Path, words: str) -> None:
    for split in ("train", "test"):
        for name in ("neg", "pos"):
            (folder / split / name).mkdir(parents=True)
            for i in range(10):
                (folder / split / name / f"{i}.txt").write_text(f"{words} number {i} in {split} and {name}")


def cifar() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    records = rng.integers(256, size=(len(CIFAR), 10, 3073), dtype=np.uint8)
    records[:, :, 0] %= 10
    return {name: part.tobytes() for name, part in zip(CIFAR, records, strict=True)}


def serve(folder: Path, checksum: str | None = None) -> None:
    """Serve the folder from a process of its own, and let CIFAR-10 come from there."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    os.environ["NO_PROXY"] = "127.0.0.1"
    parent = os.getpid()
    if os.fork() == 0:
        server.timeout = 1
        while os.getppid() == parent:
            server.handle_request()
        os._exit(0)
    url = f"http://127.0.0.1:{server.server_port}/cifar.tar.gz"
    server.server_close()
    archive = Archive("cifar.tar.gz", (url,), checksum, 1000)
    tasks.TASKS["scifar"] = dataclasses.replace(tasks.TASKS["scifar"], archive=archive)
