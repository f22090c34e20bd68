"""Which backend a device has, with faked devices."""

import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch

from linrnn.recurrence import backend

CPU, GPU, MPS, XPU = (torch.device(name) for name in ("cpu", "cuda", "mps", "xpu"))
NO_NUMBA = """
import sys, warnings
sys.modules["numba"] = None
import torch, linrnn
u, lam = torch.ones(1, 3, 2, 1), torch.tensor([[0.5], [0.0]])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    states = [linrnn.scan_planes(u, lam)[0][0, :, 0, 0].tolist() for _ in range(2)]
print(*(warning.message for warning in caught))
print(states[1])
"""


@pytest.fixture(autouse=True)
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    backend._warn.cache_clear()
    yield
    backend._warn.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, *packages: str, hip: str | None = None) -> None:
    """Only these packages, and a build of PyTorch for NVIDIA, or for AMD with `hip`."""
    monkeypatch.setattr(backend, "_installed", lambda package: package in packages)
    monkeypatch.setattr(torch.version, "hip", hip)


def test_each_device_has_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "numba", "triton")
    assert [backend.of(device) for device in (CPU, GPU, MPS, XPU)] == ["numba", "triton", "plain", "plain"]
    assert [backend.triton(device) for device in (CPU, GPU, MPS)] == [False, True, False]


def test_amd_gets_no_nvidia_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its devices are called "cuda", and its capability looks like that of a Hopper GPU."""
    install(monkeypatch, "numba", "triton", hip="7.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 4))
    assert backend.of(GPU) == "plain"
    assert "AMD" in (backend.why_plain(GPU) or "")
    backend.dependent_launch.cache_clear()
    assert not backend.dependent_launch(GPU)
    backend.dependent_launch.cache_clear()


@pytest.mark.parametrize(("capability", "expected"), [((8, 0), False), ((9, 0), True), ((10, 0), True)])
def test_dependent_launch_from_hopper_on(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: bool
) -> None:
    install(monkeypatch, "numba", "triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    backend.dependent_launch.cache_clear()
    assert backend.dependent_launch(GPU) == expected
    assert not backend.dependent_launch(CPU)
    backend.dependent_launch.cache_clear()


@pytest.mark.parametrize(("device", "missing"), [(CPU, "Numba"), (GPU, "Triton")], ids=["cpu", "gpu"])
def test_without_its_compiler_a_device_is_plain(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, missing: str
) -> None:
    install(monkeypatch)
    assert backend.of(device) == "plain"
    assert backend.why_plain(device) == f"{missing} is not installed"


def test_kernels_warn_once_of_the_plain_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    from linrnn.recurrence import numba_scan, plain

    install(monkeypatch, "numba")
    assert backend.kernels(CPU) is numba_scan
    with pytest.warns(UserWarning, match="in plain PyTorch on mps, .* no kernels for mps"):
        assert backend.kernels(MPS) is plain
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backend.kernels(MPS) is plain


def test_a_compiler_takes_the_backend_as_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if backend.of(x.device) == "numba" and backend.has_float64(x.device) else x - 1

    install(monkeypatch, "numba")
    assert float(torch.compile(f, fullgraph=True, backend="eager")(torch.zeros(()))) == 1


def test_the_cpu_works_without_numba() -> None:
    done = subprocess.run([sys.executable, "-c", NO_NUMBA], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warning, states = done.stdout.splitlines()
    assert warning.endswith("Numba is not installed")
    assert states == "[1.0, 1.5, 1.75]"
