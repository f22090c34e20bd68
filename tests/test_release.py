"""The files of a release agree with each other and with the package."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import linrnn

ROOT = Path(__file__).parent.parent
if not (ROOT / ".github").exists():
    pytest.skip("only a checkout has the files of a release", allow_module_level=True)
yaml = pytest.importorskip("yaml")


def read(path: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return data


@pytest.mark.slow
def test_the_tests_of_the_sdist_need_no_other_file(tmp_path: Path) -> None:
    """Files that only a checkout has: their tests are skipped, and all other tests are found."""
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    for name in (*included["include"], "pyproject.toml"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    pytest_of = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    files = ("docs", "test_readme.py", "test_release.py", "test_import.py", "cli/test_plugins.py", "paper/figures")
    for arguments in (["--collect-only", "tests"], [f"tests/{file}" for file in files]):
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run([*pytest_of, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:]


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert read("CITATION.cff")["version"] == project["version"] == linrnn.__version__


def test_the_paper_is_cited() -> None:
    paper = read("CITATION.cff")["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Orvieto",
        "Smith",
        "Gu",
        "Fernando",
        "Gulcehre",
        "Pascanu",
        "De",
    ]
    assert "2303.06349" in paper["url"]


def test_the_matrix_has_the_supported_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matrix = read(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    assert matrix["torch"] == ["2.11", "newest"]
    assert matrix["python"][0] == project["requires-python"].removeprefix(">=")
    (torch,) = [line for line in project["dependencies"] if line.startswith("torch")]
    assert f"torch>={matrix['torch'][0]}" in torch


def test_pre_commit_checks_what_ci_checks() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    commands = {hook["entry"] for hook in repository["hooks"]}
    ci = (ROOT / ".ci" / "run").read_text()
    checks = set(re.findall(r"^\.venv/bin/(ruff format|ruff check|mypy)", ci, re.MULTILINE))
    assert checks == {"ruff format", "ruff check", "mypy"} == commands - {"python -m pytest"}


def test_a_release_is_trusted_and_attested() -> None:
    jobs = read(".github/workflows/release.yml")["jobs"]
    build, publish = (jobs[name] for name in ("build", "publish"))
    uses = [step["uses"].partition("@")[0] for job in (build, publish) for step in job["steps"] if "uses" in step]
    assert build["permissions"]["attestations"] == publish["permissions"]["id-token"] == "write"
    assert {"actions/attest-build-provenance", "pypa/gh-action-pypi-publish"} <= set(uses)
    assert publish["needs"] == "build"
    assert "password" not in str(publish), "a trusted publisher has no token"


def test_what_github_reads_matches_its_schemas() -> None:
    """Runs the commands of CONTRIBUTING.md, without a download: the schemas come with the package."""
    pytest.importorskip("check_jsonschema")
    commands = re.findall(r"^check-jsonschema (.*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m check_jsonschema {command}"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
