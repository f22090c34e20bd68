"""GRU and LSTM against PyTorch's own modules with the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import linrnn
from linrnn.cores.gated import Gated
from tests.helpers import array, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
MODULES: dict[type[Gated], Any] = {linrnn.GRU: nn.GRU, linrnn.LSTM: nn.LSTM}
both_kinds = pytest.mark.parametrize("kind", MODULES, ids=["gru", "lstm"])
every_direction = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def module_of(core: Gated) -> nn.RNNBase:
    """PyTorch's, with the core's weights in both directions."""
    module: nn.RNNBase = MODULES[type(core)](3, 4, batch_first=True, bidirectional=core.bidirectional, **FLOAT64)
    weights = {"weight_ih": core.B, "weight_hh": core.A, "bias_ih": core.b, "bias_hh": core.a}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(weights[name.partition("_l0")[0]])
    return module


def state_of(final: Any) -> Tensor:
    return torch.stack([part[0] for part in final], dim=1) if isinstance(final, tuple) else final[0]


@both_kinds
@every_direction
def test_pytorchs_module_with_the_same_weights(kind: type[Gated], bidirectional: bool) -> None:
    core = kind(3, 4, bidirectional=bidirectional, **FLOAT64)
    u, lengths = torch.randn(3, 9, 3, **FLOAT64), torch.tensor([4, 9, 1])
    packed = pack_padded_sequence(u, lengths, batch_first=True, enforce_sorted=False)
    outputs, final = module_of(core)(packed)
    h, _ = pad_packed_sequence(outputs, batch_first=True)
    real = (torch.arange(9) < lengths.unsqueeze(1)).unsqueeze(-1)
    y, state = core(u, lengths=lengths)
    assert relative_error(y, (h @ core.C.T + u * core.D) * real) < 1e-12
    if not bidirectional:
        assert state is not None
        assert relative_error(state, state_of(final)) < 1e-12


@both_kinds
def test_the_state_stands_still_over_long_padding(kind: type[Gated]) -> None:
    core = kind(3, 4)
    u, lengths = torch.randn(1, 2000, 3), torch.tensor([7])
    _, expected = core(u[:, :7])
    _, state = core(u, lengths=lengths)
    assert torch.equal(state, expected)


@both_kinds
def test_initialization_is_pytorchs(kind: type[Gated]) -> None:
    core, module = kind(50, 100), MODULES[kind](50, 100)
    for ours, theirs in ((core.A, module.weight_hh_l0), (core.B, module.weight_ih_l0), (core.b, module.bias_ih_l0)):
        assert ours.shape == theirs.shape
        assert abs(array(ours)).max() <= 0.1
        assert float(array(ours).var()) == pytest.approx(0.01 / 3, rel=0.1)
    assert float(array(core.C).var()) == pytest.approx(1 / 100, rel=0.1)


@both_kinds
def test_eigenvalues_say_how_small_states_fade(kind: type[Gated]) -> None:
    """Those of the matrix that steps apply to small differences from rest, without biases where rest stays at rest."""
    core = kind(3, 4, **FLOAT64)
    with torch.no_grad():
        core.a.zero_()
        core.b.zero_()
    size = core.initial_state(1).numel()
    small = 1e-7 * torch.eye(size, **FLOAT64).view(size, *core.state_shape)
    _, after = core.step(torch.zeros(size, 3, **FLOAT64), small)
    expected = torch.linalg.eigvals(after.flatten(1).T / 1e-7).abs().sort().values
    assert relative_error(core.eigenvalues().abs().sort().values, expected) < 1e-5


@both_kinds
def test_what_it_cannot_do_is_a_clear_error(kind: type[Gated]) -> None:
    core, u = kind(3, 4), torch.zeros(1, 5, 3)
    with pytest.raises(ValueError, match=f"resets: expected None with the core {kind.__name__}: its kernel has none"):
        core(u, resets=torch.zeros(1, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="group: expected None: the length of a gated RNN cannot be split"):
        core(u, group=object())


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore::DeprecationWarning")  # in the compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@both_kinds
def test_a_gpu_equals_the_cpu_compiled_or_not(kind: type[Gated]) -> None:
    core, u, lengths = kind(3, 4, **FLOAT64), torch.randn(3, 300, 3, **FLOAT64), torch.tensor([300, 7, 0])
    y, state = core(u, lengths=lengths)
    core.float().cuda()
    for run in (core, torch.compile(core)):
        came, came_state = run(u.float().cuda(), lengths=lengths.cuda())
        assert relative_error(came.cpu(), y) < 1e-2  # TensorFloat32
        assert relative_error(came_state.cpu(), state) < 1e-2
