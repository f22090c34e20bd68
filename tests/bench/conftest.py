import pytest

from tests.bench.helpers import one_thread

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def _quick(one_thread: None) -> None:
    """All tests here run on one thread."""
