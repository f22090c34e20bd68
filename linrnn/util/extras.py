"""The optional packages, and the extras that install them."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

PACKAGES = {
    "matplotlib": "train",
    "PIL": "train",
    "pooch": "train",
    "rich": "train",
    "typer": "train",
    "pyarrow": "data",
    "soundfile": "data",
    "onnx": "export",
    "onnxscript": "export",
    "huggingface_hub": "hub",
    "tensorboard": "tensorboard",
    "torchrl": "agents",
    "tensordict": "agents",
}


class MissingPackageError(ModuleNotFoundError):
    """A package of an extra is not installed; the message names the extra and the command that installs it."""


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Context manager in which the import of a missing extra raises an error that says what needs which package.

    Args:
        what: the subject of the message, such as "a picture".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if isinstance(error, MissingPackageError) or package not in PACKAGES:
            raise
        raise missing(package, what) from error


def require(what: str, *packages: str) -> None:
    """Raise MissingPackageError unless these packages are installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing(package, what)


def missing(package: str, what: str) -> MissingPackageError:
    name = "pillow" if package == "PIL" else package
    words = f"{what} needs {name}, which is not installed: pip install 'linrnn[{PACKAGES[package]}]'"
    return MissingPackageError(words, name=package)
