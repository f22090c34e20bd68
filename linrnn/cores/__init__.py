"""The recurrent layers ("cores"), which share the interface of `Core`."""

import inspect
from collections.abc import Iterable

from linrnn.cores.base import Core
from linrnn.cores.dlr import DLR
from linrnn.cores.equivalence import diagonalize, real_form
from linrnn.cores.gated import GRU, LSTM
from linrnn.cores.lru import LRU
from linrnn.cores.mingru import MinGRU
from linrnn.cores.rglru import RGLRU
from linrnn.cores.rnn import RNN
from linrnn.cores.s4 import S4
from linrnn.cores.s4d import S4D
from linrnn.cores.s5 import S5
from linrnn.util.errors import check_new_name, unknown, wrong_type

__all__ = [
    "CORES",
    "DLR",
    "GRU",
    "LRU",
    "LSTM",
    "RGLRU",
    "RNN",
    "S4",
    "S4D",
    "S5",
    "Core",
    "MinGRU",
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
    "rglru": RGLRU,
    "mingru": MinGRU,
}


def register_core(name: str, core: type[Core]) -> None:
    """Register a core under a name, for `ModelConfig(core=...)`, recipes and the option `--core` of commands.

    Args:
        name: a new name, of letters, digits, `_` and `-`.
        core: a subclass of `Core` that implements `_sequence` and `_step`. The keyword-only arguments of its
            constructor can be set in recipes, as in `--set model.options.start=0.5`; values are checked against the
            annotations.

    Raises:
        TypeError: `core` is not such a subclass.
        ValueError: the name is registered already.

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


def check_core(name: str) -> None:
    """Raise ValueError unless a core has this name."""
    if name not in CORES:
        raise ValueError(f"{unknown('core', name, CORES)}; --import MODULE adds the cores that a module registers")


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise TypeError for the name of an option that the core of this name does not have."""
    known = inspect.signature(CORES[name]).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for option in options:
        if option not in known:
            raise wrong_type(f"options of {name!r}", ", ".join(known), repr(option))
