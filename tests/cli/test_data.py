"""`linrnn data`: what it prints, what it says to mistakes, and what it leaves behind."""

import functools
import hashlib
import io
import re
import runpy
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

from linrnn import tasks
from linrnn.cli import app as cli
from linrnn.cli import console
from linrnn.cli import data as cli_data
from linrnn.tasks import store
from linrnn.tasks.base import Archive, Progress, Source
from linrnn.tasks.store import Draft

COMMANDS = ("list", "fetch", "import", "make", "show", "verify")
FILE = "toy/examples.txt"
TEXT = "0110\n1001\n0011\n"
STOP_AT: list[int] = []  # examples at which a generator is stopped


def finish(draft: Draft, sizes: tuple[int, int, int], value: int, source: str) -> None:
    for split, size in zip(("train", "validation", "test"), sizes, strict=True):
        draft.put(f"{split}.inputs", np.full((size, 4), value, np.uint8))
        draft.put(f"{split}.targets", np.arange(size, dtype=np.int64) % 2)
    draft.finish(classes=2, vocabulary=["a", "b", "c", "d"], note="a toy", source=source)


def read(folder: Path, draft: Draft, progress: Progress) -> None:
    if (folder / FILE).read_text() != TEXT:
        raise ValueError(f"{FILE}: expected the toy's examples, got others")
    progress("reading", 1, 1)
    finish(draft, (3, 3, 3), 1, "files")


def make(draft: Draft, sizes: tuple[int, int, int], seed: int, progress: Progress) -> None:
    for done in range(draft.done.get("examples", 0), sum(sizes)):
        draft.done = {"examples": done + 1, "begun": draft.done.get("begun", 0) + (done == 0)}
        progress("making", done + 1, sum(sizes))
        if done + 1 in STOP_AT:
            raise KeyboardInterrupt
    assert draft.done["begun"] == 1, "it was made from the start again"
    finish(draft, sizes, seed, f"made, seed {seed}")


