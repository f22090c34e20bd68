"""A job that is killed before one of its changes on disk, and done again, ends as one that was left alone.

Each job runs in a process of its own, which has computed nothing: a fork has none of its parent's threads.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.training.helpers import ROOT, environment

JOBS = (
    "train", "make", "make again", "import folder", "import tar.gz", "import zip", "fetch",
    "shrink", "publish", "export", "predict", "sweep",
)  # fmt: skip


def kills(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.faults.kills", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_some_kills_of_every_job() -> None:
    quick = [job for job in JOBS if job != "sweep"]  # which trains two runs at each try
    outcomes = kills(*quick, "--points", "2")
    assert [outcome["job"] for outcome in outcomes] == quick
    assert [outcome for outcome in outcomes if outcome["failures"] or outcome["tries"] != 2] == []


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_kill_before_every_change(job: str) -> None:
    (outcome,) = kills(job)
    assert outcome["failures"] == {}
    assert outcome["tries"] == outcome["changes"] > (3 if job in ("export", "predict") else 20)
