"""An agent that must remember: name the symbol of some steps ago. A policy with a memory against one without.

    python benchmarks/agents.py --out results/agents/repeat.json --picture results/agents/repeat.png

As in POPGym's RepeatPrevious: each step shows one of four symbols at random, and the action that names the symbol of
DELAY steps ago is rewarded. A policy without memory is right in one of four cases. Needs TorchRL (extra `agents`).
"""

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import record
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TorchRL's own, at import
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.data import Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase, InitTracker, TransformedEnv
    from torchrl.modules import GRUModule, set_recurrent_mode

    import linrnn
    from linrnn.agents.torchrl import MemoryModule

SYMBOLS, DELAY, EPISODE = 4, 8, 48
ENVIRONMENTS, EPISODES, UPDATES, RATE, ENTROPY = 32, 2, 100, 5e-3, 0.01
WIDTH, SEEDS = 32, 3
POLICIES = ("none", "lru", "rglru", "gru")


class RepeatPrevious(EnvBase):  # type: ignore[misc]
    """Shows a random symbol at each step; rewards the action that names the symbol of DELAY steps ago."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(batch_size=[count])
        self.observation_spec = Composite(observation=Unbounded((count, SYMBOLS)), shape=(count,))
        self.action_spec = Categorical(SYMBOLS, shape=(count,))
        self.reward_spec = Unbounded((count, 1))
        self.generator = torch.Generator().manual_seed(seed)
        self.shown = torch.zeros(count, EPISODE + 1, dtype=torch.int64)
        self.k = torch.zeros(count, dtype=torch.int64)

    def _reset(self, tensordict: Any = None, **_: Any) -> Any:
        at = None if tensordict is None else tensordict.get("_reset", None)
        again = torch.ones(self.batch_size, dtype=torch.bool) if at is None else at.squeeze(-1)
        new = torch.randint(SYMBOLS, self.shown.shape, generator=self.generator)
        self.shown = torch.where(again.unsqueeze(1), new, self.shown)
        self.k = self.k.masked_fill(again, 0)
        return TensorDict({"observation": self._observation(), "done": self._done()}, self.batch_size)

    def _step(self, tensordict: Any) -> Any:
        asked = self.shown.gather(1, (self.k - DELAY).clamp(min=0).unsqueeze(1)).squeeze(1)
        reward = ((tensordict["action"] == asked) & (self.k >= DELAY)).float().unsqueeze(-1)
        self.k = self.k + 1
        found = {"observation": self._observation(), "reward": reward, "done": self._done()}
        return TensorDict(found, self.batch_size)

    def _observation(self) -> Tensor:
        return F.one_hot(self.shown.gather(1, self.k.unsqueeze(1)).squeeze(1), SYMBOLS).float()

    def _done(self) -> Tensor:
        return (self.k >= EPISODE).unsqueeze(-1)

    def _set_seed(self, seed: int | None) -> None: ...


class Sample(nn.Module):
    """The logits (..., SYMBOLS) to actions at random."""

    def forward(self, logits: Tensor) -> Tensor:
        action: Tensor = torch.distributions.Categorical(logits=logits).sample()
        return action


def parts(name: str) -> tuple[Any, Any, Any]:
    """A policy, its part up to the logits and the expected reward, and its memory."""
    encoder = TensorDictModule(nn.Linear(SYMBOLS, WIDTH), in_keys=["observation"], out_keys=["features"])
    memory: Any
    if name == "none":
        layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        memory = TensorDictModule(layers, in_keys=["features"], out_keys=["remembered"])
    elif name == "gru":  # TorchRL's own module of PyTorch's GRU
        keys = {"in_keys": ["features", "memory"], "out_keys": ["remembered", ("next", "memory")]}
        memory = GRUModule(WIDTH, WIDTH, **keys)
    else:
        blocks = linrnn.agents.Memory(WIDTH, WIDTH, core=name, options={"r_min": 0.8} if name == "lru" else {})
        memory = MemoryModule(blocks, in_key="features", out_key="remembered")
    head = TensorDictModule(nn.Linear(WIDTH, SYMBOLS), in_keys=["remembered"], out_keys=["logits"])
    value = TensorDictModule(nn.Linear(WIDTH, 1), in_keys=["remembered"], out_keys=["value"])
    judge = TensorDictSequential(encoder, memory, head, value)
    policy = TensorDictSequential(encoder, memory, head, TensorDictModule(Sample(), ["logits"], ["action"]))
    return policy, judge, memory


def train(name: str, seed: int, updates: int = UPDATES) -> tuple[list[float], float]:
    """The part of right actions in each rollout, and the seconds of the training."""
    torch.manual_seed(seed)
    policy, judge, memory = parts(name)
    env = TransformedEnv(RepeatPrevious(ENVIRONMENTS, seed), InitTracker())
    if name != "none":
        env = env.append_transform(memory.make_tensordict_primer())
    optimizer = torch.optim.AdamW(linrnn.param_groups(judge, lr=RATE, weight_decay=0.0))
    right, start = [], time.perf_counter()
    for _ in range(updates):
        with torch.no_grad():  # acting: one step after the other
            found = env.rollout(EPISODES * EPISODE, policy, break_when_any_done=False)
        rewards = found["next", "reward"].squeeze(-1)
        with set_recurrent_mode(True):  # learning: whole rollouts in one call
            judged = judge(found.select("observation", "is_init", "memory", strict=False))
        choices = torch.distributions.Categorical(logits=judged["logits"])
        surplus = rewards - judged["value"].squeeze(-1)  # an action matters for its own reward only
        loss = -(choices.log_prob(found["action"]) * surplus.detach()).mean()
        loss = loss + 0.5 * surplus.square().mean() - ENTROPY * choices.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append(float(rewards.sum()) / (ENVIRONMENTS * EPISODES * (EPISODE - DELAY)))
    return right, time.perf_counter() - start


def draw(curves: dict[str, list[list[float]]], path: Path) -> None:
    from linrnn.util import style  # imports Matplotlib

    figure, ((axis,),) = style.subplots(1, 1, width=5, height=3)
    colours = (style.GREY, style.BLUE, style.GREEN, style.ORANGE)
    for (name, runs), colour in zip(curves.items(), colours, strict=False):
        for run in runs:
            label = {"none": "no memory", "gru": "nn.GRU"}.get(name, name) if run is runs[0] else None
            axis.plot([100 * part for part in run], color=colour, lw=1, label=label)
    axis.set(xlabel="update", ylabel="right actions, %", ylim=(0, 102))
    axis.legend(frameon=False)
    style.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the record, JSON")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    curves: dict[str, list[list[float]]] = {}
    results: dict[str, Any] = {"delay": DELAY, "updates": UPDATES}
    for name in POLICIES:
        runs = [train(name, seed) for seed in range(SEEDS)]
        curves[name] = [right for right, _ in runs]
        lasts = [statistics.mean(right[-10:]) for right, _ in runs]
        results[name] = {"right": lasts, "seconds": [round(seconds, 1) for _, seconds in runs]}
        print(name, results[name], flush=True)
    if arguments.picture:
        arguments.picture.parent.mkdir(parents=True, exist_ok=True)
        draw(curves, arguments.picture)
    record(arguments.out, "python benchmarks/agents.py", {**results, "curves": curves})


if __name__ == "__main__":
    main()
