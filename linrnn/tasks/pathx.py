"""Path-X: Pathfinder with pictures of 128×128 pixels, sequences of 16,384 steps."""

from linrnn.tasks import pathfinder

SOURCE = pathfinder.source("pathx", 128)
