"""The recurrent layers: one file each, one interface."""

from linrnn.cores.base import Core
from linrnn.cores.dlr import DLR
from linrnn.cores.equivalence import diagonalize, real_form
from linrnn.cores.gated import GRU, LSTM
from linrnn.cores.lru import LRU
from linrnn.cores.rnn import RNN
from linrnn.cores.s4 import S4
from linrnn.cores.s4d import S4D
from linrnn.cores.s5 import S5

__all__ = ["CORES", "DLR", "GRU", "LRU", "LSTM", "RNN", "S4", "S4D", "S5", "Core", "diagonalize", "real_form"]

CORES: dict[str, type[Core]] = {
    "lru": LRU,
    "rnn": RNN,
    "gru": GRU,
    "lstm": LSTM,
    "s4d": S4D,
    "s5": S5,
    "s4": S4,
    "dlr": DLR,
}
