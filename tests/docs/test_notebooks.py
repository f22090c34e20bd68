"""The notebooks run from top to bottom, are small, and hold the outputs of such a run."""

import os
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
if not NOTEBOOKS:
    pytest.skip("only a checkout has the docs", allow_module_level=True)
nbformat = pytest.importorskip("nbformat")
SECONDS = 120  # on an idle machine
BYTES = 150_000
WORDS = 1_500


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_without_a_warning(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert time.perf_counter() - started < SECONDS
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_was_run_in_order(path: Path) -> None:
    assert path.stat().st_size <= BYTES
    notebook = nbformat.read(path, as_version=4)
    assert sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown") <= WORDS
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_all_three_are_on_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    index = (ROOT / "docs" / "notebooks" / "index.md").read_text()
    assert [path.stem for path in NOTEBOOKS] == ["lru", "series", "stream"]
    for path in NOTEBOOKS:
        assert f"notebooks/{path.stem}.md" in navigation
        assert f"({path.stem}." in index
