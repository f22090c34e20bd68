"""Models on the Hugging Face Hub, without a connection: what would be uploaded, and a cache as a download leaves it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import linrnn

CONFIG: dict[str, Any] = {"channels": 3, "classes": 4, "d_model": 6, "d_state": 5, "depth": 2}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ABSENT = """
import sys
sys.modules["huggingface_hub"] = None
import linrnn
model = linrnn.Model(linrnn.ModelConfig(channels=3, classes=4, d_model=6, d_state=5, depth=2))
model.save_pretrained(sys.argv[1], metrics={"accuracy": 0.5})
linrnn.Model.from_pretrained(sys.argv[1])
for call in (lambda: model.push_to_hub("me/model"), lambda: linrnn.Model.from_pretrained("me/model")):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.fixture
def model() -> linrnn.Model:
    return linrnn.Model(linrnn.ModelConfig(**CONFIG)).eval()


def test_saved_with_a_card(model: linrnn.Model, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    model.save_pretrained(folder, metrics={"accuracy": 0.98765, "loss": 0.25}, data="recall")
    x = torch.randn(2, 9, 3)
    for loaded in (
        linrnn.Model.from_pretrained(folder),
        linrnn.Model.from_pretrained(str(folder)),
        linrnn.load(folder),
    ):
        assert not loaded.training
        assert loaded(x).equal(model(x))
    card = (folder / "README.md").read_text()
    for words in (
        "# digits\n",
        "from_pretrained('digits')",
        "## Results on recall",
        "| accuracy | 0.98765 |",
        '"d_model": 6',
    ):
        assert words in card
    (folder / "README.md").write_text("my own")
    model.save_pretrained(folder, metrics={"accuracy": 0.5})
    assert (folder / "README.md").read_text() == "my own"


def test_a_card_without_metrics(model: linrnn.Model, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    assert "Results" not in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("value", ["0.98", None, float("nan"), True])
def test_wrong_metrics_leave_no_folder(model: linrnn.Model, tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="metrics: expected finite numbers by name, got 'accuracy'"):
        model.save_pretrained(tmp_path / "new", metrics={"accuracy": value})
    assert not (tmp_path / "new").exists()


def test_the_hub_reads_the_results_of_a_card(model: linrnn.Model, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    model.save_pretrained(tmp_path / "digits", metrics={"accuracy": 0.98}, data="a: set")
    card = hub.ModelCard.load(tmp_path / "digits" / "README.md")
    assert card.data.library_name == "linrnn"
    assert "lru" in card.data.tags
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("accuracy", 0.98, "a: set")


def test_pushed(model: linrnn.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    sent: dict[str, Any] = {}

    def create(self: object, repo_id: str, **options: Any) -> Any:
        sent["create"] = options
        return hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload(self: object, *, folder_path: Path, **options: Any) -> str:
        sent["files"] = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        sent["upload"] = options
        return "the commit"

    monkeypatch.setattr(hub.HfApi, "create_repo", create)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload)
    metrics = {"accuracy": 0.98}
    assert model.push_to_hub("me/digits", metrics=metrics, private=True, commit_message="First") == "the commit"
    assert set(sent["files"]) == {"README.md", "config.json", "model.safetensors"}
    assert json.loads(sent["files"]["config.json"]) == model.config.to_dict()
    assert b"from_pretrained('me/digits')" in sent["files"]["README.md"]
    assert sent["create"]["private"] is True
    assert (sent["upload"]["repo_id"], sent["upload"]["commit_message"]) == ("me/digits", "First")


@pytest.mark.parametrize("revision", [None, COMMIT, "v1"])
def test_downloaded(model: linrnn.Model, revision: str | None, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    cache = tmp_path / "models--me--digits"
    snapshot, blobs, refs = cache / "snapshots" / COMMIT, cache / "blobs", cache / "refs"
    model.save(snapshot)
    blobs.mkdir()
    for path in list(snapshot.iterdir()):  # files are links, as a download leaves them
        path.rename(blobs / path.name)
        path.symlink_to(blobs / path.name)
    refs.mkdir()
    for name in ("main", "v1"):
        (refs / name).write_text(COMMIT)
    options: dict[str, Any] = {} if revision is None else {"revision": revision}
    loaded = linrnn.Model.from_pretrained("me/digits", cache_dir=tmp_path, local_files_only=True, **options)
    x = torch.randn(2, 9, 3)
    assert loaded(x).equal(model(x))
    with pytest.raises(OSError, match="disk cache"):
        linrnn.Model.from_pretrained("me/other", cache_dir=tmp_path, local_files_only=True)


def test_without_the_extra(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", ABSENT, str(tmp_path / "model")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [
        f"{name} needs huggingface_hub, which is not installed: pip install 'linrnn[hub]'"
        for name in ("push_to_hub", "from_pretrained")
    ]
