"""The LRU over chunks computes the same map as step by step, and so do its gradients."""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linrnn
from linrnn.cores import lru
from linrnn.cores.lru import Parameterization, prepare
from linrnn.fast.chunks import chunk_size, on_tensor_cores, two_products
from tests.helpers import Operations, gradients, oracle, relative_error

FLOAT64: dict[str, Any] = {"dtype": torch.float64}
LENGTHS = pytest.mark.parametrize("lengths", [None, torch.tensor([16, 7, 1, 0, 9])], ids=["whole", "padded"])
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def in_chunks(monkeypatch: pytest.MonkeyPatch, c: int, states: int = 1) -> None:
    """And with states up to a multiple, as on a GPU."""
    monkeypatch.setattr(linrnn.LRU, "_chunk", lambda self, u: c)
    monkeypatch.setattr(lru, "LARGE", 0)
    monkeypatch.setattr(lru, "state_padding", lambda n, dtype, device: -n % states)


@pytest.mark.parametrize(("c", "states"), [(2, 1), (4, 1), (16, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("parameterization", ["stable_exp", "real_imag"])
@DIRECTIONS
def test_the_papers_equation(
    c: int, states: int, parameterization: Parameterization, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_chunks(monkeypatch, c, states)
    layer = linrnn.LRU(
        3, 5, r_min=0.5, r_max=0.99, parameterization=parameterization, bidirectional=bidirectional, **FLOAT64
    )
    u = torch.randn(2, 48, 3, **FLOAT64)
    assert prepare([layer], u)[0].lam.shape[1] % states == 0
    y, state = layer(u)
    expected, final = oracle(layer, u)
    assert relative_error(y, expected) < 1e-12
    assert bidirectional or relative_error(state, final) < 1e-12


@pytest.mark.parametrize(("c", "states"), [(2, 1), (8, 1), (1, 4), (2, 4)])
@LENGTHS
@DIRECTIONS
def test_outputs_states_and_gradients_are_those_of_the_scan(
    c: int, states: int, lengths: Tensor | None, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = linrnn.LRU(6, 5, r_min=0.5, r_max=0.99, bidirectional=bidirectional, **FLOAT64)
    u = torch.randn(5, 16, 6, **FLOAT64, requires_grad=True)
    state = None if bidirectional else torch.randn(5, 2, 5, **FLOAT64, requires_grad=True)
    weights = torch.randn(5, 16, 6, **FLOAT64)
    results = []
    for size in ((1, 1), (c, states)):
        in_chunks(monkeypatch, *size)
        y, final = layer(u, state, lengths=lengths)
        loss = (weights * y).sum() + (0 if final is None else final.square().sum())
        inputs = [u] if state is None else [u, state]
        results.append([y, *([] if final is None else [final]), *gradients(layer, loss, *inputs).values()])
    for came, expected in zip(*results, strict=True):
        assert relative_error(came, expected) < 1e-11


@pytest.mark.parametrize(("c", "states"), [(1, 1), (2, 1), (4, 1), (16, 1), (1, 4), (2, 4)])
@DIRECTIONS
def test_folded_sequences_end_to_end(c: int, states: int, bidirectional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each starts from zero, at a multiple of 8 steps: so chunks of 16 become 8."""
    in_chunks(monkeypatch, c, states)
    layer = linrnn.LRU(6, 5, r_min=0.5, r_max=0.99, bidirectional=bidirectional, **FLOAT64)
    x, scale, shift = torch.randn(1, 48, 6, **FLOAT64), torch.randn(6, **FLOAT64), torch.randn(6, **FLOAT64)
    resets = torch.zeros(1, 48, dtype=torch.bool)
    resets[0, [0, 8, 40]] = True
    results = []
    for packed in (False, True):
        if packed:
            y, d, e = layer.folded(x, scale, shift, torch.tensor([0, 8, 40, 48]))
            y = (y + e).view(x.shape) + (0 if d is None else d * x)
        else:
            y, _ = layer(x * scale + shift, resets=resets)  # a scan of every step
        results.append([y, *gradients(layer, y.square().sum()).values()])
    for came, expected in zip(*results, strict=True):
        assert relative_error(came, expected) < 1e-11


@LENGTHS
@DIRECTIONS
@pytest.mark.parametrize("c", [1, 4])
def test_a_scale_and_a_shift_fold_into_the_weights(
    c: int, lengths: Tensor | None, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_chunks(monkeypatch, c)
    layer = linrnn.LRU(6, 5, r_min=0.5, r_max=0.99, bidirectional=bidirectional, **FLOAT64)
    x, scale, shift = torch.randn(5, 16, 6, **FLOAT64), torch.randn(6, **FLOAT64), torch.randn(6, **FLOAT64)
    y, d, e = layer.folded(x, scale, shift)
    expected, _ = layer(scale * x + shift)
    y = (y + e).view(x.shape) + (0 if d is None else d * x)
    assert relative_error(y, expected) < 1e-12


LAYERS = pytest.mark.parametrize(
    ("core", "options"),
    [
        (linrnn.LRU, {}),
        (linrnn.LRU, {"parameterization": "exp", "normalize": False}),
        (linrnn.LRU, {"parameterization": "real_imag"}),
        (linrnn.S5, {}),
    ],
    ids=["LRU", "exp", "real_imag", "S5"],
)


@LAYERS
@DIRECTIONS
@pytest.mark.parametrize("c", [1, 2, 4])
def test_weights_of_layers_made_together(
    core: type[linrnn.LRU], options: dict[str, Any], bidirectional: bool, c: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each layer are the definition's, and so are the gradients."""
    in_chunks(monkeypatch, c)
    layers = nn.ModuleList(core(3, 5, bidirectional=bidirectional, **options, **FLOAT64) for _ in range(3))
    made: list[Any] = prepare(list(layers), torch.randn(2, 16, 3, **FLOAT64))  # type: ignore[arg-type]
    came = [part for weights in made for part in (weights.lam, weights.of_u, weights.of_x)]
    expected = [part for layer in layers for part in defined(layer, c)]
    seeds = [torch.randn_like(part) for part in expected]
    D = torch.cat([layer.D for layer in layers])  # type: ignore[misc]  # in chunks only it is among the weights
    results = []
    for parts in (came, expected):
        loss = torch.stack([(seed * part).sum() for seed, part in zip(seeds, parts, strict=True)]).sum()
        loss = loss + D.sum()
        results.append([*parts, *gradients(layers, loss).values()])
    for one, other in zip(*results, strict=True):
        assert one.shape == other.shape
        assert relative_error(one, other) < 1e-12


def defined(layer: Any, c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Λ^c, and what multiplies the inputs and the states of a chunk, in complex numbers and block by block."""
    planes = layer._planes()
    lam, B, D, steps = torch.complex(*planes.lam), torch.complex(*planes.B), torch.diag(planes.D), range(c)
    Cs = torch.complex(*planes.C.movedim(1, 0)).conj().split(len(lam), dim=1)

    def K(i: int, j: int) -> Tensor:
        total = D if i == j else torch.zeros_like(D)
        for C, d in zip(Cs, (i - j, j - i), strict=False):
            total = total + (C * lam**d @ B).real if d >= 0 else total
        return total

    into = [torch.cat([lam[:, None] ** (c - 1 - j) * B for j in steps], dim=1)]
    into.append(torch.cat([lam[:, None] ** j * B for j in steps], dim=1))
    of_u = [torch.cat([matrix.real, matrix.imag]) for matrix in into[: len(Cs) if c > 1 else 1]]
    inside = [torch.cat([K(i, j) for j in steps], dim=1) for i in steps if c > 1]
    out = [torch.cat([Cs[0] * lam ** (i + 1 if c > 1 else 0) for i in steps])]
    out += [torch.cat([C * lam ** (c - i if c > 1 else 0) for i in steps]) for C in Cs[1:]]
    of_x = torch.cat([torch.cat([matrix.real, -matrix.imag], dim=1) for matrix in out], dim=1)
    return torch.view_as_real(lam**c).T, torch.cat([*of_u, *inside]), of_x


@pytest.mark.parametrize("c", [1, 4])
def test_weights_of_many_layers_take_as_many_operations_as_those_of_one(
    c: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_chunks(monkeypatch, c)
    names = []
    for depth in (1, 6):
        layers = [linrnn.LRU(3, 5) for _ in range(depth)]
        with Operations() as operations:
            prepare(layers, torch.randn(2, 16, 3))
        names.append(operations.names)
    assert names[0] == names[1]


FOLDED = pytest.mark.parametrize(("c", "bidirectional"), [(1, False), (4, False), (4, True)])


@FOLDED
def test_the_gradient_of_a_shift_takes_no_pass_over_the_states(
    c: int, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what goes into the states: the scan's own gradient brings it along."""
    in_chunks(monkeypatch, c)
    layer = linrnn.LRU(6, 5, bidirectional=bidirectional)
    x, scale, shift = torch.randn(5, 16, 6), torch.randn(6), torch.randn(6, requires_grad=True)
    with Operations() as operations:
        y, _, _ = layer.folded(x, scale, shift)
        torch.autograd.grad(y.sum(), shift)
    scans = [name for name in operations.names if "scan" in name]
    assert scans == ["linrnn.affine_scan.default", "linrnn.affine_scan_backward.default"]


@FOLDED
@pytest.mark.parametrize("offsets", [None, [0, 8, 40, 48]], ids=["batch", "end to end"])
def test_gradients_of_what_is_folded_in(
    c: int, bidirectional: bool, offsets: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_chunks(monkeypatch, c)
    layer = linrnn.LRU(6, 5, r_min=0.5, r_max=0.99, bidirectional=bidirectional, **FLOAT64)
    x, scale, shift = (torch.randn(*size, 6, **FLOAT64, requires_grad=True) for size in ((1, 48), (), ()))
    resets = torch.zeros(1, 48, dtype=torch.bool)
    resets[0, offsets[:-1] if offsets else [0]] = True
    seed = torch.randn(1, 48, 6, **FLOAT64)
    y, d, e = layer.folded(x, scale, shift, None if offsets is None else torch.tensor(offsets))
    y = (y + e).view(x.shape) + (0 if d is None else d * x)
    expected, _ = layer(scale * x + shift, resets=resets)  # a scan of every step
    came, truth = (gradients(layer, (seed * each).sum(), x, scale, shift) for each in (y, expected))
    for name, gradient in truth.items():
        assert relative_error(came[name], gradient) < 1e-11, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@FOLDED
def test_folded_under_autocast(
    dtype: torch.dtype, c: int, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs may be wider than the products."""
    in_chunks(monkeypatch, c)
    layer, x = linrnn.LRU(6, 5, r_max=0.9, bidirectional=bidirectional), torch.randn(2, 16, 6)
    scale, shift = torch.randn(6), torch.randn(6)
    with torch.autocast("cpu", torch.bfloat16):
        y, d, e = layer.folded(x.to(dtype), scale, shift)
    assert y.dtype == torch.bfloat16
    y = (y + e).view(x.shape) + (0 if d is None else d * x)
    expected, _ = copy.deepcopy(layer).double()((scale * x + shift).double())
    assert relative_error(y, expected) < 2e-2
    gradients(layer, y.sum())


def test_in_half_precision_without_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of chunks are made in the type of the state, and rounded then."""
    layer, u = linrnn.LRU(6, 5, r_max=0.9), torch.randn(2, 16, 6)
    expected, _ = copy.deepcopy(layer).double()(u.double())
    in_chunks(monkeypatch, 4)
    y, _ = layer.bfloat16()(u.bfloat16())
    assert y.dtype == torch.bfloat16
    assert relative_error(y, expected) < 2e-2


def test_the_size_of_a_chunk_divides_the_length_and_falls_with_the_width() -> None:
    sizes = [chunk_size(2048, H, 256) for H in (32, 64, 128, 256, 512, 2048)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert all(length % chunk_size(length, 64, 256) == 0 for length in range(1, 100))
    assert chunk_size(2047, 64, 256) == 1


@pytest.fixture
def tf32() -> Iterator[None]:
    """float32 is multiplied on tensor cores."""
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def _on_a_gpu(dtype: torch.dtype) -> Any:
    return SimpleNamespace(is_cuda=True, device=torch.device("cuda"), shape=(1, 64, 512), dtype=dtype)


def test_both_directions_go_over_chunks_up_to_more_width() -> None:
    """In half precision, as timed on a GPU (results/bench/chunks.json)."""
    sizes = {(H, N): [chunk_size(1024, H, N, both) for both in (False, True)] for H, N in ((256, 192), (512, 384))}
    assert sizes == {(256, 192): [1, 2], (512, 384): [1, 1]}
    u, single = _on_a_gpu(torch.bfloat16), _on_a_gpu(torch.float32)
    one, both = linrnn.LRU(256, 192), linrnn.LRU(256, 192, bidirectional=True)
    assert [layer._chunk(each) for layer in (one, both) for each in (u, single)] == [1, 1, 2, 1]


@pytest.mark.usefixtures("tf32")
def test_chunks_of_single_precision_where_tensor_cores_multiply_it() -> None:
    layers = [linrnn.LRU(256, 192, bidirectional=True), linrnn.LRU(64, 256)]
    types = torch.bfloat16, torch.float32, torch.float64
    assert [[layer._chunk(_on_a_gpu(dtype)) for dtype in types] for layer in layers] == [[2, 2, 1], [8, 8, 1]]


def test_the_compiler_sees_where_tensor_cores_multiply() -> None:
    compiled = torch.compile(lambda x: x + on_tensor_cores("cuda", torch.float32), backend="eager", fullgraph=True)
    came = []
    for precision in ("highest", "high", "highest"):
        torch.set_float32_matmul_precision(precision)
        came.append(int(compiled(torch.zeros(()))))
    assert came == [0, 1, 0]


def test_the_compiler_sees_the_size_of_a_chunk_where_lengths_change() -> None:
    def run(u: Tensor) -> Tensor:
        return u.sum() + chunk_size(len(u), 64, 256)

    compiled = torch.compile(run, backend="eager", dynamic=True, fullgraph=True)
    assert [int(compiled(torch.zeros(length))) for length in (2048, 2044, 2047)] == [8, 4, 1]


def test_on_the_cpu_and_in_single_precision_every_step_is_scanned() -> None:
    assert linrnn.LRU(8, 64)._chunk(torch.randn(1, 1024, 8)) == 1


@pytest.mark.parametrize("strict", [False, True])
@DIRECTIONS
def test_an_exported_layer_takes_any_length(bidirectional: bool, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from where it would go over chunks, which have to divide it; a compiled one goes over them."""
    monkeypatch.setattr(lru, "on_tensor_cores", lambda *_: True)
    monkeypatch.setattr(lru, "LARGE", 0)
    layer, u = linrnn.LRU(4, 8, bidirectional=bidirectional).eval(), torch.randn(2, 64, 4)
    assert layer._chunk(u) > 1
    graphs = []

    def compiler(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph.code)
        return graph.forward

    torch.compile(layer, backend=compiler, fullgraph=True)(u)
    assert "linrnn.two_products" in graphs[0]
    free = {"u": {1: torch.export.Dim("length")}}
    exported = torch.export.export(layer, (u,), dynamic_shapes=free, strict=strict).module()
    for length in (64, 7, 41):
        u = torch.randn(2, length, 4)
        assert relative_error(exported(u)[0], layer(u)[0]) < 1e-5


def test_a_small_layer_scans_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of chunks take about as many operations as a whole pass over every step."""
    monkeypatch.setattr(linrnn.LRU, "_chunk", lambda self, u: 2)
    layer, u = linrnn.LRU(4, 8), torch.randn(2, 6, 4)
    counts = []
    for large in (96, 97):
        monkeypatch.setattr(lru, "LARGE", large)
        with torch.no_grad(), Operations() as operations:
            layer(u)
        counts.append(len(operations.names))
    assert counts[0] > counts[1] + 30


@pytest.mark.gpu
@pytest.mark.parametrize(("H", "bidirectional"), [(128, False), (192, False), (128, True), (192, True), (256, True)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float32, 2e-3)], ids=str)
@pytest.mark.usefixtures("tf32")
def test_on_a_gpu(
    H: int, bidirectional: bool, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients against float64, with states that remember for a thousand steps."""
    monkeypatch.setattr(lru, "LARGE", 0)
    layer = linrnn.LRU(H, 256, r_min=0.9, r_max=0.999, bidirectional=bidirectional)
    u, weights = torch.randn(4, 2048, H), torch.randn(4, 2048, H)
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        layer = layer.cuda()
        assert layer._chunk(u.cuda()) > 1
        y, _ = layer(u.cuda())
    came = gradients(layer, (y.float() * weights.cuda()).sum())
    exact = linrnn.LRU(H, 256, bidirectional=bidirectional, **FLOAT64)
    exact.load_state_dict(layer.state_dict())
    expected, _ = exact(u.double())
    assert relative_error(y.cpu(), expected) < tolerance
    for name, gradient in gradients(exact, (expected * weights).sum()).items():
        assert relative_error(came[name].cpu(), gradient) < 3 * tolerance, name


def test_two_products() -> None:
    matrices = [torch.randn(*size, **FLOAT64, requires_grad=True) for size in ((5, 3), (4, 3), (5, 7), (4, 7))]
    x, A, z, B = matrices
    assert relative_error(two_products(*matrices), x @ A.T + z @ B.T) < 1e-14
    torch.library.opcheck(two_products, tuple(matrices))
    assert torch.autograd.gradcheck(two_products, matrices)
    assert torch.autograd.gradgradcheck(two_products, matrices)
