"""What must be true of every core, whatever it computes: each goes through the same tests."""

import copy
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from linrnn.cores import CORES, Core
from tests.helpers import gradients, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
H, N = 3, 4
LENGTHS = torch.tensor([5, 0, 9])
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in CORES},
    "rnn-relu": ("rnn", {"nonlinearity": "relu"}),
    "rnn-linear": ("rnn", {"nonlinearity": "linear"}),
    "lru-exp": ("lru", {"parameterization": "exp"}),
    "lru-real-imag": ("lru", {"parameterization": "real_imag", "normalize": False}),
}
REFUSE_RESETS = ("rnn", "rnn-relu", "gru", "lstm", "s4")
every_core = pytest.mark.parametrize("name", CORES)
every_variant = pytest.mark.parametrize("name", VARIANTS)
every_direction = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def make(name: str, bidirectional: bool = False, **options: Any) -> Core:
    core, switches = VARIANTS[name]
    cls: Any = CORES[core]
    made: Core = cls(H, N, **switches, bidirectional=bidirectional, **(options or FLOAT64))
    return made


def some_state(core: Core, batch: int) -> Tensor:
    """One that the core can be in: what it keeps after some steps."""
    state: Tensor = core(torch.randn(batch, 4, H, dtype=core.D.dtype))[1]
    return state.detach()


@every_variant
def test_step_equals_parallel(name: str) -> None:
    core = make(name)
    u, state = torch.randn(2, 11, H, **FLOAT64), some_state(make(name), 2)
    y, final = core(u, state)
    for k in range(11):
        y_k, state = core.step(u[:, k], state)
        assert relative_error(y_k, y[:, k]) < 1e-10
    assert final is not None
    assert relative_error(state, final) < 1e-10
    assert state.shape == (2, *core.state_shape) == core.initial_state(2).shape


@every_variant
@pytest.mark.parametrize("cut", [0, 1, 6, 11])
def test_splitting_equals_the_whole(name: str, cut: int) -> None:
    core = make(name)
    u, state = torch.randn(2, 11, H, **FLOAT64), some_state(core, 2)
    y, final = core(u, state)
    first, between = core(u[:, :cut], state)
    second, last = core(u[:, cut:], between)
    assert relative_error(torch.cat([first, second], dim=1), y) < 1e-10
    assert final is not None
    assert last is not None
    assert relative_error(last, final) < 1e-10


