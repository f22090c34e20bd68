"""The memory in TorchRL: states in and out of rollouts, resets at the borders of episodes, a policy that learns."""

import importlib.util
import warnings
from typing import Any

import pytest
import torch

import linrnn
from tests.helpers import relative_error

if any(importlib.util.find_spec(name) is None for name in ("torchrl", "tensordict")):
    pytest.skip("TorchRL is not installed", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, at import
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.data import Bounded, Composite, Unbounded
    from torchrl.envs import EnvBase, InitTracker, TransformedEnv
    from torchrl.modules import set_recurrent_mode

    from linrnn.agents.torchrl import MemoryModule

pytestmark = pytest.mark.filterwarnings("ignore")


class Clock(EnvBase):  # type: ignore[misc]
    """Random observations; an episode of environment b ends after 3 + b steps."""

    def __init__(self, count: int = 2) -> None:
        super().__init__(batch_size=[count])
        self.observation_spec = Composite(observation=Unbounded((count, 4)), shape=(count,))
        self.action_spec = Bounded(-1, 1, (count, 1))
        self.reward_spec = Unbounded((count, 1))
        self.k = torch.zeros(count, dtype=torch.int64)

    def _reset(self, tensordict: Any = None, **_: Any) -> Any:
        at = None if tensordict is None else tensordict.get("_reset", None)
        self.k = torch.zeros_like(self.k) if at is None else self.k.masked_fill(at.squeeze(-1), 0)
        done = torch.zeros(*self.batch_size, 1, dtype=torch.bool)
        return TensorDict({"observation": torch.randn(*self.batch_size, 4), "done": done}, self.batch_size)

    def _step(self, tensordict: Any) -> Any:
        self.k = self.k + 1
        done = (self.k >= torch.arange(len(self.k)) + 3).unsqueeze(-1)
        found = {"observation": torch.randn(*self.batch_size, 4), "reward": torch.zeros(*self.batch_size, 1)}
        return TensorDict({**found, "done": done}, self.batch_size)

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            torch.manual_seed(seed)


def parts() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    memory = MemoryModule(linrnn.agents.Memory(4, 5, depth=2), in_key="observation", out_key="remembered")
    actor = TensorDictModule(torch.nn.Linear(4, 1), in_keys=["remembered"], out_keys=["action"])
    env = TransformedEnv(Clock(), InitTracker())
    env = env.append_transform(memory.make_tensordict_primer())
    return memory, TensorDictSequential(memory, actor), env


def test_the_whole_rollout_gives_what_its_steps_gave() -> None:
    _, policy, env = parts()
    with torch.no_grad():
        found = env.rollout(11, policy, break_when_any_done=False)
        assert found["is_init"].sum((1, 2)).tolist() == [4, 3]
        steps = found["remembered"].clone()
        with set_recurrent_mode(True):
            whole = policy(found.exclude("remembered", "action"))
    assert relative_error(whole["remembered"], steps) < 1e-5
    assert relative_error(whole["action"], found["action"]) < 1e-5


def test_a_later_part_goes_on_from_the_stored_state() -> None:
    memory, policy, env = parts()
    with torch.no_grad():
        found = env.rollout(11, policy, break_when_any_done=False)
        with set_recurrent_mode(True):
            part = policy(found[:, 5:].exclude("remembered", "action"))
    assert not found["is_init"][1, 5]  # inside of an episode
    assert found["memory"][1, 5].any()
    assert relative_error(part["remembered"], found["remembered"][:, 5:]) < 1e-5
    one = memory.memory.step(found["observation"][:, 1], found["memory"][:, 1])[1]
    assert relative_error(found["next", "memory"][:, 1], one) < 1e-5


def test_states_of_a_new_episode_are_fresh() -> None:
    memory, policy, env = parts()
    with torch.no_grad():
        found = env.rollout(11, policy, break_when_any_done=False)
    fresh = memory.memory.initial_state(1)
    for b, k in found["is_init"].squeeze(-1).nonzero().tolist():
        y, _ = memory.memory.step(found["observation"][b : b + 1, k], fresh)
        assert relative_error(found["remembered"][b : b + 1, k], y) < 1e-5


def test_keys_modes_and_errors() -> None:
    blocks = linrnn.agents.Memory(4, 5)
    memory = MemoryModule(blocks, in_key="a", out_key="b", state_key="c", default_recurrent_mode=True)
    assert memory.in_keys == ["a", "c", "is_init"]
    assert memory.out_keys == ["b", ("next", "c")]
    given = TensorDict({"a": torch.randn(2, 3, 7, 4), "is_init": torch.zeros(2, 3, 7, 1, dtype=torch.bool)}, [2, 3, 7])
    assert memory(given)["b"].shape == (2, 3, 7, 4)
    one = TensorDict({"a": torch.randn(4), "is_init": torch.ones(1, dtype=torch.bool)}, [])
    with pytest.raises(ValueError, match="tensordict: expected a batch dimension for the time, in recurrent mode"):
        memory(one)
    with set_recurrent_mode(False):
        assert memory(one)["next", "c"].shape == (1, 2, 5)
