"""The files of models and runs: what an earlier version wrote is read; a recipe is written again byte for byte, a model
with the version of its format as the first field."""

import json
from pathlib import Path

import torch

import linrnn
from linrnn.recipes import Recipe
from linrnn.training import Run

MODEL = """{
  "channels": null,
  "vocabulary": 4,
  "classes": 3,
  "documents": 1,
  "d_model": 5,
  "d_state": 6,
  "depth": 2,
  "core": "lru",
  "options": {
    "r_min": 0.5,
    "bidirectional": true
  },
  "mixing": "half_glu",
  "norm": "layer",
  "dropout": 0.1,
  "pooling": "none"
}
"""
RECIPE = """{
  "task": "recall",
  "model": {
    "d_model": 32,
    "d_state": 32,
    "depth": 1,
    "core": "lru",
    "options": {
      "r_min": 0.999,
      "r_max": 0.9999,
      "max_phase": 0.01
    },
    "mixing": "glu",
    "norm": "batch",
    "dropout": 0.0,
    "pooling": "mean"
  },
  "training": {
    "steps": 500,
    "batch_size": 32,
    "learning_rate": 0.01,
    "recurrent_factor": 0.5,
    "weight_decay": 0.05,
    "warmup": 0.1,
    "clip": null,
    "eval_every": 50,
    "seed": 0
  }
}
"""


def test_the_config_of_a_saved_model(tmp_path: Path) -> None:
    config = linrnn.ModelConfig(**json.loads(MODEL))
    linrnn.Model(config).save(tmp_path / "first")
    written = tmp_path / "first" / "config.json"
    assert written.read_text() == MODEL.replace("{\n", '{\n  "format": 1,\n', 1)
    model = linrnn.load(tmp_path / "first")
    assert model.config == config
    assert model(torch.zeros(1, 7, dtype=torch.int64)).shape == (1, 7, 3)


def test_the_recipe_of_a_run(tmp_path: Path) -> None:
    recipe = Recipe.from_dict(json.loads(RECIPE))
    assert recipe == linrnn.recipes.get("recall")
    run = Run.create(tmp_path / "run", recipe)
    assert (run.folder / "config.json").read_text() == RECIPE
    assert Run.open(run.folder).recipe == recipe
