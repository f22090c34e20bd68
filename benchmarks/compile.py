"""Measure how long Triton compiles the kernels of a training step for an H200, on any machine.

    python benchmarks/compile.py [--recipe text] [--json results/bench/compile.json]

Processor seconds of one process, with an empty cache, for each kernel of one block at the recipe's sizes. The kernels
do not run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import record

from linrnn.bench.train import PAPER

ROOT = Path(__file__).parent.parent


def kernels(recipe: str) -> list[dict[str, Any]]:
    """The kernels of a recipe's training step, in the order of their launches."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TRITON_CACHE_DIR": cache}
        command = [sys.executable, "-m", "tests.fast.compile_for_gpu", recipe]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", action="append", help="repeatable; by default the paper's six")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results = []
    for recipe in asked.recipe or PAPER:
        rows = kernels(recipe)
        results.append({"name": recipe, "seconds": round(sum(row["seconds"] for row in rows), 2), "kernels": rows})
        print(f"{recipe:12} {results[-1]['seconds']:6.1f} s")
        for row in rows:
            print(f"  {row['kernel']:26} {row['seconds']:6.1f} s  {row['registers']:4} registers", flush=True)
    record(asked.json, " ".join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()
