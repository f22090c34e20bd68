"""Train random settings, kill and stop and resume them at random moments, evaluate, and count what comes of it.

    python -m tests.faults.soak --minutes 10

Each round trains once alone and once with interruptions; both must end with the same bits. Then the run is loaded,
exported as a stream, and read by `linrnn runs`.
"""

import argparse
import collections
import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

import linrnn
from linrnn.cli import runs as cli_runs
from linrnn.training import Run
from tests.training.helpers import ROOT, assert_same_end, command, environment, tiny_world

CORES = ("lru", "lru", "s5", "s4d", "dlr", "rnn", "gru", "lstm", "s4")
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


def finish(folder: Path, arguments: list[str], draw: random.Random | None, count: collections.Counter[str]) -> None:
    """Train to the end, in as many processes as the interruptions need."""
    for attempt in range(MOST + 1):
        begun = (folder / "config.json").is_file()
        line = command("train", "--resume", folder) if begun else command("train", "tiny", "--out", folder, *arguments)
        process = subprocess.Popen(
            line, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if draw is not None and attempt < MOST:
            number = draw.choice(SIGNALS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(1.5, 12) if attempt else draw.uniform(3, 12))
            if process.poll() is None:
                process.send_signal(number)
                count[f"interrupted by {number.name}"] += 1
        said = process.communicate(timeout=PATIENCE)[1]
        if process.returncode == 0:
            return
        allowed = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 130}
        if draw is None or process.returncode not in allowed:
            raise AssertionError(f"{line[3:]} ended with {process.returncode}: {said[-2000:]}")
    raise AssertionError(f"{MOST} interruptions are over, and the run has not ended")


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
    line = command("eval", str(run.folder))
    done = subprocess.run(line, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def round_of(seed: int, place: Path, count: collections.Counter[str]) -> None:
    draw = random.Random(seed)
    arguments = settings(draw)
    whole, broken = place / "runs" / "whole", place / "runs" / "broken"
    finish(whole, arguments, None, count)
    finish(broken, arguments, draw, count)
    assert_same_end(Run.open(broken), Run.open(whole))
    count["the same bits"] += 1
    evaluate(Run.open(broken))
    count["evaluated"] += 1
    rows, unread = cli_runs.listed(place / "runs")
    assert len(rows) == 2, unread
    assert not unread
    left = [path.name for path in broken.rglob(".*")]
    assert not left, f"left over: {left}"


def soak(minutes: float, seed: int) -> tuple[collections.Counter[str], dict[int, str]]:
    """The outcomes by kind, and what went wrong in which round."""
    count: collections.Counter[str] = collections.Counter()
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
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    chosen = parser.parse_args()
    count, failures = soak(chosen.minutes, chosen.seed)
    print(json.dumps({"count": count, "failures": failures}, indent=2))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
