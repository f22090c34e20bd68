"""The interface of all recurrent layers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from linrnn.recurrence import backend, torch_func
from linrnn.recurrence.op import STORAGE, carry_dtype, check_device, check_resets
from linrnn.util.errors import check_integer, check_switch, check_tensor, shape, wrong_type, wrong_value
from linrnn.util.precision import autocast_dtype
from linrnn.util.threads import OneThread
from linrnn.util.types import allocating, check_device_is_here

Lengths = Tensor | Sequence[int] | Sequence[Sequence[int]]


class Core(nn.Module):
    """The base class of recurrent layers, which map (batch, length, H) to (batch, length, H).

    A subclass sets `state_shape`, implements `_sequence` (whole sequences) and `_step` (one step), and declares by the
    attributes below which arguments it supports. It may implement `eigenvalues`.

    Args:
        d_model: H, the number of features.
        d_state: N, the state size.
        bidirectional: a second recurrence runs from the end; allowed where `takes_both_directions` is true.

    Attributes:
        state_shape: the shape of the state of one sequence.
        recurrent_names: the names of the parameters with a smaller learning rate and without weight decay.
        takes_resets: whether `_sequence` has the argument `resets`.
        takes_group: whether `_sequence` has the argument `group`.
        takes_dt: whether `_sequence` and `_step` have the argument `dt`.
        takes_both_directions: whether `bidirectional=True` is implemented.
        compiles: whether `torch.compile` should trace the core; False for step-by-step kernels, which it would unroll.
    """

    D: nn.Parameter
    state_shape: tuple[int, ...]
    recurrent_names: tuple[str, ...] = ()
    takes_resets: bool = False
    takes_group: bool = False
    takes_dt: bool = False
    takes_both_directions: bool = False
    compiles: bool = True
    no_resets = " with the core {core.__class__.__name__}, which takes none"  # ends the error "resets: expected None"
    no_dt = " with the core {core.__class__.__name__}, whose steps have no length"
    no_group = ": the length of {core.__class__.__name__} cannot be split over processes"

    def __init__(self, d_model: int, d_state: int, bidirectional: bool = False) -> None:
        super().__init__()
        for name, size in (("d_model", d_model), ("d_state", d_state)):
            check_integer(name, size, 1)
        check_switch("bidirectional", bidirectional)
        if bidirectional and not self.takes_both_directions:
            causal = f"False with the core {type(self).__name__}, which is causal"
            raise wrong_value("bidirectional", causal, bidirectional)
        self.d_model = d_model
        self.d_state = d_state
        self.bidirectional = bidirectional

    def forward(
        self,
        u: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        resets: Tensor | None = None,
        group: "torch.distributed.ProcessGroup | None" = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The outputs for whole sequences, computed in parallel where the recurrence allows it.

        Args:
            u: (batch, length, d_model).
            state: (batch, *state_shape), the state before the first step, as returned by an earlier call; None: zero.
            lengths: the number of steps of each sequence before its padding, integers (batch,), as a tensor or a list;
                None: no padding. Padding is never read. Outputs at padding are zero, and the returned state is the
                state after the last step before the padding.
            resets: bool (batch, length), true where a new sequence starts.
            group: the processes over which the length is split, as in `linrnn.scan`. `u`, `resets` and `y` are then
                the part of this rank. The state is read on the first rank and returned on all ranks. Sum the gradients
                of parameters over the ranks. Excludes `lengths` and `dt`.
            dt: (batch, length), above 0: the time between the previous step and each step; 1 is the time between the
                steps of a regular sequence; None: 1.

        Returns:
            y: (batch, length, d_model), and the state after the last step (None if bidirectional).
        """
        self._check_input("u", u, ("batch", "length", "d_model"))
        if self.bidirectional and state is not None:
            none = "None: a bidirectional core has no state to continue from"
            raise wrong_value("state", none, type(state).__name__)
        if state is not None:
            self._check_state(state, u.shape[0])
        given: dict[str, Any] = {}
        if resets is not None:
            check_resets(resets, u)
            if not self.takes_resets:
                raise ValueError(f"resets: expected None{self.no_resets.format(core=self)}")
            given["resets"] = resets
        if group is not None:
            if not self.takes_group:
                raise ValueError(f"group: expected None{self.no_group.format(core=self)}")
            given["group"] = group
        if dt is not None and group is not None:
            raise ValueError("group: expected None with dt")
        if lengths is None:
            given |= self._given_dt(dt, u, None)
            return self._sequence(u, state, None, **given)
        if group is not None:
            raise ValueError("lengths: expected None with a group: a length that is split has no padding")
        lengths = check_lengths(lengths, u)
        valid = valid_mask(lengths, u.shape[1])
        given |= self._given_dt(dt, u, valid)
        valid = valid.unsqueeze(-1)
        y, state = self._sequence(u.masked_fill(~valid, 0), state, lengths, **given)
        return y.masked_fill(~valid, 0), state

    def step(self, u: Tensor, state: Tensor, *, dt: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step, in constant time and memory.

        Args:
            u: (batch, d_model).
            state: from `initial_state`, `forward` or the previous `step`.
            dt: (batch,), the time since the previous step, as in `forward`.

        Returns:
            y: (batch, d_model), and the next state.
        """
        if self.bidirectional:
            raise ValueError("step: expected a causal core, got a bidirectional one, which needs the whole sequence")
        self._check_input("u", u, ("batch", "d_model"))
        self._check_state(state, u.shape[0])
        given = self._given_dt(dt, u, None)
        with OneThread(u.numel()):
            return self._step(u, state, **given)

    def initial_state(self, batch: int) -> Tensor:
        """The zero state, (batch, *state_shape)."""
        if self.bidirectional:
            raise ValueError("initial_state: expected a causal core, got a bidirectional one, which keeps no state")
        check_integer("batch", batch, 0)
        with allocating({"batch": batch}):
            return self._zero_state(batch)

    def eigenvalues(self) -> Tensor | None:
        """The eigenvalues of the recurrence, a complex vector; None if the core does not define them."""
        return None

    def recurrent_parameters(self) -> list[nn.Parameter]:
        """The parameters that are trained with a smaller learning rate and without weight decay."""
        return [self.get_parameter(name) for name in self.recurrent_names]

    def extra_repr(self) -> str:
        return f"{self.d_model}, {self.d_state}" + (", bidirectional=True" if self.bidirectional else "")

    def _zero_state(self, batch: int) -> Tensor:
        parameter = next(self.parameters())
        return parameter.new_zeros(batch, *self.state_shape, dtype=carry_dtype(parameter.dtype))

    def _add_Du(self, y: Tensor, u: Tensor) -> Tensor:
        """y + D ⊙ u, in place: autograd does not need the result y of a matmul. Under vmap u may be larger than y."""
        u, D = u.to(y.dtype), self.D.to(y.dtype)
        return y + u * D if torch_func.active() else y.addcmul_(u, D)

    def _sequence(
        self, u: Tensor, state: Tensor | None, lengths: Tensor | None, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` on checked arguments: `u` is zero at padding, and `y` may hold anything there.

        The keyword arguments `resets`, `group` and `dt` are passed only if the caller gave them, and only to cores
        with `takes_resets`, `takes_group` or `takes_dt`.
        """
        raise NotImplementedError

    def _step(self, u: Tensor, state: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """`step` on checked arguments; `dt` is passed only if the caller gave it, and only with `takes_dt`."""
        raise NotImplementedError

    def _given_dt(self, dt: Tensor | None, u: Tensor, valid: Tensor | None) -> dict[str, Any]:
        """The checked argument `dt` in the dtype of states, 1 at padding; nothing for None."""
        if dt is None:
            return {}
        if not self.takes_dt:
            raise ValueError(f"dt: expected None{self.no_dt.format(core=self)}")
        check_tensor("dt", dt)
        if dt.shape != u.shape[:-1]:
            raise wrong_value("dt", f"shape {tuple(u.shape[:-1])}, a time for each step", shape(dt))
        if not dt.is_floating_point():
            raise wrong_type("dt", "floating point", dt.dtype)
        check_device("dt", dt, u)
        dt = dt if valid is None else dt.masked_fill(~valid, 1)
        if dt.numel() and backend.values_can_be_read(dt) and not bool(((dt > 0) & (dt < torch.inf)).all()):
            raise wrong_value("dt", "times above 0", f"{float(dt.min()):g} to {float(dt.max()):g}")
        return {"dt": dt.to(carry_dtype(next(self.parameters()).dtype))}

    def _require_causal(self, name: str) -> None:
        if self.bidirectional:
            raise ValueError(f"{name}: expected a causal {type(self).__name__}, got a bidirectional one")

    def _check_input(self, name: str, u: Tensor, dimensions: tuple[str, ...]) -> None:
        check_tensor(name, u)
        expected = f"shape ({', '.join(dimensions)}) with d_model = {self.d_model}"
        if u.dim() != len(dimensions) or u.shape[-1] != self.d_model:
            raise wrong_value(name, expected, shape(u))
        parameter = next(self.parameters())
        if u.device != parameter.device:
            raise wrong_value(name, f"a tensor on {parameter.device}, as the parameters", f"one on {u.device}")
        if u.dtype != parameter.dtype and not (u.is_floating_point() and autocast_dtype(u.device)):
            raise wrong_type(name, f"{parameter.dtype}, as the parameters", u.dtype)

    def _check_state(self, state: Tensor, batch: int) -> None:
        check_tensor("state", state)
        expected = (batch, *self.state_shape)
        if state.shape != expected:
            raise wrong_value("state", f"shape {expected}", shape(state))
        parameter = next(self.parameters())
        carry = carry_dtype(parameter.dtype)
        if state.dtype != carry:
            raise wrong_type("state", f"{carry}", state.dtype)
        if state.device != parameter.device:
            raise wrong_value("state", f"a tensor on {parameter.device}, as the parameters", f"one on {state.device}")


def empty_parameters(device: torch.device | str | None, dtype: torch.dtype | None) -> Callable[..., nn.Parameter]:
    """A function that takes a shape and returns an uninitialized parameter."""
    if dtype is not None and dtype not in STORAGE:
        raise wrong_value("dtype", "float32, bfloat16, float16 or float64, or None", dtype)
    check_device_is_here(device)
    return lambda *shape: nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))


