"""The recurrent layers: one file each, one interface."""

from linrnn.cores.base import Core
from linrnn.cores.dense import RNN
from linrnn.cores.equivalence import diagonalize, real_form
from linrnn.cores.lru import LRU

__all__ = ["CORES", "LRU", "RNN", "Core", "diagonalize", "real_form"]

CORES: dict[str, type[Core]] = {"lru": LRU, "rnn": RNN}
