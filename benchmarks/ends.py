"""Where eigenvalues of runs start and end: of each block the nearest to 1, the largest, and the number above .99.

python benchmarks/ends.py runs/text-lru [more runs] [--json FILE]
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import measure
import numpy as np

from linrnn.paper.figures.depth import eigenvalues
from linrnn.training import Run


def blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for block, lam in enumerate(eigenvalues(record), start=1):
        radii, nearest = np.abs(lam), lam[np.abs(lam - 1).argmin()]
        row = {"block": block, "largest": radii.max(), "above .99": (radii > 0.99).sum(), "above 1": (radii > 1).sum()}
        row |= {"nearest to 1": np.abs(nearest), "its phase": np.angle(nearest), "its distance": np.abs(nearest - 1)}
        rows.append({name: value if name == "block" else round(value.item(), 6) for name, value in row.items()})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for run in arguments.runs:
        spectra = Run.open(run).spectra()
        results.append({"run": run.name, "start": blocks(spectra[0]), "end": blocks(spectra[-1])})
        print(run.name, *results[-1]["end"], sep="\n  ")
    measure.record(arguments.json, shlex.join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()
