"""`Memory` in policies of TorchRL; needs the extra `agents`."""

import torch
from torch import Tensor

from linrnn.agents.memory import Memory
from linrnn.util.errors import wrong_value
from linrnn.util.extras import needed

with needed("a memory in TorchRL"):
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from torchrl.data import Unbounded
    from torchrl.envs import TensorDictPrimer
    from torchrl.modules.tensordict_module.rnn import recurrent_mode


class MemoryModule(TensorDictModuleBase):
    """A `Memory` that reads and writes a TensorDict, as TorchRL's GRUModule does.

    While a policy acts, a call is one step: it reads the features, the state and `is_init`, and writes its output and
    the next state, which TorchRL carries to the next step. Within `torchrl.modules.set_recurrent_mode(True)` a call is
    a whole rollout, whose last batch dimension is the time: it starts from the stored state of the first step and
    writes only the outputs. Episodes may end anywhere in a rollout, without cuts or padding.

    Args:
        memory: the blocks.
        in_key: the features, (..., d_model).
        out_key: the outputs, (..., d_model).
        state_key: the state; the next state is ("next", state_key).
        default_recurrent_mode: whether calls are whole rollouts if `set_recurrent_mode` is not set.

    Environments need `InitTracker()`, which writes `is_init`, and the transform of `make_tensordict_primer`.

    Example:
        >>> memory = MemoryModule(linrnn.agents.Memory(64, 64), in_key="features", out_key="remembered")
        >>> env = env.append_transform(InitTracker()).append_transform(memory.make_tensordict_primer())
        >>> policy = TensorDictSequential(encoder, memory, actor)
    """

    def __init__(
        self,
        memory: Memory,
        *,
        in_key: str,
        out_key: str,
        state_key: str = "memory",
        default_recurrent_mode: bool = False,
    ) -> None:
        super().__init__()
        self.memory = memory
        self.in_keys = [in_key, state_key, "is_init"]
        self.out_keys = [out_key, ("next", state_key)]
        self.default_recurrent_mode = default_recurrent_mode

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        chosen = recurrent_mode()
        whole = self.default_recurrent_mode if chosen is None else chosen
        (in_key, state_key, init_key), (out_key, next_key) = self.in_keys, self.out_keys
        x, is_init = tensordict.get(in_key), tensordict.get(init_key)
        dims = tensordict.batch_dims
        if whole and dims == 0:
            raise wrong_value("tensordict", "a batch dimension for the time, in recurrent mode", "none")
        leading = tensordict.batch_size[: dims - 1] if whole else tensordict.batch_size
        count = leading.numel()
        x, is_init = (t.reshape(count, *t.shape[len(leading) :]) for t in (x, is_init))
        state = self._state(tensordict.get(state_key, None), count, len(leading), whole)
        if whole:
            y, _ = self.memory(x, state, is_init=is_init.squeeze(-1))
        else:
            y, state = self.memory.step(x, state, is_init=is_init.squeeze(-1))
            tensordict.set(next_key, state.reshape(*leading, *state.shape[1:]))
        tensordict.set(out_key, y.reshape(*leading, *y.shape[1:]))
        return tensordict

    def make_tensordict_primer(self) -> TensorDictPrimer:
        """The transform that adds the state to the TensorDicts of an environment, zero at its start."""
        return TensorDictPrimer({self.in_keys[1]: Unbounded(shape=self.memory.state_shape)}, expand_specs=True)

    def _state(self, state: Tensor | None, count: int, leading: int, whole: bool) -> Tensor:
        """(count, *state_shape), the state before the first step."""
        if state is None:
            return self.memory.initial_state(count)
        if whole:
            state = state.select(leading, 0)
        return state.reshape(count, *state.shape[leading:]).to(torch.promote_types(state.dtype, torch.float32))
