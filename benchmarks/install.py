"""The size of an installed wheel in bytes, and the time of `import linrnn`. Then a model runs.

Each commit is built and installed into a new environment, with constraints.txt of this checkout, without extras and
with `train` where the commit has it.

    python benchmarks/install.py bced760 HEAD --json results/bench/install.json
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

from linrnn.bench import measure

ROOT = Path(__file__).parent.parent
TIMES = 9
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # of the environment itself
IMPORT = """
import json, sys, time, torch
known, start = set(sys.modules), time.process_time()
import linrnn
print(json.dumps({"seconds": time.process_time() - start, "modules": len(set(sys.modules) - known)}))
"""
RUN = """
import torch, linrnn
torch.manual_seed(0)
model = linrnn.Model(linrnn.ModelConfig(vocabulary=9, classes=3, d_model=8, d_state=8, depth=2)).eval()
tokens = torch.randint(9, (4, 50))
stream = linrnn.Stream(model, batch=4)
for k in range(50):
    outputs = stream.step(tokens[:, k])
print(float((outputs - model(tokens)).abs().max().detach()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="*", default=["HEAD"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    for commit in arguments.commits:
        for row in rows(commit):
            print(row)
            results.append(row)
    measure.write(arguments.json, "python benchmarks/install.py " + " ".join(sys.argv[1:]), results)


def rows(commit: str) -> Iterator[dict[str, Any]]:
    name = _output("git", "-C", ROOT, "rev-parse", "--short", commit)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        _output(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source)
        (wheel,) = Path(folder).glob("*.whl")
        extras = ["", "[train]"] if "\ntrain = " in (source / "pyproject.toml").read_text() else [""]
        for extra in extras:
            place = Path(folder) / f"environment{extra}"
            venv.create(place, with_pip=True)
            python = place / "bin" / "python"
            _output(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}{extra}")
            yield {"commit": name, "install": f"linrnn{extra}", **installed(python)}


def installed(python: Path) -> dict[str, Any]:
    """Bytes of all packages, and without PyTorch; CPU time of the import after PyTorch's, and the modules it adds."""
    (site,) = (python.parent.parent / "lib").glob("python*/site-packages")
    sizes = {path.name: _bytes(path) for path in site.iterdir() if not path.name.startswith(NOT_OURS)}
    torch = sum(size for name, size in sizes.items() if name.startswith(("torch", "functorch")))
    times = [json.loads(_output(python, "-c", IMPORT)) for _ in range(TIMES)]
    return {
        "packages": sum(name.endswith(".dist-info") for name in sizes),
        "bytes": sum(sizes.values()),
        "bytes without torch": sum(sizes.values()) - torch,
        "import seconds": median(row["seconds"] for row in times),
        "imported modules": times[0]["modules"],
        "error of a stream": float(_output(python, "-c", RUN)),
    }


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()).stdout.strip()


if __name__ == "__main__":
    main()
