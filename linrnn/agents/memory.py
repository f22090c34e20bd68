"""Residual blocks as the memory of a policy: one step while acting, whole rollouts in parallel while learning."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn

from linrnn.config import Mixing
from linrnn.cores import CORES, check_options
from linrnn.model import Block, initialize
from linrnn.util.errors import check_choice, check_integer, check_tensor, shape, unknown, wrong_type, wrong_value
from linrnn.util.types import checked, repeated


class Memory(nn.Module):
    """Blocks (layer norm → core → mixing → skip) between an agent's observations and its actions.

    An episode starts where `is_init` is true: the earlier state has no effect. A rollout of many episodes is one call,
    with the same results as single steps.

    Args:
        d_model: H, the number of features of inputs and outputs.
        d_state: N, the state size of each core.
        depth: the number of blocks.
        core: the name of a core that takes `resets`, such as `lru`, `s5`, `rglru` or `mingru`.
        mixing: as in `linrnn.ModelConfig`.
        options: keyword arguments of the core.

    Attributes:
        state_shape: the shape of the state of one environment.

    Example:
        >>> memory = linrnn.agents.Memory(64, 64)
        >>> state = memory.initial_state(8)
        >>> y_k, state = memory.step(torch.randn(8, 64), state, is_init=torch.ones(8, dtype=torch.bool))
        >>> y, state = memory(torch.randn(8, 100, 64), state, is_init=torch.rand(8, 100) < 0.1)
    """

    state_shape: tuple[int, ...]

    @checked
    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        depth: int = 1,
        core: str = "lru",
        mixing: Mixing = "glu",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for name, size in {"d_model": d_model, "d_state": d_state, "depth": depth}.items():
            check_integer(name, size, 1)
        check_choice("mixing", mixing, get_args(Mixing))
        if core not in CORES:
            raise unknown("core", core, CORES)
        check_options(core, options or {})
        blocks = repeated(
            lambda: Block(CORES[core](d_model, d_state, **(options or {})), norm="layer", mixing=mixing), "depth", depth
        )
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        first = self.blocks[0].core
        if not first.takes_resets:
            raise wrong_value("core", "a core that takes resets, for the borders of episodes", repr(core))
        if first.bidirectional:
            raise wrong_value("options", "a causal core", "bidirectional=True")
        self.d_model = d_model
        self.state_shape = (depth, *first.state_shape)
        self.blocks.apply(initialize)  # type: ignore[attr-defined]

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, is_init: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Whole rollouts, computed in parallel.

        Args:
            x: (batch, length, d_model).
            state: (batch, *state_shape), the state before the first step; None: zero.
            is_init: bool (batch, length), true at the first step of each episode; None: nowhere.

        Returns:
            y: (batch, length, d_model), and the state after the last step.
        """
        self._check_inputs(x, is_init, "batch", "length")
        states = [None] * len(self.blocks) if state is None else self._checked(state, x).unbind(1)
        after = []
        for block, each in zip(self.blocks, states, strict=True):
            x, each = block(x, each, resets=is_init)
            after.append(each)
        return x, torch.stack(after, 1)

    def step(self, x: Tensor, state: Tensor, *, is_init: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step.

        Args:
            x: (batch, d_model).
            state: from `initial_state`, `forward` or the previous `step`.
            is_init: bool (batch,), true where an episode starts with this step; None: nowhere.

        Returns:
            y: (batch, d_model), and the next state.
        """
        self._check_inputs(x, is_init, "batch")
        state = self._checked(state, x)
        if is_init is not None:
            state = state.masked_fill(is_init.view(-1, *[1] * len(self.state_shape)), 0)
        after = []
        for block, each in zip(self.blocks, state.unbind(1), strict=True):
            x, each = block.step(x, each)
            after.append(each)
        return x, torch.stack(after, 1)

    def initial_state(self, batch: int) -> Tensor:
        """The zero state, (batch, *state_shape)."""
        return torch.stack([block.core.initial_state(batch) for block in self.blocks], 1)

    def _check_inputs(self, x: Tensor, is_init: Tensor | None, *dimensions: str) -> None:
        """Raise TypeError or ValueError unless `x` has these dimensions and features, and `is_init` the dimensions."""
        self.blocks[0].core._check_input("x", x, (*dimensions, "d_model"))
        if is_init is None:
            return
        check_tensor("is_init", is_init)
        if is_init.dtype != torch.bool:
            raise wrong_type("is_init", "torch.bool", is_init.dtype)
        if is_init.shape != x.shape[:-1]:
            names = str(dimensions).replace("'", "")
            raise wrong_value("is_init", f"shape {tuple(x.shape[:-1])} {names}", shape(is_init))
        if is_init.device != x.device:
            raise wrong_value("is_init", f"a tensor on {x.device}, as x", f"one on {is_init.device}")

    def _checked(self, state: Tensor, x: Tensor) -> Tensor:
        check_tensor("state", state)
        expected = (x.shape[0], *self.state_shape)
        if state.shape != expected:
            raise wrong_value("state", f"shape {expected}", shape(state))
        self.blocks[0].core._check_state(state[:, 0], x.shape[0])  # dtype and device
        return state
