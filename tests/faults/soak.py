"""Train random settings, kill and stop and resume them at random moments, evaluate, and count what comes of it.

    python -m tests.faults.soak --minutes 10

Each round trains once alone and once with interruptions; both must end with the same bits. Then `linrnn eval` evaluates
the run, a stream gives the same outputs, and `linrnn runs` lists it. Each process is a fork of this one.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch

import linrnn
from linrnn.bench.measure import write
from linrnn.cli import app as cli
from linrnn.cli import runs as cli_runs
from linrnn.training import Run
from tests.faults.kills import forked
from tests.training.helpers import assert_same_end, tiny_world

Counter = collections.Counter[str]

CORES = ("lru", "lru", "s5", "s4d", "dlr", "rnn", "gru", "lstm", "s4", "rglru", "mingru")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE = 1800  # seconds for one process, on a busy machine
MOST = 12  # interruptions of a run


def settings(draw: random.Random) -> list[str]:
    """Random settings of a small run."""
    core = draw.choice(CORES)
    chosen = {
        "model.core": core,
        "model.d_model": draw.choice([2, 6, 9]),
        "model.d_state": draw.choice([2, 8]),
        "model.depth": draw.choice([1, 2]),
        "model.norm": draw.choice(["batch", "layer"]),
        "model.mixing": draw.choice(["glu", "half_glu"]),
        "model.dropout": draw.choice([0.0, 0.2]),
        "model.pooling": draw.choice(["mean", "last", "all"]),
        "training.steps": draw.choice([30, 60, 150]),
        "training.batch_size": draw.choice([1, 8, 13]),
        "training.eval_every": draw.choice([1, 7, 20, 60]),
        "training.seed": draw.randrange(1000),
        "training.clip": draw.choice(["none", 1.0]),
        "training.ema": draw.choice(["none", 0.9]),
        "training.label_smoothing": draw.choice([0.0, 0.1]),
    }
    return [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]


def finish(
    folder: Path, arguments: list[str], draw: random.Random | None, count: Counter, seconds: float = 0.0
) -> float:
    """Train to the end, in as many processes as the interruptions within these seconds need; the time it took."""
    began, left = time.monotonic(), 0 if draw is None else MOST
    while True:
        begun = (folder / "config.json").is_file()
        words = ["--resume", str(folder)] if begun else ["tiny", "--out", str(folder), *arguments]
        process = start(["train", *words], folder.parent / "said")
        ended = None
        if draw is not None and left:
            left -= 1
            ended = process.wait(draw.uniform(0, 0.8 * seconds))
            if ended is None:
                number = draw.choice(SIGNALS)
                process.send(number)
                count[f"interrupted by {number.name}"] += 1
        ended = process.wait(PATIENCE) if ended is None else ended
        if ended == 0:
            return time.monotonic() - began
        said = (folder.parent / "said").read_text()
        allowed = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 130}
        if draw is None or ended not in allowed:
            raise AssertionError(f"{words} ended with {ended}: {said[-2000:]}")


@dataclass
class Started:
    """A process of the command `linrnn`."""

    pid: int

    def wait(self, seconds: float) -> int | None:
        """The exit status; None if the process still runs after these seconds."""
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                return None
            time.sleep(0.002)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def start(arguments: list[str], said: Path) -> Started:
    """The command `linrnn` in a fork of this process, which has imported everything and computed nothing."""
    pid = os.fork()
    if pid:
        return Started(pid)
    status: object = 1
    try:
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.argv = ["linrnn", *arguments]
        cli.main()
        status = 0
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status if isinstance(status, int) else 1)


def evaluate(run: Run) -> None:
    """Use the run as a user would."""
    model = linrnn.load(run.folder)
    tokens = torch.randint(4, (3, 12), generator=torch.Generator().manual_seed(0))
    outputs = model(tokens)
    assert outputs.isfinite().all()
    stream = linrnn.Stream(model, 3)
    for k in range(12):
        last = stream.step(tokens[:, k])
    assert torch.allclose(last, outputs, atol=1e-4), (last - outputs).abs().max()
    said = run.folder.parent / "said"
    assert start(["eval", str(run.folder)], said).wait(PATIENCE) == 0, said.read_text()[-2000:]


def round_of(seed: int, place: Path, count: Counter) -> None:
    draw = random.Random(seed)
    arguments = settings(draw)
    whole, broken = place / "runs" / "whole", place / "runs" / "broken"
    whole.parent.mkdir()
    seconds = finish(whole, arguments, None, count)
    finish(broken, arguments, draw, count, seconds)
    status, said = forked(lambda: compare(broken, whole))
    assert status == 0, said
    count["the same bits"] += 1
    status, said = forked(lambda: evaluate(Run.open(broken)))
    assert status == 0, said
    count["evaluated"] += 1


def compare(broken: Path, whole: Path) -> None:
    assert_same_end(Run.open(broken), Run.open(whole))
    rows, unread = cli_runs.listed(broken.parent)
    assert len(rows) == 2, unread
    assert not unread
    left = [path.name for path in broken.rglob(".*")]
    assert not left, f"left over: {left}"


def soak(minutes: float, seed: int) -> tuple[Counter, dict[int, str]]:
    """The outcomes by kind, and what went wrong in which round."""
    count = Counter()
    failures: dict[int, str] = {}
    end = time.monotonic() + 60 * minutes
    with tiny_world():
        while time.monotonic() < end or not count["rounds"]:
            count["rounds"] += 1
            place = Path(tempfile.mkdtemp(prefix="soak-"))
            try:
                round_of(seed, place, count)
                shutil.rmtree(place)
            except Exception:
                failures[seed] = f"{place}: {traceback.format_exc()[-3000:]}"
            seed += 1
    count["failures"] = len(failures)
    return count, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", type=Path, help="a record of the outcomes")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    chosen = parser.parse_args()
    count, failures = soak(chosen.minutes, chosen.seed)
    results = {"minutes": chosen.minutes, "count": count, "failures": failures}
    print(json.dumps(results, indent=2))
    write(chosen.json, "python -m tests.faults.soak " + " ".join(sys.argv[1:]), results)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
