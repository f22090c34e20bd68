import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported, which a compiler may do early


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
