"""Eight heads in one vector register: a Numba type for what LLVM does not vectorise by itself.

``Lanes`` lives inside compiled code only. Its operators work lane by lane, so that what a kernel
computes for one head is what it computes for all, and in a fixed order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

LANES = 8
_FUSE = ("contract",)  # allows fused multiply-add and nothing else: inf and nan keep their meaning


class Lanes(types.Type):  # type: ignore[misc, unused-ignore]
    """Eight numbers of one kind: float32, float64, uint32 or boolean."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc, unused-ignore]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        element = manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(element, LANES))


def _binary(
    op: Callable[..., Any], emit: dict[bool, Any], result: types.Type | None = None
) -> None:
    """Define ``op`` between two lanes; ``emit`` holds the instruction by whether they are real."""

    @intrinsic
    def apply(typing_context, x, y):  # type: ignore[no-untyped-def]
        instruction = emit[isinstance(x.dtype, types.Float)]

        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return instruction(builder, *args)

        return (x if result is None else Lanes(result))(x, y), generate

    @overload(op)
    def overloaded(x, y):  # type: ignore[no-untyped-def]
        if isinstance(x, Lanes) and x == y:
            return lambda x, y: apply(x, y)
        return None


_binary(operator.add, {True: lambda b, x, y: b.fadd(x, y, flags=_FUSE)})
_binary(operator.sub, {True: lambda b, x, y: b.fsub(x, y, flags=_FUSE)})
_binary(
    operator.mul,
    {True: lambda b, x, y: b.fmul(x, y, flags=_FUSE), False: lambda b, x, y: b.mul(x, y)},
)
_binary(operator.truediv, {True: lambda b, x, y: b.fdiv(x, y)})
_binary(operator.xor, {False: lambda b, x, y: b.xor(x, y)})
_binary(operator.rshift, {False: lambda b, x, y: b.lshr(x, y)})
_binary(
    operator.gt,
    {
        True: lambda b, x, y: b.fcmp_ordered(">", x, y),
        False: lambda b, x, y: b.icmp_unsigned(">", x, y),
    },
    types.boolean,
)


@intrinsic
def load(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Load the ``index``-th eight numbers of a contiguous array."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer, size = _address(context, builder, signature, args)
        return builder.load(pointer, align=size)

    return Lanes(array.dtype)(array, index), generate


@intrinsic
def store(typing_context, array, index, x):  # type: ignore[no-untyped-def]
    """Write ``x`` as the ``index``-th eight numbers of a contiguous array."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer, size = _address(context, builder, signature, args)
        builder.store(args[2], pointer, align=size)

    return types.void(array, index, x), generate


def _address(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, int]:
    """Find where the lanes at (array, index) are, and the alignment they have."""
    array_type, index_type = signature.args[:2]
    if array_type.layout != "C":
        raise TypeError(f"Expected a contiguous array, but got {array_type}")
    array = context.make_array(array_type)(context, builder, args[0])
    index = context.cast(builder, args[1], index_type, types.intp)
    first = builder.mul(index, ir.Constant(index.type, LANES))
    vector = context.get_value_type(Lanes(array_type.dtype))
    pointer = builder.bitcast(builder.gep(array.data, [first]), vector.as_pointer())
    return pointer, array_type.dtype.bitwidth // 8


@intrinsic
def spread(typing_context, number, like):  # type: ignore[no-untyped-def]
    """Put one number in all lanes, of the kind of ``like``."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        blank = ir.Constant(context.get_value_type(like), ir.Undefined)
        element = context.cast(builder, args[0], number, like.dtype)
        one = builder.insert_element(blank, element, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, blank, zeros)

    return like(number, like), generate


@intrinsic
def where(typing_context, mask, x, y):  # type: ignore[no-untyped-def]
    """Take x where the mask is set, else y."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(*args)

    return x(mask, x, y), generate


@intrinsic
def some(typing_context, mask):  # type: ignore[no-untyped-def]
    """Tell whether any lane of a mask is set."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        bits = builder.bitcast(args[0], ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return types.boolean(mask), generate


@intrinsic
def exp(typing_context, x):  # type: ignore[no-untyped-def]
    """Compute e to the x, within 2 units in the last place; 0 where that would be denormal.

    x = n ln 2 + r with n whole and |r| <= ln 2 / 2; e^r is its Taylor polynomial, and 2^n is made
    by writing n into the bits of the exponent.
    """
    single = x.dtype == types.float32
    mantissa, bias, degree = (23, 127, 7) if single else (52, 1023, 13)
    integer = ir.IntType(32 if single else 64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        element = context.get_value_type(x.dtype)
        bits = ir.VectorType(integer, LANES)

        def number(value: float) -> Any:
            return ir.Constant(ir.VectorType(element, LANES), [value] * LANES)

        def whole(value: int) -> Any:
            return ir.Constant(bits, [value] * LANES)

        def multiply_add(a: Any, b: Any, c: Any) -> Any:
            return builder.fadd(builder.fmul(a, b, flags=_FUSE), c, flags=_FUSE)

        lowest = number(-(bias - 2) * math.log(2))
        vanishes = builder.fcmp_ordered("<", args[0], lowest)
        argument = builder.select(vanishes, lowest, args[0])
        # Adding 1.5 * 2^mantissa leaves round(x / ln 2) in the low bits of the sum.
        shifter = number(1.5 * 2.0**mantissa)
        shifted = multiply_add(argument, number(1 / math.log(2)), shifter)
        n = builder.fsub(shifted, shifter)
        r = argument
        for piece in _LN2[mantissa]:  # in pieces so that n * piece is exact
            r = multiply_add(n, number(-piece), r)
        power = number(1 / math.factorial(degree))
        for k in reversed(range(degree)):
            power = multiply_add(power, r, number(1 / math.factorial(k)))
        exponent = builder.shl(builder.bitcast(shifted, bits), whole(mantissa))
        scale = builder.add(exponent, whole(bias << mantissa))
        scale = builder.bitcast(scale, args[0].type)
        return builder.select(vanishes, number(0.0), builder.fmul(power, scale))

    return x(x), generate


_LN2 = {23: (0.693359375, -2.12194440e-4), 52: (0.6931471803691238, 1.9082149292705877e-10)}
