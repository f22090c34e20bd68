"""Vectors of 64 bytes for Numba: a type, +, - and *, loads and stores."""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model


class _Vector(types.Type):
    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"vector({dtype})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: _Vector) -> None:
        lane = ir.DoubleType() if vector.dtype.bitwidth == 64 else ir.FloatType()
        super().__init__(manager, vector, ir.VectorType(lane, 512 // vector.dtype.bitwidth))


def _arithmetic(operation: Callable[..., Any], instruction: str) -> None:
    @intrinsic
    def compute(_, a, b):
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments, flags=["contract"])  # may become a fused multiply-add

        return a(a, b), build

    @overload(operation)
    def vectors(a, b):
        if isinstance(a, _Vector) and isinstance(b, _Vector):
            return lambda a, b: compute(a, b)
        return None


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, target: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), target.as_pointer())


@intrinsic
def load(_, array, i):
    vector = _Vector(array.dtype)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments, context.get_value_type(vector))
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return vector(array, i), build


def _storing(nontemporal: bool) -> Any:
    @intrinsic
    def stored(_, array, i, vector):
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature, arguments, context.get_value_type(vector))
            instruction = builder.store(arguments[2], pointer, align=64 if nontemporal else array.dtype.bitwidth // 8)
            if nontemporal:
                one = ir.Constant(ir.IntType(32), 1)
                instruction.set_metadata("nontemporal", builder.module.add_metadata([one]))
            return context.get_dummy_value()

        return types.void(array, i, vector), build

    return stored


store = _storing(nontemporal=False)
store_nontemporal = _storing(nontemporal=True)


@intrinsic
def zero(_, vector):
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(vector), build


@intrinsic
def prefetch(_, array, i):
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = _pointer(context, builder, signature, arguments, byte)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # read, all caches, data
        return context.get_dummy_value()

    return types.void(array, i), build


@intrinsic
def fence(_):
    """Make nontemporal stores visible to threads that wait for this thread."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), build
