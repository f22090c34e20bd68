"""The benchmarks on a GPU, at small sizes."""

import pytest
import torch

from linrnn.bench import baselines, length, measure, scan, stream, train
from tests.bench.helpers import tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # inside the compiler
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]
GPU = torch.device("cuda")


def test_a_copy_takes_longer_the_more_it_moves() -> None:
    small, large = (measure.copy(size, GPU) for size in (1 << 26, 1 << 30))
    times = measure.milliseconds({"small": small, "large": large}, 10, GPU)
    assert 8 < times["large"] / times["small"] < 32


def test_the_scan_is_compared_in_both_types() -> None:
    groups = list(scan.rows({"a": (4, 1024, 64)}, [torch.float32, torch.bfloat16], GPU, rounds=5))
    assert [len(rows) for rows in groups] == [4, 4]
    assert all(0 < row["share"] < 2 for rows in groups for row in rows)


def test_pytorchs_scan_is_compiled_and_computes_the_same() -> None:
    u = torch.randn(2, 100, 5, dtype=torch.complex64, device=GPU)
    lam = torch.full_like(u, 0.9)
    planes = [part.contiguous() for x in (lam, u) for part in (x.real, x.imag)]
    compiled = torch.compile(baselines.pytorch_scan_of_planes, fullgraph=True, dynamic=False)
    torch.testing.assert_close(torch.complex(*compiled(*planes)), baselines.pytorch_scan(lam, u)[0])
    ((forward, both),) = baselines.SCANS["PyTorch associative_scan"]([(2, 100, 5)], GPU)
    assert 0 < forward < both


def test_steps_of_a_stream_are_captured() -> None:
    sizes: dict[str, int] = {"H": 32, "N": 16, "depth": 2}
    for row in stream.gpu_rows((1, 8), (torch.float32, torch.bfloat16), GPU, **sizes, seconds=0.05, rnn=True):
        assert all(0 < row[name] < 1000 for name in ("us", "products_us", "nn.RNN", "nn.GRU", "nn.LSTM"))


def test_a_training_step_is_measured_beside_products_and_layers() -> None:
    row = train.row(tiny(depth=2, symbols=None), GPU, rnn=True, profile=True, seconds=0.1)
    assert row["steps/s"] > 0
    assert row["nn.GRU"] > 0
    assert 0 < row["profile"]["busy_us"] < 2e6 / row["steps/s"]


def test_memory_grows_with_the_length() -> None:
    rows = list(length.rows((1024, 8192), GPU, H=32, N=16, depth=2, seconds=0.1, compiled=False))
    assert rows[0]["peak_bytes"] < rows[1]["peak_bytes"]
