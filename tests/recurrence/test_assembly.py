"""The assembly in the kernels of the scan computes the formulas that it replaces; the interpreter cannot run it."""

import importlib.util
import math
import re
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
OPERATIONS: dict[str, Any] = {"neg": lambda a: -a, "fma": lambda a, b, c: a * b + c}


def evaluate(assembly: str, *given: complex) -> complex:
    """The results $0 and $1 of PTX, for the parts of numbers in $2, $3 and so on."""
    registers = {f"${i}": part for i, part in enumerate([z for x in given for z in (x.real, x.imag)], start=2)}
    for operation, operands in re.findall(r"(\w+)(?:\.rn)?\.f32 (\S+, [^;]*);", assembly):
        target, *sources = operands.split(", ")
        registers[target] = OPERATIONS[operation](*(registers[source] for source in sources))
    return complex(registers["$0"], registers["$1"])


def test_products_of_a_step() -> None:
    from linrnn.recurrence import triton_common

    a, x, u = 0.3 - 0.7j, -1.1 + 0.4j, 0.9 + 2.3j
    assert evaluate(triton_common.MULTIPLY_ADD_ASSEMBLY.value, a, x, u) == pytest.approx(a * x + u)
    assert evaluate(triton_common.ADD_CONJ_PRODUCT_ASSEMBLY.value, u, a, x) == pytest.approx(u + a.conjugate() * x)
    assert math.isnan(evaluate(triton_common.MULTIPLY_ADD_ASSEMBLY.value, a, x, complex(math.nan, 0)).real)
