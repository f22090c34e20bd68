"""The model of docs/guide/browser.md: it forecasts a wave, and is exported as a stream for ONNX Runtime.

    python benchmarks/browser.py --out docs/guide/browser

The folder gets the model (config.json, model.safetensors), the stream (wave.onnx), and inputs with the outputs of
linrnn.Stream (wave.json).
"""

import argparse
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import linrnn

HORIZON = 24  # steps that are forecast
CHECKED = 100  # steps of wave.json
LENGTH, BATCH, STEPS, RATE, SEED = 300, 32, 1500, 4e-3, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    torch.manual_seed(SEED)
    model = trained()
    u = waves(BATCH)
    error, last = F.mse_loss(*predicted(model, u)).sqrt(), F.mse_loss(u[:, :-HORIZON, :1], u[:, HORIZON:, :1]).sqrt()
    print(f"root mean square error {error:.3f}; of the last value as the forecast {last:.3f}")
    model.save(folder)
    linrnn.export.onnx(model, folder / "wave.onnx", stream=True)
    stream = linrnn.Stream(model)
    inputs = [round(0.8 * math.sin(0.15 * k), 4) for k in range(CHECKED)]
    outputs = [stream.step(torch.tensor([[u_k]]))[0].double().numpy().round(7).tolist() for u_k in inputs]
    (folder / "wave.json").write_text(json.dumps({"inputs": inputs, "outputs": outputs}) + "\n")


def trained() -> linrnn.Model:
    config = linrnn.ModelConfig(
        channels=1, classes=HORIZON, d_model=24, d_state=24, depth=2, pooling="none",
        options={"r_min": 0.8, "r_max": 0.99, "max_phase": 0.6},
    )  # fmt: skip
    model = linrnn.Model(config)
    optimizer = torch.optim.AdamW(linrnn.param_groups(model, lr=RATE))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [RATE / 2, RATE], total_steps=STEPS)
    for step in range(STEPS):
        loss = F.mse_loss(*predicted(model, waves(BATCH)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.sqrt().item():.3f}")
    return model.eval()


def predicted(model: linrnn.Model, u: Tensor) -> tuple[Tensor, Tensor]:
    """The forecasts of all steps that have HORIZON steps after them, and these steps."""
    return model(u[:, :-HORIZON]), u[:, 1:, 0].unfold(1, HORIZON, 1)


def waves(batch: int) -> Tensor:
    """Waves of periods from 16 to 100 steps, (batch, length, 1), which change once, with a little noise."""
    first, second = wave(batch), wave(batch)
    change = torch.randint(LENGTH, (batch, 1))
    u = torch.where(torch.arange(LENGTH) < change, first, second)
    return (u + 0.02 * torch.randn_like(u)).unsqueeze(2)


def wave(batch: int) -> Tensor:
    period = torch.exp(torch.empty(batch, 1).uniform_(2.77, 4.6))
    phase, height = 6.283 * torch.rand(batch, 1), torch.empty(batch, 1).uniform_(0.2, 1)
    return height * torch.sin(6.283 * torch.arange(LENGTH) / period + phase)


if __name__ == "__main__":
    main()
