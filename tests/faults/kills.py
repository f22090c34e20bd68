"""Kill a job before each of its changes on disk, do it again, and compare the end with the end of a job left alone.

    python -m tests.faults.kills train --points 8
    python -m tests.faults.kills all

Each try is a fork of this process, which has imported everything and computed nothing.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.backends.backend_agg  # what a run's pictures need, once for all forks
import matplotlib.figure  # noqa: F401
import numpy as np
import torch

from linrnn import tasks
from linrnn.bench.measure import write
from linrnn.cli.app import app
from linrnn.tasks import pathfinder, store
from linrnn.training import Run, resume
from tests.faults import layouts
from tests.training.helpers import QUIET, assert_same_end, assert_same_tensors, tiny_world, train_tiny

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}  # audit events
PUBLISHED = {"README.md", "card.json", "config.json", "model.safetensors"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Job:
    """Something that changes a folder.

    Attributes:
        do: the job, from the start or on what an earlier try left.
        same: compares a folder with the folder of a job left alone; an AssertionError says what differs.
        prepare: what is there before.
        whole: checks what a kill left, before the job is done again.
    """

    do: Callable[[Path], None]
    same: Callable[[Path, Path], None]
    prepare: Callable[[Path], None] = lambda folder: None
    whole: Callable[[Path], None] = lambda folder: None


@dataclass
class Outcome:
    """What came of the tries: how many there were, and what went wrong at which change."""

    job: str
    changes: int = 0
    tries: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def watch(folder: Path, last: int | None) -> list[int]:
    """Count the changes in a folder from now on, and kill this process before the one with the number `last`."""
    count, place, fsync = [0], str(folder), os.fsync

    def change() -> None:
        if count[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if (writes or event in CHANGES) and any(str(a).startswith(place) for a in arguments[:2]):
            change()

    def synced(file: int) -> None:
        change()  # a file that is written, and has not its name yet
        fsync(file)

    sys.addaudithook(hook)
    os.fsync = synced  # type: ignore[assignment]
    return count


def forked(work: Callable[[], Any], folder: Path | None = None, last: int | None = None) -> tuple[int, Any]:
    """The exit status of a fork that does the work, and what it returned or said; killed before a change in a folder
    if `last` says so. For a folder without `last` it returns the number of changes."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            count = None if folder is None else watch(folder, last)
            result = work()
            said, status = json.dumps(result if count is None else count[0]), 0
        except BaseException:
            said = json.dumps(traceback.format_exc()[-2000:])
        os.write(write, said.encode())
        os._exit(status)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(said) if said else None


def kill_everywhere(name: str, job: Job, root: Path, points: int | None = None, first: int = 0) -> Outcome:
    """Try the job with a kill before each change, or before `points` of them, spread evenly."""
    root.mkdir()
    expected = root / "expected"
    job.prepare(expected)
    status, changes = forked(lambda: job.do(expected), expected)
    outcome = Outcome(name, 0 if status else int(changes))
    if status:
        outcome.failures["left alone"] = str(changes)
        return outcome
    chosen = range(changes) if points is None else np.linspace(first, changes - 1, points).astype(int).tolist()
    for at in chosen:
        folder = root / f"kill-{at}"
        job.prepare(folder)
        outcome.tries += 1
        status, said = forked(lambda folder=folder: job.do(folder), folder, at)  # type: ignore[misc]
        if status != -signal.SIGKILL:
            outcome.failures[f"change {at}"] = f"was not killed but ended with {status}: {said}"
            continue

        def again(folder: Path = folder) -> None:
            job.whole(folder)
            for path in folder.rglob(".*-part"):
                os.utime(path, (0, 0))  # a minute later
            job.do(folder)
            job.same(folder, expected)

        status, said = forked(again)
        if status:
            outcome.failures[f"change {at}"] = str(said)
        else:
            shutil.rmtree(folder)
    return outcome


def train_or_resume(folder: Path, *changes: str) -> None:
    if (folder / "config.json").exists():
        resume(folder, QUIET)
    else:
        train_tiny(folder, *changes)


def same_run(came: Path, expected: Path) -> None:
    assert_same_end(Run.open(came), Run.open(expected))
    left = [path.name for path in came.rglob(".*")]
    assert not left, f"left over: {left}"
    assert {path.name for path in came.iterdir()} == {path.name for path in expected.iterdir()}


def command(*arguments: str) -> Callable[[Path], None]:
    """A command on the data in a folder."""

    def do(folder: Path) -> None:
        os.environ["LINRNN_DATA"] = str(folder)
        app(list(arguments), standalone_mode=False)

    return do


