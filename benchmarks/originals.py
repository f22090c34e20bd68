"""The accuracy of published weights on images of Pathfinder's original program.

    python benchmarks/originals.py 32.npz pretrained/pathfinder [--json results/pathfinder/originals-32.json]

The file has arrays `images` (count, size, size), as bytes, and `labels`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from measure import record

from linrnn import objectives
from linrnn.export.published import open_run
from linrnn.tasks.base import Split
from linrnn.training.data import Examples
from linrnn.training.evaluation import evaluate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("run", type=Path, help="published weights, or a run")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with np.load(asked.images, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
    run, device = open_run(asked.run), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, task = run.model().to(device), run.description
    results: dict[str, object] = {}
    for name, chosen in (("all", labels >= 0), ("label 0", labels == 0), ("label 1", labels == 1)):
        split = Split(images[chosen].reshape(chosen.sum(), -1, 1), None, labels[chosen])
        examples = Examples(task, split, device)
        values = evaluate(lambda x, n: model(x, lengths=n), model, examples, objectives.of(task, device=device), 50)
        results[name] = {"images": len(split), **values}
        print(name, results[name])
    record(asked.json, " ".join(["python", *sys.argv]), results)


if __name__ == "__main__":
    main()
