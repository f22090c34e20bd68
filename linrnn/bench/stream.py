"""One step at a time: a model and single layers, against PyTorch's layers, NumPy, ONNX Runtime and memory traffic."""

import dataclasses
import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from linrnn import export
from linrnn.bench import measure
from linrnn.bench.measure import Row
from linrnn.bench.train import PYTORCH, products_of_block, widths
from linrnn.cores import LRU
from linrnn.fast.capture import Captured
from linrnn.model import Model, ModelConfig
from linrnn.streaming import Stream
from linrnn.streaming.weights import fold_layer, fold_model

GPU_GOAL_US, GPU_GOAL_RATIO = 60, 2  # at batch 1; at batch 1,024, times reading weights and states
CPU_GOAL = 5000  # steps/s
STEPS = 20  # steps that are timed together on a CPU


def config(H: int, N: int, depth: int = 6) -> ModelConfig:
    return ModelConfig(channels=1, classes=10, d_model=H, d_state=N, depth=depth)


def gpu_rows(
    batches: Iterable[int],
    dtypes: Iterable[torch.dtype],
    device: torch.device,
    *,
    H: int = 512,
    N: int = 384,
    depth: int = 6,
    seconds: float = 0.5,
    rnn: bool = False,
) -> Iterator[Row]:
    """The time of one step of a stream, of the model's products alone, and of reading weights and states once.

    With `rnn` also the times of the same model with PyTorch's layers.
    """
    bandwidth = measure.copy_bandwidth(device)
    model = Model(config(H, N, depth)).to(device).eval()
    others = {name: Model(other).to(device).eval() for name, other in _baselines(H, N, depth).items()} if rnn else {}
    for dtype in dtypes:
        for batch in batches:
            inputs = torch.randn(batch, 1, device=device)
            us = _step_us(model, inputs, dtype, seconds)
            products = products_of_block(batch, widths(H, N) * depth, dtype, device, backward=False)
            replayed = Captured(products) if device.type == "cuda" else products
            yield {
                "name": f"model, batch {batch:,}",
                "batch": batch,
                "dtype": str(dtype).removeprefix("torch."),
                "H": H,
                "N": N,
                "depth": depth,
                "us": us,
                "products_us": 1e6 / measure.per_second(replayed, device, seconds),
                "copy_TB/s": bandwidth / 1e12,
                **compare(bytes_of(model, batch, dtype), bandwidth, us),
                **{name: _step_us(other, inputs, dtype, seconds) for name, other in others.items()},
            }


def _baselines(H: int, N: int, depth: int) -> dict[str, ModelConfig]:
    """The same model with PyTorch's layers for its cores."""
    return {f"nn.{kind}": dataclasses.replace(config(H, N, depth), core=core) for kind, core in PYTORCH.items()}


def _step_us(model: Model, inputs: Tensor, dtype: torch.dtype, seconds: float) -> float:
    """Microseconds of a step of a stream."""
    stream = Stream(model, len(inputs), dtype=dtype)
    return 1e6 / measure.per_second(partial(stream.step, inputs), inputs.device, seconds)


def compare(read: int, bandwidth: float, us: float) -> Row:
    """A row, compared with reading this number of bytes at this bandwidth."""
    read_us = 1e6 * read / bandwidth
    return {"bytes": read, "read_us": read_us, "ratio": us / read_us}


def bytes_of(model: Model, batch: int, dtype: torch.dtype) -> int:
    """The bytes of a model's folded weights, with matrices in this dtype, and of the states.

    A step must read each at least once; the GPU kernels store C·Λ and C·B in place of C and read somewhat more.
    """
    cores, total, steps = model.initial_state(batch)
    return sum(tensor.nbytes for tensor in (*fold_model(model, dtype), *cores, total, steps))


