"""Are the generated Pathfinder images learnable, and is the label visible in the paths only?

    python benchmarks/pathfinder.py [--size 32] [--train 100000] [--minutes 1] [--json results/pathfinder/32.json]
    python benchmarks/pathfinder.py --against ORIGINALS.npz [--json results/pathfinder/against-32.json]

A convolutional network that sees whole images must be well above chance on held-out ones; models that see only an
image's statistics (mean, deviation and histogram of its pixels, the ink in it) must stay at chance.

With `--against` a small convolutional network learns to tell the generated images from the original program's
(`images` in the file), in five folds: it must stay near chance on the images held out from both.
"""

import argparse
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from linrnn.tasks.generators import contours

TRAIN = {32: 100_000, 64: 10_000, 128: 100_000}  # images; images of 64×64 take long to make
BLOCK = 250  # images a thread makes at a time
WIDTH = 64
DILATIONS = (1, 2, 4, 8) * 3
BATCH = 256
RATE = 2e-3
FOLDS = 5
EPOCHS = {32: 15, 64: 15, 128: 20}  # to tell one program's images from the other's
Z = 2.576  # standard errors on either side of chance: 99%


def images(size: int, first: int, count: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Generated images (count, size, size) and their labels, made on all cores."""
    pixels, labels = np.empty((count, size, size), np.uint8), np.empty(count, np.int64)

    def fill(start: int) -> None:
        part = slice(start, start + BLOCK)
        contours.fill(contours.RULES[size], seed, first + start, pixels[part], labels[part])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, range(0, count, BLOCK)))
    return pixels, labels


class Block(nn.Module):
    """Two convolutions and a skip connection; at the start it is the identity."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation, bias=False)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)])
        nn.init.zeros_(self.norms[1].weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(inner)))


class Network(nn.Module):
    """From images (batch, size, size) in [-1, 1] to logits (batch, 2); each place of 32×32 sees the whole image."""

    def __init__(self, size: int) -> None:
        super().__init__()
        stem: list[nn.Module] = []
        for halvings in range(max(1, size.bit_length() - 6)):
            stride = 1 if size == 32 else 2
            stem += [nn.Conv2d(WIDTH if halvings else 1, WIDTH, 5, stride, padding=2, bias=False)]
            stem += [nn.BatchNorm2d(WIDTH), nn.ReLU()]
        self.features = nn.Sequential(*stem, *map(Block, DILATIONS))
        self.head = nn.Linear(2 * WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x[:, None].to(memory_format=torch.channels_last))
        logits: Tensor = self.head(torch.cat([y.mean(dim=(2, 3)), y.amax(dim=(2, 3))], dim=1))
        return logits