def output_dtype(u: Tensor, carry: torch.dtype) -> torch.dtype:
    """The dtype a matmul of `u` returns: autocast's if enabled, else `u.dtype`."""
    autocast = autocast_dtype(u.device)
    return u.dtype if autocast is None or carry == torch.float64 else autocast


def lengths_tensor(lengths: Lengths) -> Tensor:
    """`lengths` as a tensor of integers; raises TypeError for anything else."""
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths, dtype=None if len(lengths) else torch.int64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise wrong_type("lengths", "a tensor or a list of integers", repr(lengths)) from error
    check_tensor("lengths", lengths)
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise wrong_type("lengths", "integers", lengths.dtype)
    return lengths.long()


def check_lengths(lengths: Lengths, u: Tensor) -> Tensor:
    """`lengths` as int64 on the device of u; raises if they do not fit the shape of u."""
    batch, length = u.shape[:2]
    lengths = lengths_tensor(lengths)
    if lengths.shape != (batch,):
        raise wrong_value("lengths", f"shape {(batch,)} (batch,)", shape(lengths))
    if lengths.is_meta and not u.is_meta:
        raise wrong_value("lengths", f"a tensor on {u.device}, as u", "one on meta")
    if batch and backend.values_can_be_read(lengths):
        low, high = (int(x) for x in lengths.aminmax())
        if low < 0 or high > length:
            raise wrong_value("lengths", f"from 0 to {length}, the length of u", low if low < 0 else high)
    return lengths.to(u.device, torch.int64)


def valid_mask(lengths: Tensor, length: int) -> Tensor:
    """Bool (batch, length): false at padding."""
    return torch.arange(length, device=lengths.device) < lengths.unsqueeze(1)


def last_valid(states: Tensor, lengths: Tensor, initial: Tensor) -> Tensor:
    """The state after the last step before the padding; the initial state for an empty sequence.

    Args:
        states: (batch, length, ...), the state after each step.
        lengths: int64 (batch,).
        initial: (batch, ...).
    """
    if states.shape[1] == 0:
        return initial.clone()
    index = (lengths - 1).clamp(min=0).view(-1, *[1] * (states.dim() - 1))
    last = states.gather(1, index.expand(-1, 1, *states.shape[2:])).squeeze(1).to(initial.dtype)
    empty = (lengths == 0).view(-1, *[1] * (initial.dim() - 1))
    return torch.where(empty, initial, last)
