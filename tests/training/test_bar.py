"""The progress bar in narrow and wide windows."""

import io

import pytest
from rich.console import Console

from linrnn.training.bar import bar


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("total", [500, 100_000])
def test_a_line_fits_the_window(width: int, total: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    progress = bar(console)
    task = progress.add_task("listops, lru", total=total, loss="", validation="", speed="")
    with console.capture() as empty:
        console.print(progress.make_tasks_table(progress.tasks))
    progress.update(task, completed=total / 2, loss="1.068", validation="accuracy 41.5%", speed="12.3 steps/s")
    with console.capture() as full:
        console.print(progress.make_tasks_table(progress.tasks))
    (first,), (line,) = (captured.get().splitlines() for captured in (empty, full))
    assert first.startswith(f"0/{total}")
    assert line.startswith(f"{total // 2}/{total}  -:--:--")
    assert len(line) <= width
    assert "…" not in line
    assert ("loss 1.068  validation accuracy 41.5%" in line) == (width >= 60)
    assert ("12.3 steps/s" in line) == (width >= 80)
    assert ("listops, lru" in line) == (width > 80)
    assert ("━" in line) == (width >= 100)