def same_data(came: Path, expected: Path) -> None:
    """The same files with the same bytes, and nothing else but empty locks of processes that were killed."""

    def files(folder: Path) -> dict[str, bytes]:
        found = {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    a, b = files(came), files(expected)
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    assert [name for name in a if a[name] != b[name]] == []


def whole_tasks(folder: Path) -> None:
    """Every task that is said to be there is as it was written."""
    os.environ["LINRNN_DATA"] = str(folder)
    for name in tasks.names():
        if tasks.TASKS[name].load is None and store.exists(name):
            store.verify(name)


def jobs(sources: Path) -> dict[str, Job]:
    """All jobs; what is imported and downloaded is written into a folder first."""
    layouts.write(sources)

    def data(*arguments: str, before: tuple[str, ...] | None = None) -> Job:
        prepare = command(*before) if before else lambda folder: None
        return Job(command("data", *arguments), same_data, lambda folder: _in_fork(prepare, folder), whole_tasks)

    text, other = str(sources / "text"), str(sources / "other-text")
    return {
        "train": Job(train_or_resume, same_run),
        "make": data("make", "pathfinder", "--examples", "9,4,4"),
        "make again": data(
            "make", "pathfinder", "--examples", "9,4,4", "--seed", "1",
            before=("data", "make", "pathfinder", "--examples", "6,4,4"),
        ),
        "import folder": data("import", "text", text, before=("data", "import", "text", other)),
        "import tar.gz": data("import", "scifar", str(sources / "cifar.tar.gz")),
        "import zip": data("import", "listops", str(sources / "listops.zip")),
        "fetch": data("fetch", "scifar"),
        **_of_runs(sources / "trained"),
    }  # fmt: skip


def _of_runs(place: Path) -> dict[str, Job]:
    """The jobs that use a run, each on a copy of the same one."""

    def trained(folder: Path) -> None:
        train_tiny(folder / "run", "training.steps=20", "training.eval_every=10")
        np.savez(folder / "new.npz", inputs=np.arange(60, dtype=np.int64).reshape(5, 12) % 4)

    def prepare(folder: Path) -> None:
        if not place.exists():
            _in_fork(trained, place)
        shutil.copytree(place, folder)

    def made(*arguments: str, out: str) -> Callable[[Path], None]:
        """A command on the run that makes a file or a folder, which is there as a whole or not at all."""

        def do(folder: Path) -> None:
            if not (folder / out).is_dir():
                run, *more = (str(folder / a) if a in ("run", "new.npz") else a for a in arguments[1:])
                app([arguments[0], run, *more, "--out", str(folder / out)], standalone_mode=False)

        return do

    def whole(folder: Path) -> None:
        if (folder / "small").exists():
            assert Run.open(folder / "small").summary is not None
            assert (folder / "small" / "shrink.png").is_file()
        if (folder / "published").exists():
            assert {path.name for path in (folder / "published").iterdir()} == PUBLISHED

    def same_weights(came: Path, expected: Path) -> None:
        assert_same_tensors(Run.open(came / "small"), Run.open(expected / "small"))
        assert {path.suffix for path in came.rglob(".*")} <= {".lock"}

    def sweep(folder: Path) -> None:
        more = ["--set", "training.learning_rate=.01,.02", "--set", "training.eval_every=10", "--steps", "10"]
        app(["sweep", "tiny", *more, "--quiet", "--out", str(folder / "runs")], standalone_mode=False)

    def same_runs(came: Path, expected: Path) -> None:
        for path in (expected / "runs").iterdir():
            same_run(came / "runs" / path.name, path)

    shrink = made("shrink", "run", "--states", "3", "--examples", "5", out="small")
    return {
        "shrink": Job(shrink, same_weights, prepare, whole),
        "publish": Job(made("publish", "run", out="published"), same_data, prepare, whole),
        "export": Job(made("export", "run", "--to", "c", out="model.c"), same_data, prepare),
        "predict": Job(made("predict", "run", "new.npz", out="said.csv"), same_data, prepare),
        "sweep": Job(sweep, same_runs),
    }


def _in_fork(prepare: Callable[[Path], None], folder: Path) -> None:
    status, said = forked(lambda: prepare(folder))
    assert status == 0, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", help="all, or some of the jobs")
    parser.add_argument("--points", type=int, help="kills for each job; all changes without")
    parser.add_argument("--json", type=Path, help="a record of the outcomes")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    pathfinder.BLOCK = 4
    outcomes = []
    with tempfile.TemporaryDirectory() as place, tiny_world():
        known = jobs(Path(place) / "sources")
        for name in known if chosen.jobs == ["all"] else chosen.jobs:
            if name == "fetch":
                layouts.serve(Path(place) / "sources")
            outcome = kill_everywhere(name, known[name], Path(place) / name.replace(" ", "-"), chosen.points)
            outcomes.append(outcome)
            print(json.dumps(vars(outcome)), flush=True)
    write(chosen.json, "python -m tests.faults.kills " + " ".join(sys.argv[1:]), [vars(each) for each in outcomes])
    sys.exit(any(outcome.failures for outcome in outcomes))


if __name__ == "__main__":
    main()
