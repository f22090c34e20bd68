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
from linrnn.util.errors import check_new_name, wrong_type

__all__ = [
    "CORES",
    "DLR",
    "GRU",
    "LRU",
    "LSTM",
    "RNN",
    "S4",
    "S4D",
    "S5",
    "Core",
    "diagonalize",
    "real_form",
    "register_core",
]

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


def register_core(name: str, core: type[Core]) -> None:
    """Make a core known by name to `ModelConfig`, recipes and the option `--core` of commands.

    Args:
        name: a new name.
        core: a subclass of `Core` with `_sequence` and `_step`. Keyword-only arguments of its constructor are options
            of a recipe, such as `--set model.options.start=0.5`; their annotations are checked.

    Example:
        >>> linrnn.register_core("mine", MyCore)
        >>> linrnn.ModelConfig(channels=1, classes=2, d_model=64, d_state=64, core="mine")
    """
    check_new_name("name", name, CORES)
    if not isinstance(core, type) or not issubclass(core, Core):
        raise wrong_type("core", "a subclass of linrnn.Core", repr(core))
    for method in ("_sequence", "_step"):
        if getattr(core, method) is getattr(Core, method):
            raise wrong_type("core", f"a class that implements {method}", core.__name__)
    CORES[name] = core
