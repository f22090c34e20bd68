"""The stream on docs/guide/browser.md: its files, and the page in headless Chromium, against linrnn.Stream.

The page needs Chromium, and `npm install --no-save onnxruntime-web@VERSION` in the checkout; ONNXRUNTIME_WEB may name
another folder of the package.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import linrnn
from tests.docs.chromium import Chromium, served

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "browser.md"
if not PAGE.exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)
FILES = PAGE.with_suffix("")
PACKAGE = Path(os.environ.get("ONNXRUNTIME_WEB", ROOT / "node_modules" / "onnxruntime-web"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RUNTIME = re.search(r'data-runtime="(.*@(.*)/dist/)"', PAGE.read_text() if PAGE.exists() else "")


def known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FILES / "wave.json").read_text())
    return found


def streamed() -> Tensor:
    """What linrnn.Stream gives for the inputs of wave.json."""
    stream = linrnn.Stream(linrnn.load(FILES))
    return torch.cat([stream.step(torch.tensor([[u_k]])) for u_k in known()["inputs"]])


def test_the_files_of_the_page_agree() -> None:
    expected = streamed()
    assert (torch.tensor(known()["outputs"]) - expected).abs().max() < 1e-5
    assert expected.abs().max() > 0.5
    assert (FILES / "wave.onnx").stat().st_size < 100_000


def test_the_exported_stream_of_the_page_in_onnx_runtime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(FILES / "wave.onnx")
    state = np.zeros((1, session.get_inputs()[1].shape[1]), dtype=np.float32)
    for u_k, expected in zip(known()["inputs"], streamed(), strict=True):
        output, state = session.run(None, {"inputs": np.array([[u_k]], dtype=np.float32), "state": state})
        assert np.abs(output - expected.numpy()).max() < 1e-5


def test_no_page_loads_the_runtime_before_it_is_asked_to() -> None:
    assert RUNTIME is not None
    assert "import(" in (FILES / "demo.js").read_text()
    assert "http" not in (FILES / "demo.js").read_text()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.skipif(not PACKAGE.is_dir(), reason="the npm package onnxruntime-web is not installed")
def test_the_page_shows_what_linrnn_gives(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    assert RUNTIME is not None
    assert CHROMIUM is not None
    assert json.loads((PACKAGE / "package.json").read_text())["version"] == RUNTIME[2]
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, check=True)
    with (
        served(PACKAGE / "dist") as runtime,  # another origin, as a public server
        served(tmp_path / "site", {RUNTIME[1]: runtime}) as site,
        Chromium(CHROMIUM) as browser,
    ):
        browser.call("Page.navigate", url=site + "guide/browser/")
        wait(browser, "document.readyState === 'complete' && !!document.querySelector('#wave button')")
        browser.evaluate("document.querySelector('#wave button').click()")
        wait(browser, "/forecast:|Not loaded/.test(document.querySelector('#wave output').textContent)")
        shown = browser.evaluate("document.querySelector('#wave output').textContent")
        time.sleep(3)  # until the wave fills a part of the field
        drawn = browser.evaluate(
            "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((x) => x > 0).length)"
            "(document.querySelector('#wave canvas'))"
        )
        browser.screenshot(Path(os.environ.get("SCREENSHOT", tmp_path / "page.png")))
    said, _, forecast = shown.partition("forecast:\n")
    difference = re.search(r"linrnn.Stream: ([\d.e+-]+)\.", said)
    assert difference is not None, shown
    assert float(difference[1]) < 1e-5
    numbers = torch.tensor([float(number) for number in forecast.split()])
    assert (numbers - streamed()[-1]).abs().max() < 1e-5
    assert drawn > 1000


def wait(browser: Chromium, condition: str, seconds: float = 30) -> None:
    """Until a condition of JavaScript holds on the page."""
    end = time.monotonic() + seconds
    while not browser.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.1)
