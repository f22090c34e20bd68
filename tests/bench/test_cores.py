"""Every core beside the LRU: ratios, and failures that stop nothing."""

import dataclasses
from typing import Any

import pytest
import torch

from linrnn.bench import cores, measure, train
from linrnn.cores import CORES
from linrnn.paper import presets
from tests.bench.helpers import tiny


def test_every_core_is_measured_once() -> None:
    assert set(cores.names()) == {*presets.LADDER, *CORES} - {"rnn"}
    assert len(set(cores.names())) == len(cores.names())
    rows = list(cores.rows(tiny(symbols=None), ["rnn-linear", "gru", "lru", "gru"], measure.CPU, seconds=0.001))
    assert [row["name"] for row in rows] == ["lru", "rnn-linear", "gru"]
    for row in rows:
        assert "error" not in row, row
        assert row["lru_faster"] == pytest.approx(rows[0]["steps/s"] / row["steps/s"])
        assert row["peak_bytes"] is row["memory_ratio"] is None
        assert (row["recipe"], row["batch"], row["length"], row["H"], row["N"]) == ("tiny", 4, 12, 6, 4)


def test_what_fails_is_reported_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(case: Any, device: torch.device) -> Any:
        if case.recipe.model.core == "gru":
            raise torch.OutOfMemoryError("tried to allocate more")
        if case.recipe.model.core == "rnn":
            raise RuntimeError("no such kernel\nand more")
        return train.prepare(case, device)

    monkeypatch.setattr(cores, "prepare", fail)
    rows = list(cores.rows(tiny(), ["gru", "rnn-tanh", "lstm"], measure.CPU, seconds=0.001))
    assert [row.get("error") for row in rows] == [None, "out of memory", "RuntimeError: no such kernel", None]
    assert [row["lru_faster"] is None for row in rows] == [False, True, True, False]


def test_without_the_lru_there_is_no_ratio() -> None:
    row, ours = {"steps/s": 2.0, "peak_bytes": 30}, {"steps/s": 5.0, "peak_bytes": 10}
    assert cores.compare(row, ours) == {"lru_faster": 2.5, "memory_ratio": 3.0}
    assert cores.compare(row, {"error": "x"}) == {"lru_faster": None, "memory_ratio": None}


def test_each_case_has_the_core_and_the_ring_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def prepare(case: Any, device: torch.device) -> Any:
        seen.append(case.recipe.model)
        return lambda: None

    monkeypatch.setattr(cores, "prepare", prepare)
    case = tiny()
    case = dataclasses.replace(case, recipe=dataclasses.replace(case.recipe, task="text"))
    list(cores.rows(case, ["diag-ring"], measure.CPU, seconds=0.001))
    assert [model.options["r_min"] for model in seen] == [0.5, 0.0]
    assert [model.options.get("normalize", True) for model in seen] == [True, False]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # inside the compiler
def test_memory_on_a_gpu() -> None:
    rows = list(cores.rows(tiny(symbols=None), ["gru", "rnn-linear"], torch.device("cuda"), seconds=0.1))
    assert [row.get("error") for row in rows] == [None] * 3
    assert all(row["memory_ratio"] > 0 for row in rows)
