"""Programs of torch.export and AOTInductor, in a process where linrnn cannot be imported."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import linrnn
from linrnn.export.layers import ChunkedSSM
from linrnn.export.plain_scan import CHUNK, scan
from tests.export.helpers import expected, inputs, model
from tests.helpers import relative_error

ALONE = """
import sys
sys.modules["linrnn"] = None
import torch
path, given, out = sys.argv[1:]
if "aot" in path:
    module = torch._inductor.aoti_load_package(path)
else:
    module = torch.export.load(path).module()
came = []
with torch.no_grad():
    for arguments in torch.load(given):
        if len(arguments) == 3:  # a stream
            u, state, _ = arguments
            for u_k in u.unbind(1):
                output, state = module(u_k.contiguous(), state)
            came.append(output)
        else:
            came.append(module(*arguments))
torch.save(came, out)
"""


def alone(tmp_path: Path, path: Path, cases: list[tuple[Any, ...]]) -> list[torch.Tensor]:
    """What a program gives in a process without linrnn."""
    torch.save(cases, tmp_path / "given")
    command = [sys.executable, "-W", "ignore", "-c", ALONE, str(path), str(tmp_path / "given"), str(tmp_path / "came")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    came: list[torch.Tensor] = torch.load(tmp_path / "came")
    return came


WHOLE = [
    pytest.param({"core": "lru", "depth": 1}, id="lru"),
    pytest.param({"core": "s4d", "options": {"bidirectional": True}}, id="s4d-both-ways", marks=pytest.mark.slow),
    pytest.param({"core": "s5", "vocabulary": 7, "norm": "layer"}, id="s5-tokens", marks=pytest.mark.slow),
]
COMPILED = [pytest.param(False, id="exported"), pytest.param(True, id="compiled", marks=pytest.mark.slow)]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("config", WHOLE)
def test_whole_sequences(tmp_path: Path, compiled: bool, config: dict[str, Any]) -> None:
    ours, path = model(**config), tmp_path / ("aot.pt2" if compiled else "model.pt2")
    linrnn.export.torch(ours, path, lengths=True, compiled=compiled)
    assert compiled or b"forms.py" not in path.read_bytes()  # lines of code with the names of their folders
    cases = [(inputs(ours, b, n), torch.randint(1, n + 1, (b,))) for b, n in ((1, 1), (3, 2), (2, CHUNK), (2, 3000))]
    for came, (u, lengths) in zip(alone(tmp_path, path, cases), cases, strict=True):
        wanted = copy.deepcopy(ours).double()(u if ours.config.vocabulary else u.double(), lengths=lengths).float()
        rounding = relative_error(ours(u, lengths=lengths), wanted)  # of the model itself, in single precision
        assert relative_error(came, wanted) < max(1e-5, 2 * rounding)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "config",
    [{"core": "lru"}, pytest.param({"core": "s4d", "norm": "layer", "pooling": "last"}, marks=pytest.mark.slow)],
)
def test_a_stream(tmp_path: Path, compiled: bool, config: dict[str, Any]) -> None:
    ours, path = model(**config), tmp_path / ("aot.pt2" if compiled else "model.pt2")
    linrnn.export.torch(ours, path, stream=True, compiled=compiled)
    program = linrnn.export.forms.Step(linrnn.export.source.opened(ours))
    u = inputs(ours, 3, 20)
    (came,) = alone(tmp_path, path, [(u, torch.zeros(3, program.size), None)])
    assert relative_error(came, expected(ours, u)[:, -1]) < 1e-5


@pytest.mark.slow
def test_our_operators_stay_on_request(tmp_path: Path) -> None:
    ours = model(depth=1)
    linrnn.export.torch(ours, tmp_path / "model.pt2", operators=True)
    program = torch.export.load(tmp_path / "model.pt2")
    assert any("linrnn.scan" in str(node.target) for node in program.graph.nodes)
    u = inputs(ours, 2, 50)
    assert relative_error(program.module()(u), ours(u)) < 1e-6


@pytest.mark.parametrize(("options", "message"), [({"compiled": True, "operators": True}, "operators: expected false")])
def test_what_does_not_go_together(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linrnn.export.torch(model(), tmp_path / "model.pt2", **options)


def test_what_pytorch_cannot_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("vr must not be None\nlines")

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fails)
    with pytest.raises(ValueError, match="compiled: expected false for this model, which PyTorch cannot compile, got"):
        linrnn.export.torch(model(depth=1), tmp_path / "model.pt2", stream=True, compiled=True)
    assert not list(tmp_path.iterdir())


def test_the_name_ends_in_pt2(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path: expected a name that ends in \.pt2"):
        linrnn.export.torch(model(), tmp_path / "model.pth")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK**2 + 5])
def test_the_scan_in_plain_operations(length: int, reverse: bool) -> None:
    u, initial = torch.randn(2, length, 2, 5, dtype=torch.float64), torch.randn(2, 2, 5, dtype=torch.float64)
    radius, angle = torch.tensor([0.0, 0.5, 0.9, 0.999, 1.0]).double(), torch.rand(5, dtype=torch.float64) * 6
    lam = torch.stack([radius * angle.cos(), radius * angle.sin()])
    x, states = torch.complex(*initial.unbind(1)), []
    for k in reversed(range(length)) if reverse else range(length):
        x = torch.complex(*lam) * x + torch.complex(*u[:, k].unbind(1))
        states.append(torch.stack([x.real, x.imag], dim=1))
    came, final = scan(u, lam, initial, None, reverse)
    assert relative_error(came, torch.stack(states[::-1] if reverse else states, dim=1)) < 1e-11
    assert relative_error(final, states[-1]) < 1e-11


def test_the_scan_in_plain_operations_has_no_resets() -> None:
    u, lam = torch.zeros(1, 2, 2, 3), torch.zeros(2, 3)
    with pytest.raises(NotImplementedError, match="expected no resets"):
        scan(u, lam, torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool), False)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("core", [linrnn.S4D, linrnn.DLR])
def test_convolutions_in_chunks(core: type[linrnn.S4D], bidirectional: bool) -> None:
    layer = core(4, 3, bidirectional=bidirectional).double()
    chunked = ChunkedSSM(layer)
    for length in (1, 31, 32, 33, 300):
        u, lengths = torch.randn(3, length, 4, dtype=torch.float64), torch.randint(0, length + 1, (3,))
        for given in (None, lengths):
            assert relative_error(chunked(u, lengths=given)[0], layer(u, lengths=given)[0]) < 1e-10