def cpu_rows(*, H: int = 128, N: int = 256, depth: int = 6, rounds: int = 300) -> list[Row]:
    """Steps a second on one thread, batch 1, float32: models that differ in their cores only, then single layers.

    The layers are measured at the same ratio of N to H, from twice H down to a quarter.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            layers = [row for size in (8, 4, 2, 1) for row in _layers(H * size // 4, N * size // 4, rounds)]
            return [*_models(H, N, depth, rounds), *layers]
    finally:
        torch.set_num_threads(threads)


def _models(H: int, N: int, depth: int, rounds: int) -> list[Row]:
    lru = Model(config(H, N, depth)).eval()
    candidates = {"LRU, linrnn.Stream": _steps_of_stream(Stream(lru), 1), "LRU, Model.step": _steps_of_model(lru)}
    for name, other in _baselines(H, N, depth).items():
        candidates[f"{name}, Model.step"] = _steps_of_model(Model(other).eval())
    return _rows(f"model, {depth} blocks", measure.milliseconds(candidates, rounds, of=min), H, N, CPU_GOAL)


def _layers(H: int, N: int, rounds: int) -> list[Row]:
    """PyTorch's layers return the N features of their state, without a map back to H, which is less work."""
    lru = LRU(H, N)
    u = torch.randn(1, H)
    candidates = {"LRU, linrnn.Stream": _steps_of_stream(Stream(lru), H)}
    candidates["LRU in NumPy"] = _steps(*in_numpy(lru, u))
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnxscript"):
        candidates["LRU in ONNX Runtime"] = _steps(*in_onnx_runtime(lru, u))
    candidates["LRU.step"] = _steps(lambda state: lru.step(u, state)[1], lru.initial_state(1))
    for kind in PYTORCH:
        layer = getattr(nn, kind)(H, N, batch_first=True)
        candidates[f"nn.{kind}"] = _steps(partial(_next_of, layer, u.unsqueeze(1)), None)
    cell = nn.GRUCell(H, N)
    candidates["nn.GRUCell"] = _steps(lambda state: cell(u, state), None)
    return _rows("layer", measure.milliseconds(candidates, rounds, of=min), H, N, None)


Stepper = tuple[Callable[[Any], Any], Any]  # from a state to the next, and the state before the first step


def in_numpy(lru: LRU, inputs: Tensor) -> Stepper:
    """The layer in five lines of NumPy: complex states that products read as pairs of real numbers, without a copy."""
    lam, B, C, D = (weight.numpy() for weight in fold_layer(lru, torch.float32))
    pairs = np.arange(len(lam)).reshape(2, -1).T.ravel()  # real and imaginary parts, interleaved
    lam, B, C = lam[pairs].view(np.complex64), B[pairs].copy(), C[:, pairs].copy()
    u = inputs[0].numpy()

    def step(state: Any) -> Any:
        x = lam * state[0]
        x += (B @ u).view(np.complex64)
        y = C @ x.view(np.float32)
        y += D * u
        return x, y

    return step, (np.zeros_like(lam), None)


def in_onnx_runtime(lru: LRU, inputs: Tensor) -> Stepper:
    """The exported step in ONNX Runtime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        export.onnx(lru, path, stream=True)
        session = onnxruntime.InferenceSession(path, options)
    u = inputs.numpy()

    def step(state: Any) -> Any:
        y, x = session.run(None, {"inputs": u, "state": state[0]})
        return x, y

    return step, (np.zeros((1, 2 * lru.d_state), dtype=np.float32), None)


def _rows(what: str, times: dict[str, float], H: int, N: int, goal: int | None) -> list[Row]:
    """Speeds, the ratio of the first to the others, and its goal."""
    first = next(iter(times))
    return [
        {
            "name": f"{what}: {name}",
            "H": H,
            "N": N,
            "steps/s": 1e3 * STEPS / ms,
            "first_ratio": ms / times[first],
            "goal": goal if name == first else None,
        }
        for name, ms in times.items()
    ]


def _next_of(layer: nn.Module, u: Tensor, state: Any) -> Any:
    return layer(u, state)[1]


def _steps_of_stream(stream: Stream, features: int) -> measure.Run:
    inputs = torch.randn(1, features)
    return _steps(lambda _: stream.step(inputs), None)


def _steps_of_model(model: Model) -> measure.Run:
    inputs = torch.randn(1, 1)
    return _steps(lambda state: model.step(inputs, state)[1], model.initial_state(1))


def _steps(step: Callable[[Any], Any], state: Any) -> measure.Run:
    """Consecutive steps, each from the state of the last; the state None is the layer's initial state."""

    def run() -> None:
        nonlocal state
        for _ in range(STEPS):
            state = step(state)

    return run
