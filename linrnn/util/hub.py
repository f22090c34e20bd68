"""Saved models on the Hugging Face Hub: the model card, uploads and downloads."""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from linrnn.util import extras
from linrnn.util.errors import wrong_type
from linrnn.util.files import write
from linrnn.util.saved import WEIGHTS
from linrnn.util.types import check_path, check_type

CARD = "README.md"
PAPER = "https://arxiv.org/abs/2303.06349"


class OnHub:
    """Upload and download of a model, by its `config`, its `save` and `_saved_in`, which loads it."""

    config: Any
    save: Callable[[Path], None]

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, metrics: Mapping[str, float] | None = None, data: str | None = None
    ) -> None:
        """`save`, and a model card (README.md) for the Hugging Face Hub unless the folder has one.

        Args:
            folder: where the model is saved; its name is the model's name on the card.
            metrics: results by name for the card, such as {"accuracy": 0.98}.
            data: the name of the data on which they were measured.

        Example:
            >>> model.save_pretrained("my-model", metrics={"accuracy": 0.98}, data="recall")
        """
        check_path("folder", folder)
        self._save_with_card(Path(folder), Path(folder).resolve().name, metrics, data)

    def push_to_hub(
        self, repo_id: str, *, metrics: Mapping[str, float] | None = None, data: str | None = None, **options: Any
    ) -> str:
        """Upload the model and its card to the Hugging Face Hub; returns the address of the commit.

        Args:
            repo_id: the repository, such as "me/my-model".
            metrics: as in `save_pretrained`.
            data: as in `save_pretrained`.
            options: of huggingface_hub's `ModelHubMixin.push_to_hub`: private, token, branch, commit_message, ...

        Example:
            >>> model.push_to_hub("me/my-model", metrics={"accuracy": 0.98}, data="recall", private=True)
        """
        with extras.needed("push_to_hub"):
            from huggingface_hub import ModelHubMixin

        class Upload(ModelHubMixin):
            def _save_pretrained(_, save_directory: Path) -> None:  # noqa: N805, self is the model
                self._save_with_card(save_directory, repo_id, metrics, data)

        return Upload().push_to_hub(repo_id, **options)

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **options: Any) -> Self:
        """The model of a repository on the Hugging Face Hub, or of a folder, in eval mode.

        Args:
            name: the repository, such as "me/my-model", or the folder.
            options: of huggingface_hub's `ModelHubMixin.from_pretrained`: revision, token, cache_dir, force_download,
                local_files_only.

        Example:
            >>> model = linrnn.Model.from_pretrained("me/my-model", revision="main")
        """
        check_path("name", name)
        if Path(name).is_dir():
            return cls._saved_in(Path(name))
        with extras.needed("from_pretrained"):
            from huggingface_hub import ModelHubMixin, hf_hub_download

        class Download(ModelHubMixin):
            def __init__(self) -> None:  # no **kwargs: the mixin would add the config to them
                self.folder = Path()

            @classmethod
            def _from_pretrained(cls, *, model_id: str, **options: Any) -> "Download":
                download = cls()  # the mixin has fetched config.json
                download.folder = Path(hf_hub_download(model_id, WEIGHTS, **options)).parent
                return download

        return cls._saved_in(Download.from_pretrained(os.fspath(name), **options).folder)

    @classmethod
    def _saved_in(cls, folder: Path) -> Self:
        raise NotImplementedError

    def _save_with_card(self, folder: Path, name: str, metrics: Mapping[str, float] | None, data: str | None) -> None:
        check_type("metrics", metrics, Mapping | None)
        check_type("data", data, str | None)
        metrics = {} if metrics is None else metrics
        for metric, value in metrics.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise wrong_type("metrics", "finite numbers by name", f"{metric!r}: {value!r}")
        self.save(folder)
        if not (folder / CARD).exists():
            write(folder / CARD, _card(name, self.config.to_dict(), metrics, data).encode())


def _card(name: str, config: Mapping[str, Any], metrics: Mapping[str, float], data: str | None) -> str:
    """The text of a model card; with `data`, the Hub also reads the results."""
    core = str(config["core"])
    about: dict[str, Any] = {"library_name": "linrnn", "tags": ["linrnn", core, "recurrent-neural-network"]}
    if metrics and data is not None:
        values = [{"type": metric, "name": metric, "value": value} for metric, value in metrics.items()]
        task = {"type": "sequence-modeling", "name": "Sequence modeling"}
        results = {"task": task, "dataset": {"type": data, "name": data}, "metrics": values}
        about["model-index"] = [{"name": name, "results": [results]}]
    front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in about.items())  # JSON is YAML, too
    text = f"""---
{front}
---

# {name}

A deep linear recurrent network: {config["depth"]} blocks with the core `{core}`, {config["d_model"]} features and
{config["d_state"]} states, as in [Resurrecting Recurrent Neural Networks for Long Sequences]({PAPER}).

```python
import linrnn

model = linrnn.Model.from_pretrained({name!r})
```
"""
    if metrics:
        rows = "\n".join(f"| {metric} | {value:.6g} |" for metric, value in metrics.items())
        text += f"\n## Results{'' if data is None else f' on {data}'}\n\n| metric | value |\n|---|---|\n{rows}\n"
    return text + f"\n## Configuration\n\n```json\n{json.dumps(config, indent=2)}\n```\n"
