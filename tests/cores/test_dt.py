"""Steps of different length: against loops in NumPy, and against the exact solutions of systems in continuous time."""

from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import torch

import linrnn
from linrnn.cores import CORES, Core
from tests.cores.systems import perturb
from tests.helpers import Array, array, eigenvalues, input_matrix, output_matrix, pieces, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
H, N, LENGTH = 3, 4, 11
MAKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lru": ("lru", {"max_phase": 3.0}),
    "lru-exp": ("lru", {"parameterization": "exp", "max_phase": 3.0}),
    "lru-real-imag": ("lru", {"parameterization": "real_imag", "normalize": False}),
    "lru-fixed": ("lru", {"normalize": "fixed"}),
    "s4d": ("s4d", {}),
    "s4d-bilinear": ("s4d", {"discretization": "bilinear"}),
    "s4d-decoupled": ("s4d", {"decoupled": True}),
    "s4d-first-order": ("s4d", {"input_multiplier": "first_order"}),
    "s5": ("s5", {}),
    "s5-bilinear": ("s5", {"discretization": "bilinear"}),
}
every_core = pytest.mark.parametrize("name", MAKERS)
every_direction = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def make(name: str, bidirectional: bool = False, **options: Any) -> Core:
    torch.manual_seed(0)
    kind, switches = MAKERS[name]
    cls: Any = CORES[kind]
    core: Core = cls(H, N, bidirectional=bidirectional, **switches, **(options or FLOAT64))
    if kind != "lru":
        perturb(core)
    return core


def times(*shape: int) -> torch.Tensor:
    """From 0.1 to 5."""
    return 0.1 * 50 ** torch.rand(*shape, **FLOAT64)


def some_state(core: Core, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, *core.state_shape, **FLOAT64)


def links(core: Any, dt: Array) -> tuple[Array, Array, Array, Array]:
    """For one sequence, from the raw parameters: λ_k and the input matrix of each step, C of both scans, and the λ
    between a step and the next."""
    p = {name: array(parameter) for name, parameter in core.named_parameters()}
    dt = dt[:, None]
    if type(core) is linrnn.LRU:
        logs = np.log(eigenvalues(core)) if "lam" in p else None
        if "nu_log" in p:
            logs = -np.exp(p["nu_log"]) + 1j * np.exp(p["theta_log"])
        elif "nu" in p:
            logs = -p["nu"] + 1j * p["theta"]
        lam = np.exp(logs * dt)
        B = input_matrix(core) if core.normalize != "fixed" else None
        if B is None:
            nu = np.exp(p["nu_log"])
            B = np.sqrt(1 - np.exp(-2 * nu))[:, None] * (p["B"][0] + 1j * p["B"][1])
        return lam, np.broadcast_to(B, (len(dt), *B.shape)), output_matrix(core), np.roll(lam, -1, 0)
    a, B, C = -np.exp(p["a_re_log"]) + 1j * p["a_im"], p["B"][0] + 1j * p["B"][1], None
    delta = np.exp(p["delta_log"])
    if type(core) is linrnn.S4D:  # a state for each feature and n, as a system of H·N states
        delta, eye = np.repeat(delta, N), np.eye(H)
        delta_B = np.repeat(np.exp(p["delta_B_log"]), N) if core.decoupled else delta
        a, B = a.ravel(), (B[:, :, None] * eye[:, None]).reshape(H * N, H)
        C = 2 * np.concatenate([((c[0] + 1j * c[1])[:, :, None] * eye[:, None]).reshape(H * N, H).T for c in p["C"]], 1)
        first_order = core.input_multiplier == "first_order"
    else:
        delta_B, first_order = delta, False
        C = 2 * (p["C"][:, 0] + 1j * p["C"][:, 1])
    step, step_B = delta * dt, delta_B * dt
    if core.discretization == "zoh":
        lam, gain = np.exp(step * a), (np.exp(step_B * a) - 1) / a
    else:
        lam, gain = (1 + step * a / 2) / (1 - step * a / 2), step_B / (1 - step_B * a / 2)
    return lam, (step_B if first_order else gain)[:, :, None] * B, C, lam


def loop(core: Core, u: Array, dt: Array, x: Array) -> tuple[Array, Array]:
    """The outputs and the final state of one sequence, one step after the other."""
    lam, B, C, lam_back = links(core, dt)
    v = np.einsum("knh,kh->kn", B, u)
    x = x[0].ravel() + 1j * x[1].ravel()
    back, states, later = np.zeros_like(x), [], []
    for k in range(len(u)):
        x = lam[k] * x + v[k]
        states.append(x)
    for k in reversed(range(len(u))):
        back = lam_back[k] * back + v[k]
        later.append(back)
    both = np.array(states).reshape(len(u), -1)
    if core.bidirectional:
        both = np.concatenate([both, np.array(later[::-1]).reshape(len(u), -1)], 1)
    return (both @ C.T).real + u * array(core.D), np.stack([x.real, x.imag]).reshape(core.state_shape)


