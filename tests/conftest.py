import os

# Read when PyTorch loads OpenMP: processes of tests share the cores, and threads that spin while they wait, as they do
# by default, take them from each other.
os.environ["OMP_WAIT_POLICY"] = "passive"

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported, which a compiler may do early


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