def make_pixels(draft: Draft, sizes: tuple[int, int, int], seed: int, progress: Progress) -> None:
    for split, size in zip(("train", "validation", "test"), sizes, strict=True):
        draft.put(f"{split}.inputs", np.full((size, 16, 3), 100, np.uint8))
        draft.put(f"{split}.targets", np.zeros(size, np.int64))
    draft.finish(classes=2, channels=3, note="pixels", source="made")


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks of our own, an empty data folder, and lines that are not broken."""
    monkeypatch.setattr(console.out, "_width", 200)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINRNN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    STOP_AT.clear()
    about: dict[str, Any] = {"examples": (6, 4, 2), "bytes": 12_345_678, "origin": "a test", "licence": "CC0"}
    path = write_archive(tmp_path)
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
        url = f"http://127.0.0.1:{http.server_port}/toy.tar.gz"
        checksum = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        official = Archive("toy.tar.gz", (url,), checksum, path.stat().st_size)
        unchecked = Archive("toy.tar.gz", (url,), None, path.stat().st_size)
        gone = Archive("gone.tar.gz", (url.replace("toy", "gone"), "http://127.0.0.1:1/gone.tar.gz"), None, 10)
        sources = [
            Source(name="toy", note="a toy", **about, archive=official, members=("*.txt",), read=read, make=make),
            Source(name="toy-other", note="another", **about, archive=unchecked, read=read),
            Source(name="gone", note="lost", **about, archive=gone, read=read),
            Source(name="pixels", note="pixels", **about, make=make_pixels),
            Source(name="newer", note="changed", **about, make=make, version=2),
        ]
        with patch.dict(tasks.TASKS, {source.name: source for source in sources}):
            yield
        http.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None: ...


def write_archive(folder: Path, text: str = TEXT) -> Path:
    path = folder / "toy.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(FILE)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    return path


def data(*arguments: str | Path) -> str:
    """What a command prints, spaces between the words made one."""
    result = CliRunner().invoke(cli.app, ["data", *map(str, arguments)])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return re.sub(r"[\s│]+", " ", result.output)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.npy"))


def failure(capfd: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 2) -> str:
    """The one line that `python -m linrnn data ...` says."""
    capfd.readouterr()
    with patch.object(sys, "argv", ["linrnn", "data", *map(str, arguments)]), pytest.raises(SystemExit) as exit_:
        runpy.run_module("linrnn", run_name="__main__")
    said = capfd.readouterr()
    assert exit_.value.code == code, said.err
    assert said.err.startswith("linrnn: ")
    assert said.err.count("\n") == 1
    return said.err


def test_help_names_all_commands_and_teaches_by_example() -> None:
    assert all(command in data("--help") for command in COMMANDS)
    for command in COMMANDS:
        said = data(command, "--help")
        assert re.search(r"Examples?\b", said)
        assert f"linrnn data {command}" in said


def test_list_tells_all_about_a_task_that_is_not_there() -> None:
    said = data("list")
    assert all(name in said for name in tasks.names())
    row = said[said.index("toy ") : said.index("toy-other")]
    for words in ("not there", "12.3 MB", "6 / 4 / 2 examples", "from: a test", "licence: CC0", "data make toy"):
        assert words in row
    assert "`linrnn data fetch toy`" in row
    assert "`linrnn data import toy PATH`" in row
    assert str(store.root()) in said


def test_list_tells_where_the_examples_that_are_there_came_from(tmp_path: Path) -> None:
    data("make", "toy", "--seed", "3", "--examples", "5,3,1")
    said = data("list")
    row = said[said.index("toy ") : said.index("toy-other")]
    assert "5 / 3 / 1 examples" in row
    assert "here: made, seed 3" in row
    assert "to get it" not in row
    assert re.match(f"toy .*there .*{size_of(tmp_path / 'data' / 'toy')} B", row)


def test_list_tells_which_examples_an_older_version_generated() -> None:
    finish(Draft("newer"), (5, 3, 1), 0, "generated by linrnn, seed 0")
    said = data("list")
    row = said[said.index("newer ") :]
    assert "outdated" in row
    assert "generated by linrnn, seed 0, an older version; to get the present version: `linrnn data make newer`" in row
    finish(Draft("newer"), (5, 3, 1), 0, "generated by linrnn, version 2, seed 0")
    assert "outdated" not in data("list")


def test_list_survives_a_damaged_task(tmp_path: Path) -> None:
    data("make", "toy")
    (tmp_path / "data" / "toy" / "train.inputs.npy").write_bytes(b"")
    said = data("list")
    assert "damaged" in said
    assert "train.inputs.npy: expected a NumPy array" in said


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_import_stores_and_reports(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "toy.tar.gz"
    if kind == "folder":
        path = tmp_path / "mine"
        (path / "toy").mkdir(parents=True)
        (path / FILE).write_text(TEXT)
    said = data("import", "toy", path)
    assert "train 3 0: 2, 1: 1" in said
    assert "files" in said
    place = tmp_path / "data" / "toy"
    assert re.search(rf" {size_of(place)} B in {place}, after \d+\.\d s", said)
    assert store.load("toy").source == "files"
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["toy"]
    assert (tmp_path / "toy.tar.gz").exists()


def test_fetch_downloads_once_and_imports(tmp_path: Path) -> None:
    pytest.importorskip("pooch")
    said = data("fetch", "toy")
    assert "checksum" not in said
    assert store.load("toy").source == "files"
    (tmp_path / "toy.tar.gz").unlink()
    data("fetch", "toy")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["downloads", "toy"]


def test_fetch_says_where_there_is_no_checksum(tmp_path: Path) -> None:
    pytest.importorskip("pooch")
    sha256 = hashlib.sha256((tmp_path / "toy.tar.gz").read_bytes()).hexdigest()
    said = data("fetch", "toy", "--variant", "other")
    assert f"no checksum of toy.tar.gz was ever published; its sha256 is {sha256}" in said
    assert store.load("toy-other").name == "toy-other"


def test_fetch_of_what_cannot_be_read_says_how_to_begin_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pooch")
    write_archive(tmp_path, "a login page")
    said = failure(capfd, "fetch", "toy-other")
    assert f"expected the toy's examples, got others; to download it again, delete {tmp_path}/data/downloads" in said


def test_without_a_network_fetch_says_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pooch")
    said = failure(capfd, "fetch", "gone")
    assert "gone.tar.gz: could not be downloaded: " in said
    assert "404 File not found; http://127.0.0.1:1/gone.tar.gz: no connection" in said


def test_make_takes_sizes_and_a_seed() -> None:
    said = data("make", "toy", "--examples", "5,3,1", "--seed", "2")
    assert "train 5 0: 3, 1: 2" in said
    task = store.load("toy")
    assert [len(split) for split in (task.train, task.validation, task.test)] == [5, 3, 1]
    assert task.source == "made, seed 2"
    assert "train 6 " in data("make", "toy")
    assert store.load("toy").source == "made, seed 0"


def test_make_goes_on_after_ctrl_c_and_keeps_the_old_task_till_then(capfd: pytest.CaptureFixture[str]) -> None:
    data("make", "toy", "--seed", "1")
    STOP_AT.append(5)
    assert "stopped; the same command continues" in failure(capfd, "make", "toy", code=130)
    assert Draft("toy", {"make": "toy", "version": 1, "seed": 0, "sizes": [6, 4, 2]}).done == {
        "examples": 5,
        "begun": 1,
    }
    assert store.load("toy").source == "made, seed 1"
    data("make", "toy")
    assert store.load("toy").source == "made, seed 0"


def test_an_import_that_fails_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data("make", "toy")
    write_archive(tmp_path, "others")
    assert "got others" in failure(capfd, "import", "toy", tmp_path / "toy.tar.gz")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["toy"]
    assert store.load("toy").source == "made, seed 0"
    assert "toy: all files match their checksums" in data("verify", "toy")


def test_show_prints_tokens(tmp_path: Path) -> None:
    data("make", "toy", "--seed", "2")
    said = data("show", "toy", "--examples", "2", "--split", "test")
    assert said.startswith("toy, test: a toy ")
    assert "example 0: 0, 4 steps cccc" in said
    assert "example 1: 1, 4 steps cccc" in said
    assert not list(tmp_path.glob("*.png"))
    assert data("show", "recall").count("example") == 3


def test_show_draws_pixels(tmp_path: Path) -> None:
    data("make", "pixels")
    assert data("show", "pixels").strip() == "pixels.png"
    assert data("show", "pixels", "--examples", "2", "--out", "other.png").strip() == "other.png"
    first, second = ((tmp_path / name).read_bytes() for name in ("pixels.png", "other.png"))
    assert first[:4] == second[:4] == b"\x89PNG"
    assert first != second


def test_verify_names_the_damaged_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data("make", "toy")
    assert "toy: all files match their checksums" in data("verify", "toy")
    assert "nothing to verify" in data("verify", "recall")
    path = tmp_path / "data" / "toy" / "test.inputs.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    assert f"{path}: expected sha256 " in failure(capfd, "verify", "toy")


MISTAKES = [
    pytest.param(["fetch", "scifra"], "did you mean 'scifar'?", id="unknown-task"),
    pytest.param(["show", "toy", "--variant", "othr"], "got 'toy-othr'; did you mean 'toy-other'?", id="variant"),
    pytest.param(["make", "recall"], "a task that can be generated (", id="make-built-in"),
    pytest.param(["make", "gone"], "got 'gone'; `linrnn data fetch gone` downloads them", id="no-generator"),
    pytest.param(["import", "pixels", "toy.tar.gz"], "`linrnn data make pixels` generates them", id="no-reader"),
    pytest.param(["fetch", "pixels"], "`linrnn data make pixels` generates them", id="no-archive"),
    pytest.param(["import", "toy", "none.zip"], "none.zip", id="no-file"),
    pytest.param(["make", "toy", "--examples", "1,2"], "three numbers of at least 1", id="two-numbers"),
    pytest.param(["make", "toy", "--examples", "1,2,x"], "got 1,2,x", id="no-number"),
    pytest.param(["make", "toy", "--examples", "1,2,3,"], "got 1,2,3,", id="comma"),
    pytest.param(["make", "toy", "--examples", "1,0,3"], "got 1,0,3", id="zero"),
    pytest.param(["show", "toy"], "`linrnn data make toy` generates them", id="show-nothing"),
    pytest.param(["verify", "toy"], "`linrnn data make toy` generates them", id="verify-nothing"),
    pytest.param(
        ["show", "recall", "--out", "it.png"], "--out: expected only for pixels and numbers", id="text-into-a-file"
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes(tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert message in failure(capfd, *arguments)
    assert [path.name for path in tmp_path.iterdir() if path.name != "data"] == ["toy.tar.gz"]
    assert not list(tmp_path.glob("data/*"))


def test_a_bar_shows_each_step_of_a_long_job(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    screen = io.StringIO()
    monkeypatch.setattr(cli_data, "out", Console(file=screen, force_terminal=True, width=100))
    with cli_data._progress() as progress:
        for done in range(1, 4):
            progress("reading [3]", done, 3)
        progress("writing", 1, 1)
    assert "reading [3]" in screen.getvalue()
    assert "writing" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_show_tells_all_about_a_file_of_ones_own(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(20, 30, 2))
    inputs[3, 4, 1] = np.nan
    np.savez(tmp_path / "my.npz", inputs=inputs, targets=np.arange(20) % 2, labels=["cat", "dog"])
    said = data("show", "my.npz", "--examples", "2", "--split", "test")
    assert "inputs: numbers of 2 channels at each step (float32)" in said
    assert "missing values: inputs: 1 missing or infinite, the first nan at example 3, step 4, channel 1" in said
    assert "train: 16 examples; steps: 30" in said
    assert said.strip().endswith("my.png")
    assert (tmp_path / "my.png").read_bytes()[:4] == b"\x89PNG"


def test_show_takes_the_options_of_a_table_and_a_text(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i}" for i in range(200))
    (tmp_path / "s.csv").write_text(f"price,load\n{rows}\n")
    said = data("show", "s.csv", "--target", "price", "--window", "9", "--horizon", "2", "--out", "it.png")
    assert "forecast, the next 2 steps of price after 9" in said
    assert (tmp_path / "it.png").exists()
    (tmp_path / "book.txt").write_text("abc\n" * 300)
    said = data("show", "book.txt", "--window", "20", "--examples", "1")
    assert "tokens of 5 symbols" in said
    assert r"abc\nabc\n" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "none.csv"], "none.csv: expected a file or a folder, got neither"),
        (["show", "book.txt", "--horizon", "3"], "horizon: expected for tables"),
        (["show", "recall", "--horizon", "3"], "--horizon: expected only for a file of your own, got recall"),
        (
            ["show", "s.csv", "--target", "prise"],
            "target: expected 'price' or 'load', got 'prise'; did you mean 'price'?",
        ),
        (["show", "book.txt", "--out", "it.png"], "--out: expected only for pixels and numbers"),
    ],
)
def test_mistakes_with_a_file_of_ones_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "book.txt").write_text("abc\n" * 3000)
    (tmp_path / "s.csv").write_text("price,load\n1,2\n")
    assert message in failure(capfd, *arguments)
    assert not list(tmp_path.glob("*.png"))