@every_core
@every_direction
def test_loop_with_state_lengths_and_resets(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    u, dt, lengths = torch.randn(2, LENGTH, H, **FLOAT64), times(2, LENGTH), [LENGTH, 7]
    state = None if bidirectional else some_state(core)
    resets = torch.zeros(2, LENGTH, dtype=torch.bool)
    resets[0, [4, 5]] = resets[1, 3] = True
    dt[1, 7:] = float("nan")
    y, final = core(u, state, lengths=lengths, resets=resets, dt=dt)
    for b in range(2):
        x = np.zeros(core.state_shape) if state is None else array(state[b])
        for start, stop, fresh in pieces(lengths[b], resets, b):
            x = np.zeros(core.state_shape) if fresh else x
            expected, x = loop(core, array(u[b, start:stop]), array(dt[b, start:stop]), x)
            assert relative_error(y[b, start:stop], expected) < 1e-10
        assert not y[b, lengths[b] :].any()
        if final is not None:
            assert relative_error(final[b], x) < 1e-10


@every_core
@every_direction
def test_steps_of_length_1_are_the_plain_call(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    u, ones = torch.randn(2, LENGTH, H, **FLOAT64), torch.ones(2, LENGTH, **FLOAT64)
    state = None if bidirectional else some_state(core)
    for given in ({}, {"lengths": [LENGTH, 5]}):
        y, final = core(u, state, **given)
        y_dt, final_dt = core(u, state, dt=ones, **given)
        assert relative_error(y_dt, y) < 1e-12
        if final is not None:
            assert relative_error(final_dt, final) < 1e-12


@every_core
def test_step_equals_sequence(name: str) -> None:
    core = make(name)
    u, dt, state = torch.randn(2, LENGTH, H, **FLOAT64), times(2, LENGTH), some_state(core := make(name))
    y, final = core(u, state, dt=dt)
    for k in range(LENGTH):
        y_k, state = core.step(u[:, k], state, dt=dt[:, k])
        assert relative_error(y_k, y[:, k]) < 1e-12
    assert relative_error(state, final) < 1e-12


def test_lru_solves_its_system_between_impulses() -> None:
    """ẋ = (-ν + iθ)·x, with a jump of γ·B·u_k at each step, by SciPy's solver of differential equations."""
    core: Any = make("lru")
    u, dt = torch.randn(1, 5, H, **FLOAT64), times(1, 5)
    nu, theta = np.exp(array(core.nu_log)), np.exp(array(core.theta_log))

    def change(x: Array, _: float) -> Array:
        return np.concatenate([-nu * x[:N] - theta * x[N:], -nu * x[N:] + theta * x[:N]])

    x = np.zeros(2 * N)
    for k in range(5):
        x = scipy.integrate.odeint(change, x, [0.0, float(dt[0, k])], rtol=1e-11, atol=1e-13)[-1]
        jump = input_matrix(core) @ array(u[0, k])
        x = x + np.concatenate([jump.real, jump.imag])
    assert relative_error(core(u, dt=dt)[1].flatten(), x) < 1e-8


@pytest.mark.parametrize("name", ["s4d", "s5"])
@every_direction
def test_zero_order_hold_is_the_exact_solution(name: str, bidirectional: bool) -> None:
    """ẋ = Δ·(A·x + B·u) with u constant between steps, by SciPy's matrix exponential; from the end ẋ = -Δ·(A·x + B·u)
    on the way back through the same intervals."""
    core: Any = make(name, bidirectional)
    u, dt = torch.randn(1, 7, H, **FLOAT64), times(1, 7)
    p = {key: array(parameter) for key, parameter in core.named_parameters()}
    a, B, delta = -np.exp(p["a_re_log"]) + 1j * p["a_im"], p["B"][0] + 1j * p["B"][1], np.exp(p["delta_log"])
    if name == "s4d":
        delta, B = np.repeat(delta, N), (B[:, :, None] * np.eye(H)[:, None]).reshape(H * N, H)
        C = 2 * np.concatenate([scipy.linalg.block_diag(*(c[0] + 1j * c[1])) for c in p["C"]], 1)
    else:
        C = 2 * (p["C"][:, 0] + 1j * p["C"][:, 1])
    n = B.shape[0]
    system = np.zeros((n + H, n + H), dtype=complex)  # of the state and of the input, which is constant
    system[:n, :n], system[:n, n:] = np.diag(delta * a.ravel()), delta[:, None] * B

    def states(order: Any) -> Array:
        x, result = np.zeros(n, dtype=complex), np.zeros((7, n), dtype=complex)
        for k in order:
            x = (scipy.linalg.expm(system * float(dt[0, k])) @ np.concatenate([x, array(u[0, k])]))[:n]
            result[k] = x
        return result

    x = states(range(7))
    if bidirectional:
        x = np.concatenate([x, states(reversed(range(7)))], 1)
    expected = (x @ C.T).real + array(u[0]) * array(core.D)
    assert relative_error(core(u, dt=dt)[0][0], expected) < 1e-10


def test_a_bidirectional_lru_is_its_own_mirror_image() -> None:
    core: Any = make("lru", True)
    u, dt = torch.randn(1, LENGTH, H, **FLOAT64), times(1, LENGTH)
    y, _ = core(u, dt=dt)
    with torch.no_grad():
        core.C.copy_(core.C.roll(N, 2))
    mirrored, _ = core(u.flip(1), dt=dt.roll(-1, 1).flip(1))  # the time between two steps stays between them
    assert relative_error(mirrored.flip(1), y) < 1e-12


@every_core
@every_direction
def test_gradients(name: str, bidirectional: bool) -> None:
    core = make(name, bidirectional)
    u, dt = torch.randn(2, 5, H, requires_grad=True, **FLOAT64), times(2, 5).requires_grad_()
    names = [name for name, _ in core.named_parameters()]

    def call(u: torch.Tensor, dt: torch.Tensor, *parameters: torch.Tensor) -> Any:
        given = dict(zip(names, parameters, strict=True))
        y, final = torch.func.functional_call(core, given, (u,), {"dt": dt, "lengths": [5, 3]})
        return y if final is None else (y, final)

    assert torch.autograd.gradcheck(call, (u, dt, *core.parameters()), fast_mode=True)


@pytest.mark.parametrize("name", ["lru", "s4d", "s5"])
def test_compiled_and_autocast(name: str) -> None:
    core = make(name, dtype=torch.float32)
    u, dt = torch.randn(2, 20, H), times(2, 20).float()
    y, state = core(u, dt=dt)
    torch.compiler.reset()
    compiled, _ = torch.compile(core, fullgraph=True, backend="eager")(u, dt=dt)
    assert relative_error(compiled, y) < 1e-6
    with torch.autocast("cpu", torch.bfloat16):
        low, low_state = core(u.bfloat16(), dt=dt)
        assert low_state.dtype == torch.float32
        assert relative_error(low, y) < 5e-2
        assert relative_error(low_state, state) < 5e-2


@pytest.mark.parametrize(
    ("dt", "error", "message"),
    [
        (torch.ones(2, 4), ValueError, r"dt: expected shape \(2, 5\), a time for each step, got \(2, 4\)"),
        (torch.ones(2, 5, dtype=torch.int64), TypeError, "dt: expected floating point, got torch.int64"),
        (torch.zeros(2, 5), ValueError, "dt: expected times above 0, got 0 to 0"),
        (torch.full((2, 5), float("nan")), ValueError, "dt: expected times above 0, got nan to nan"),
        (1.0, TypeError, "dt: expected a tensor, got float"),
    ],
)
def test_errors(dt: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linrnn.LRU(3, 4)(torch.zeros(2, 5, 3), dt=dt)


@pytest.mark.parametrize("name", [name for name, core in CORES.items() if not core.takes_dt])
def test_other_cores_refuse_it(name: str) -> None:
    core: Any = CORES[name]
    core = core(3, 4)
    with pytest.raises(ValueError, match=f"dt: expected None with the core {type(core).__name__}"):
        core(torch.zeros(2, 5, 3), dt=torch.ones(2, 5))
    with pytest.raises(ValueError, match=f"dt: expected None with the core {type(core).__name__}"):
        core.step(torch.zeros(2, 3), core.initial_state(2), dt=torch.ones(2))
    with pytest.raises(ValueError, match="group: expected None with dt"):
        linrnn.LRU(3, 4)(torch.zeros(2, 5, 3), dt=torch.ones(2, 5), group=object())


@pytest.mark.parametrize("core", ["lru", "s4d", "s5"])
@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
def test_a_model_takes_steps_of_different_length(core: str, pooling: Any) -> None:
    torch.manual_seed(0)
    config = linrnn.ModelConfig(channels=2, classes=3, d_model=4, d_state=5, depth=2, core=core, pooling=pooling)
    model = linrnn.Model(config).double().eval()
    u, dt, lengths = torch.randn(2, LENGTH, 2, **FLOAT64), times(2, LENGTH), [LENGTH, 6]
    with torch.no_grad():
        whole = model(u, lengths=lengths, dt=dt)
        assert relative_error(model(u, lengths=lengths, dt=torch.ones_like(dt)), model(u, lengths=lengths)) < 1e-10
        assert relative_error(whole, model(u, lengths=lengths)) > 1e-3
        _, state = model.chunk(u[:, :4], dt=dt[:, :4])
        output, _ = model.chunk(u[:, 4:], state, lengths=[LENGTH - 4, 2], dt=dt[:, 4:])
        assert relative_error(output, whole[:, 4:] if pooling == "none" else whole) < 1e-10
        state = model.initial_state(1)
        for k in range(LENGTH):
            output, state = model.step(u[:1, k], state, dt=dt[:1, k])
        assert relative_error(output, whole[:1, -1] if pooling == "none" else whole[:1]) < 1e-10


def test_a_model_of_two_documents_refuses_it() -> None:
    model = linrnn.Model(linrnn.ModelConfig(channels=1, classes=2, d_model=2, d_state=2, depth=1, documents=2))
    with pytest.raises(ValueError, match=r"dt: expected None, or a model of one document, got \(1, 5\)"):
        model(torch.zeros(1, 2, 5, 1), dt=torch.ones(1, 5))