@every_variant
@every_direction
def test_padding_changes_nothing(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    state = None if bidirectional else some_state(core, 3)
    padding = (torch.arange(9) >= LENGTHS.unsqueeze(1)).unsqueeze(-1)
    u = torch.randn(3, 9, H, **FLOAT64).masked_fill(padding, float("nan")).requires_grad_()
    y, final = core(u, state, lengths=LENGTHS)
    assert not y.masked_select(padding).any()
    for i, length in enumerate(LENGTHS.tolist()):
        alone, end = core(u[i : i + 1, :length].detach(), None if state is None else state[i : i + 1])
        assert relative_error(y[i : i + 1, :length], alone) < 1e-10
        if not bidirectional:
            assert final is not None
            assert end is not None
            assert relative_error(final[i : i + 1], end) < 1e-10
    loss = y.square().sum() + (0 if final is None else final.square().sum())
    assert all(gradient.isfinite().all() for gradient in gradients(core, loss, u).values())
    assert u.grad is None or not u.grad.masked_select(padding).any()


@every_core
@every_direction
@pytest.mark.parametrize(("batch", "length"), [(0, 5), (2, 0), (0, 0)])
def test_nothing_comes_of_nothing(name: str, bidirectional: bool, batch: int, length: int) -> None:
    core = make(name, bidirectional)
    state = None if bidirectional else some_state(core, batch)
    for lengths in (None, torch.zeros(batch, dtype=torch.int64)):
        y, final = core(torch.zeros(batch, length, H, **FLOAT64), state, lengths=lengths)
        assert y.shape == (batch, length, H)
        if state is not None:
            assert final is not None
            assert torch.equal(final, state)


@every_variant
@every_direction
def test_gradients(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    u = torch.randn(2, 6, H, requires_grad=True, **FLOAT64)
    states = [] if bidirectional else [some_state(core, 2).requires_grad_()]
    names = [name for name, _ in core.named_parameters()]

    def call(u: Tensor, *rest: Tensor) -> Any:
        state, parameters = rest[: len(states)], dict(zip(names, rest[len(states) :], strict=True))
        y, final = torch.func.functional_call(core, parameters, (u, *state), {"lengths": torch.tensor([6, 4])})
        return y if final is None else (y, final)

    inputs = (u, *states, *core.parameters())
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


@every_core
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled_in_one_graph(name: str, backend: str) -> None:
    core = make(name)
    u, lengths = torch.randn(2, 6, H, **FLOAT64), torch.tensor([6, 4])
    torch.compiler.reset()
    results = []
    for run in (core, torch.compile(core, fullgraph=True, backend=backend)):
        y, _ = run(u, lengths=lengths)
        results.append([y, *gradients(core, y.square().sum()).values()])
    assert all(relative_error(a, b) < 1e-10 for a, b in zip(*results, strict=True))


@every_variant
def test_autocast(name: str) -> None:
    core = make(name, dtype=torch.float32)
    u = torch.randn(2, 20, H)
    y, state = core(u)
    assert state is not None
    with torch.autocast("cpu", torch.bfloat16):
        for inputs in (u, u.bfloat16()):  # the second is what another layer would give it
            low, low_state = core(inputs)
            first, _ = core.step(inputs[:, 0], core.initial_state(2))
            assert low_state is not None
            assert low_state.dtype == torch.float32
            assert relative_error(low, y) < 5e-2
            assert relative_error(low_state, state) < 5e-2
            assert relative_error(first, y[:, 0]) < 5e-2


@every_variant
@every_direction
def test_saved_loaded_and_copied(name: str, bidirectional: bool) -> None:
    core, other = make(name, bidirectional), make(name, bidirectional)
    u = torch.randn(2, 7, H, **FLOAT64)
    y, _ = core(u)
    other.load_state_dict(safetensors.torch.load(safetensors.torch.save(core.state_dict())))
    twin = copy.deepcopy(core)
    assert torch.equal(other(u)[0], y)
    assert torch.equal(twin(u)[0], y)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(1)
    assert torch.equal(twin(u)[0], y)


@every_variant
@every_direction
def test_resets_start_new_sequences_or_are_refused(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    u, resets = torch.randn(1, 9, H, **FLOAT64), torch.zeros(1, 9, dtype=torch.bool)
    resets[0, [4, 5]] = True
    if name in REFUSE_RESETS:
        with pytest.raises(ValueError, match="resets: expected None"):
            core(u, resets=resets)
        return
    y, _ = core(u, resets=resets)
    parts = [core(part)[0] for part in (u[:, :4], u[:, 4:5], u[:, 5:])]
    assert relative_error(y, torch.cat(parts, dim=1)) < 1e-10


@every_variant
def test_both_directions_are_one_and_its_mirror_image(name: str) -> None:
    """Where the two halves of what reads the states change places, a reversed sequence has reversed outputs."""
    causal, core = make(name), make(name, True)
    u = torch.randn(2, 9, H, **FLOAT64)
    y, _ = core(u)
    with torch.no_grad():
        for key, parameter in core.named_parameters():
            one = dict(causal.named_parameters())[key]
            if parameter.shape != one.shape:
                doubled = [i for i in range(one.dim()) if parameter.shape[i] == 2 * one.shape[i]]
                parameter.copy_(parameter.roll(one.shape[doubled[0]], doubled[0]))
    mirrored, _ = core(u.flip(1))
    assert relative_error(mirrored.flip(1), y) < 1e-10
    for use in (lambda: core.initial_state(2), lambda: core.step(u[:, 0], u), lambda: core(u, u)):
        with pytest.raises(ValueError, match="bidirectional"):
            use()


@every_variant
@every_direction
def test_recurrent_parameters(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    chosen = {id(parameter) for parameter in core.recurrent_parameters()}
    names = {key for key, parameter in core.named_parameters() if id(parameter) in chosen}
    assert len(names) == len(chosen) == len(core.recurrent_parameters())
    assert 0 < len(names) < len(dict(core.named_parameters()))
    assert not names & {"C", "D"}


@every_core
def test_eigenvalues_and_names(name: str) -> None:
    core = make(name)
    eigenvalues = core.eigenvalues()
    assert eigenvalues is not None
    assert eigenvalues.is_complex()
    assert eigenvalues.dim() == 1  # as a run records and draws them
    assert f"{type(core).__name__}({H}, {N}" in repr(core)
    assert "bidirectional=True" in repr(make(name, True))
    assert type(core).__doc__
