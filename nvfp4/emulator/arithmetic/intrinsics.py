"""What compiled loops need of the host's floating-point unit, and Numba has no name for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic


def _cast(llvm_type: ir.Type, source: types.Type, target: types.Type) -> Any:
    """An intrinsic that reads the bits of `source` as `target` (same width)."""

    @intrinsic
    def cast(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], llvm_type)

        return target(source), generate

    return cast


as_f32 = _cast(ir.FloatType(), types.uint32, types.float32)
as_u32 = _cast(ir.IntType(32), types.float32, types.uint32)
as_f64 = _cast(ir.DoubleType(), types.uint64, types.float64)
as_u64 = _cast(ir.IntType(64), types.float64, types.uint64)


@intrinsic
def fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once, in the type of a."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, a, a), generate


@intrinsic
def from_half(typing_context: Any, half: Any) -> Any:
    """The float32 value of f16 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def to_half(typing_context: Any, value: Any) -> Any:
    """The f16 bits of a float32, rounded to nearest even."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate
