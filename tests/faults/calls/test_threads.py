"""Threads that wait must not take cores from other work. How much time this saves is in docs/how/measurements.md."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

import linrnn
from linrnn.util.threads import SMALL, OneThread

POLICY = """
import os
{imports}
import linrnn, torch, threading
linrnn.scan(torch.zeros(1, 2, 3, dtype=torch.complex64), torch.zeros(3, dtype=torch.complex64))
print(os.environ.get("OMP_WAIT_POLICY"), "linrnn" in [thread.name for thread in threading.enumerate()])
"""


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        pytest.param("", "PASSIVE False", id="linrnn-first"),
        pytest.param("import torch", "None True", id="torch-first"),
    ],
)
def test_how_threads_wait(imports: str, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-c", POLICY.format(imports=imports)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if imports and "libgomp" not in _libraries():
        pytest.skip("PyTorch's OpenMP library is not GNU's")
    assert done.stdout.strip() == expected, done.stderr


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_small_step_uses_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    layer, model = linrnn.LRU(4, 3), linrnn.Model(linrnn.ModelConfig(channels=1, classes=2, d_model=4, d_state=3))
    step = linrnn.LRU._step

    def watched(self: linrnn.LRU, u: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(torch.get_num_threads())
        return step(self, u, state)

    monkeypatch.setattr(linrnn.LRU, "_step", watched)
    layer.step(torch.zeros(2, 4), layer.initial_state(2))
    model.eval().step(torch.zeros(2, 1), model.initial_state(2))
    many = SMALL // 4 + 1
    layer.step(torch.zeros(many, 4), layer.initial_state(many))
    assert seen == [1] * 7 + [2]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_after_an_error_the_threads_are_as_before() -> None:
    with pytest.raises(RuntimeError), OneThread(1):
        raise RuntimeError
    assert torch.get_num_threads() == 2


def test_where_one_thread_was_chosen_it_stays() -> None:
    answers = []

    def work() -> None:
        torch.set_num_threads(1)
        with OneThread(1):
            pass
        answers.append(torch.get_num_threads())

    before = torch.get_num_threads()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    assert answers == [1]


def _libraries() -> str:
    with open("/proc/self/maps") as maps:
        return maps.read()
