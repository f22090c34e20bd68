"""The origin of a result: the machine, the versions and the commit."""

import functools
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("linrnn", "torch", "triton", "numba", "numpy", "jax")


def provenance() -> dict[str, Any]:
    """Commit, machine and versions, for the record of a result."""
    return {"commit": commit(), "machine": machine(), "versions": versions()}


def machine() -> dict[str, Any]:
    described: dict[str, Any] = {"system": platform.system(), "cpu": _cpu(), "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name()
    return described


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def version_line() -> str:
    """The text of `linrnn --version`."""
    found = versions()
    return ", ".join(f"{name} {found[name]}" for name in ("linrnn", "torch", "python"))


@functools.cache
def commit() -> str | None:
    """The commit of the checkout that linrnn runs from; None for other installations.

    The result of the first call is kept, since the checkout may change while a job runs.
    """
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