class Judge(nn.Sequential):
    """From images (batch, size, size) in [-1, 1] to logits (batch, 2): strided convolutions, then the mean."""

    def __init__(self, size: int) -> None:
        layers: list[nn.Module] = [nn.Unflatten(1, (1, size))]
        width = 1
        for stage in range(size.bit_length() - 3):
            wider = min(16 << stage, 128)
            layers += [nn.Conv2d(width, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            layers += [nn.Conv2d(wider, wider, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(width, 2))


@torch.no_grad()
def statistics(pixels: Tensor) -> Tensor:
    """Of each image, and of nothing in it by place: mean, deviation, ink (pixels that are not black), histogram."""
    parts = []
    for block in pixels.flatten(1).split(1000):
        grey = block.float() / 255
        histogram = [(block // 16 == level).float().mean(dim=1) for level in range(16)]
        parts.append(torch.stack([grey.mean(dim=1), grey.std(dim=1), (block > 0).float().mean(dim=1), *histogram], 1))
    return torch.cat(parts)


def train_network(size: int, pixels: Tensor, labels: Tensor, minutes: float) -> tuple[Network, dict[str, Any]]:
    """Train for a time, with the rate following it: warm-up over a tenth, then cosine to zero."""
    model = Network(size).to(pixels.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    generator = torch.Generator(pixels.device).manual_seed(0)
    start, steps, past, losses = time.perf_counter(), 0, 0.0, []
    while past < 1:
        rate = RATE * min(10 * past, 0.5 + 0.5 * math.cos(math.pi * past))
        for group in optimizer.param_groups:
            group["lr"] = rate
        chosen = torch.randint(len(labels), (min(BATCH, len(labels)),), device=pixels.device, generator=generator)
        with torch.autocast(pixels.device.type, torch.bfloat16):
            logits = model(turned(pixels[chosen], steps))
        loss = F.cross_entropy(logits.float(), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 20 == 0 or pixels.device.type == "cpu":
            losses.append(loss.item())  # waits for the GPU, so that the clock is right
            past = (time.perf_counter() - start) / (60 * minutes)
        if steps % 500 == 0:
            print(f"step {steps}: loss {np.mean(losses[-25:]):.3f}", flush=True)
    return model, {
        "steps": steps,
        "epochs": round(steps * BATCH / len(labels), 2),
        "loss": float(np.mean(losses[-25:])),
    }


def turned(pixels: Tensor, step: int) -> Tensor:
    """The images of a batch in [-1, 1], in one of the eight orientations, which keep the label."""
    batch = torch.rot90(pixels, step % 4, (1, 2))
    return (batch.flip(2) if step // 4 % 2 else batch).float() / 127.5 - 1


def judge(theirs: Tensor, ours: Tensor) -> dict[str, Any]:
    """Train a network on four fifths of both to distinguish them, and test it on the last fifth, for all five."""
    size, epochs = theirs.shape[1], EPOCHS[theirs.shape[1]]
    pixels = torch.cat([theirs, ours]).float() / 127.5 - 1
    labels = torch.arange(2, device=pixels.device).repeat_interleave(len(theirs))
    folds = torch.arange(len(theirs), device=pixels.device).repeat(2) % FOLDS
    training, right, of = 0, 0, 0
    for fold in range(FOLDS):
        model = Judge(size).to(pixels.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
        x, y = pixels[folds != fold], labels[folds != fold]
        batches = math.ceil(len(y) / 64)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * batches)
        for _ in range(epochs):
            for chosen in torch.randperm(len(y), device=y.device).chunk(batches):
                loss = F.cross_entropy(model(x[chosen]), y[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        held = score(model, pixels[folds == fold], labels[folds == fold])
        training += score(model, x, y)["right"]
        right, of = right + held["right"], of + held["of"]
        print(f"fold {fold + 1}: {held['right']} of {held['of']} held-out images", flush=True)
    return {
        "folds": FOLDS, "epochs": epochs, "accuracy_training": training / (of * (FOLDS - 1)), **chance(right, of),
    }  # fmt: skip


def train_statistics(features: Tensor, labels: Tensor, hidden: int) -> nn.Sequential:
    """Logistic regression, or with `hidden` units a small network, on standardized features."""
    layers = [nn.Linear(features.shape[1], 2)]
    if hidden:
        layers = [nn.Linear(features.shape[1], hidden), nn.GELU(), nn.Linear(hidden, 2)]  # type: ignore[list-item]
    model = nn.Sequential(*layers).to(features.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        loss = F.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def score(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
    """How many are right, of how many, and whether that is what guessing gives, within its 99% interval."""
    model.eval()
    right = sum(
        int((model(x).argmax(dim=1) == y).sum()) for x, y in zip(inputs.split(500), labels.split(500), strict=True)
    )
    return chance(right, len(labels))


def chance(right: int, of: int) -> dict[str, Any]:
    accuracy, error = right / of, Z * 0.5 / math.sqrt(of)
    interval = [round(0.5 - error, 4), round(0.5 + error, 4)]
    return {
        "right": right, "of": of, "accuracy": accuracy, "chance": interval,
        "at_chance": interval[0] <= accuracy <= interval[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32, choices=sorted(contours.RULES))
    parser.add_argument("--train", type=int, help="images to train on")
    parser.add_argument("--held-out", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=1.0, help="to train the network for")
    parser.add_argument("--against", type=Path, help="the original program's images")
    parser.add_argument("--seed", type=int, default=0, help="of the images and the network, with --against")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    results: dict[str, Any]
    if arguments.against is not None:
        with np.load(arguments.against) as file:
            theirs = torch.from_numpy(file["images"]).to(device)
        ours = torch.from_numpy(images(theirs.shape[1], 0, len(theirs), arguments.seed)[0]).to(device)
        results = {"size": theirs.shape[1], "seed": arguments.seed, "each": len(theirs), **judge(theirs, ours)}
        print(results)
        command = f"benchmarks/pathfinder.py --against {arguments.against.name} --seed {arguments.seed}"
        measure.record(arguments.json, command, results)
        return

    size, count = arguments.size, arguments.train or TRAIN[arguments.size]
    images(size, 0, 1)  # compiled
    start = time.perf_counter()
    pixels, labels = images(size, 0, count)
    held_pixels, held_labels = images(size, 1 << 32, arguments.held_out)
    seconds = time.perf_counter() - start
    made = count + arguments.held_out
    print(f"{made:,} images of {size}×{size} in {seconds:.1f} s on {os.cpu_count()} cores", flush=True)
    results = {"size": size, "train": count, "cores": os.cpu_count(), "images_per_s": made / seconds}

    x, y = torch.from_numpy(pixels).to(device), torch.from_numpy(labels).to(device)
    held_x, held_y = torch.from_numpy(held_pixels).to(device), torch.from_numpy(held_labels).to(device)
    features, held_features = statistics(x), statistics(held_x)
    mean, std = features.mean(dim=0), features.std(dim=0).clamp_min(1e-6)
    features, held_features = (features - mean) / std, (held_features - mean) / std
    for name, hidden in (("statistics, logistic", 0), ("statistics, network", 64)):
        model: nn.Module = train_statistics(features, y, hidden)
        results[name] = score(model, held_features, held_y)
        print(f"{name}: {results[name]}", flush=True)

    model, training = train_network(size, x, y, arguments.minutes)
    results["network"] = {**training, **score(model, held_x.float() / 127.5 - 1, held_y)}
    print(f"network: {results['network']}", flush=True)
    command = f"benchmarks/pathfinder.py --size {size} --train {count} --minutes {arguments.minutes}"
    measure.record(arguments.json, command, results)


if __name__ == "__main__":
    main()
