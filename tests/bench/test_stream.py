"""Streaming: what is timed is a stream, and what is read is counted once."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from linrnn.bench import measure, stream
from linrnn.cores import LRU
from linrnn.model import Model
from tests.helpers import relative_error

SMALL = {"H": 6, "N": 4, "depth": 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_bytes_are_those_of_weights_and_states(dtype: torch.dtype) -> None:
    H, N, depth, batch = 6, 4, 2, 3
    matrices = depth * (2 * N * H + H * 2 * N + 2 * H * H)  # B, C and the mixing
    vectors = depth * (2 * N + 2 * N + H + H + 2 * H)  # Λ and what the norm adds to B·u, to y (D too) and to the mixing
    ends = H + H + 10 * H + 10  # encoder and head
    states = depth * batch * 2 * N * 4 + batch * H * 8 + batch * 8  # of the cores, and the pooled sum and count
    model = Model(stream.config(H, N, depth)).eval()
    assert stream.bytes_of(model, batch, dtype) == dtype.itemsize * matrices + 4 * (vectors + ends) + states


def test_the_ratio_is_to_reading_at_that_bandwidth() -> None:
    row = stream.compare(8_000_000, bandwidth=4e12, us=5.0)
    assert row["read_us"] == pytest.approx(2.0)
    assert row["ratio"] == pytest.approx(2.5)


def test_rows_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "copy_bandwidth", lambda *_: 1e9)
    monkeypatch.setattr(measure, "per_second", lambda *_: 20_000.0)
    rows = list(stream.gpu_rows((1, 3), (torch.float32,), measure.CPU, H=6, N=4, depth=2))
    assert [row["batch"] for row in rows] == [1, 3]
    for row in rows:
        assert row["us"] == pytest.approx(50.0)
        assert row["ratio"] == pytest.approx(50 / (row["bytes"] / 1e9 * 1e6))
        assert "nn.GRU" not in row


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_stream_beside_those_of_other_layers(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a whole model, which differs in its core only."""
    cores = []

    def per_second(run: Any, *_: object) -> float:
        if isinstance(run, partial):  # a stream's step
            assert run().dtype == torch.float32
            cores.append(run.func.__self__.model.config.core)  # type: ignore[attr-defined]
        return 1e6 * len(cores)

    monkeypatch.setattr(measure, "copy_bandwidth", lambda *_: 1e9)
    monkeypatch.setattr(measure, "per_second", per_second)
    (row,) = stream.gpu_rows((3,), (dtype,), measure.CPU, H=6, N=4, depth=2, rnn=True)
    assert cores == ["lru", "rnn", "gru", "lstm"]
    assert [row[name] for name in ("us", "nn.RNN", "nn.GRU", "nn.LSTM")] == [1, 1 / 2, 1 / 3, 1 / 4]


def test_rows_of_steps_on_a_cpu_are_relative_to_the_lru(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "in_onnx_runtime", lambda *_: (lambda state: state, None))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    threads = torch.get_num_threads()
    rows = stream.cpu_rows(**SMALL, rounds=2)
    assert torch.get_num_threads() == threads
    others = ["nn.RNN", "nn.GRU", "nn.LSTM"]
    models = ["LRU, linrnn.Stream", "LRU, Model.step", *(f"{name}, Model.step" for name in others)]
    layers = ["LRU, linrnn.Stream", "LRU in NumPy", "LRU in ONNX Runtime", "LRU.step", *others, "nn.GRUCell"]
    names = [f"model, 2 blocks: {name}" for name in models]
    singles = [f"layer: {name}" for name in layers]
    assert [(row["name"], row["H"], row["N"]) for row in rows] == [
        *((name, 6, 4) for name in names),
        *((name, *sizes) for sizes in ((12, 8), (6, 4), (3, 2), (1, 1)) for name in singles),
    ]
    for row in rows:
        first = next(other for other in rows if other["H"] == row["H"] and other["name"][:5] == row["name"][:5])
        assert row["first_ratio"] == pytest.approx(first["steps/s"] / row["steps/s"])
        assert row["goal"] == (5000 if row["name"] == names[0] else None)
        assert 0 < row["steps/s"] < math.inf


def test_speed_is_that_of_all_steps_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "milliseconds", lambda candidates, *_, **__: dict.fromkeys(candidates, 4.0))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert {row["steps/s"] for row in stream.cpu_rows(**SMALL)} == {stream.STEPS / 4e-3}


@pytest.mark.parametrize("other", ["in_numpy", "in_onnx_runtime"])
@torch.no_grad()
def test_other_ways_to_step_give_the_same(other: str) -> None:
    if other == "in_onnx_runtime":
        pytest.importorskip("onnxruntime")
    lru, u = LRU(6, 4), torch.randn(1, 6)
    step, state = getattr(stream, other)(lru, u)
    for _ in range(5):
        state = step(state)
    y, _ = lru(u.expand(1, 5, 6))
    assert relative_error(torch.from_numpy(state[1]).view(1, 6), y[:, -1]) < 1e-5
