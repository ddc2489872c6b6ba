"""Declared functions of a module get bodies that call Python."""

import ctypes

import pytest

pytest.importorskip("cutlass")

from cutlass._mlir import execution_engine, ir

from nvfp4.capture.cutedsl.callbacks import declared_functions, define

MODULE = """
llvm.func @_cudaAdd(i32, i32) -> i32
llvm.func @cuda_dialect_unload(!llvm.ptr)
llvm.func @cuda_dialect_name(i32) -> !llvm.ptr
llvm.func @twice(%a: i32) -> i32 {
    %b = llvm.call @_cudaAdd(%a, %a) : (i32, i32) -> i32
    %null = llvm.mlir.zero : !llvm.ptr
    llvm.call @cuda_dialect_unload(%null) : (!llvm.ptr) -> ()
    llvm.return %b : i32
}
"""


def test_a_definition_is_there_when_the_engine_is_made() -> None:
    add = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(lambda a, b: a + b)
    others = [ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 1 / 0) for _ in range(2)]
    names = ("_cudaAdd", "cuda_dialect_unload", "cuda_dialect_name")
    with ir.Context():
        module = ir.Module.parse(MODULE)
        define(module, dict(zip(names, (add, *others), strict=True)))
        assert set(declared_functions(module)) == {"cuda_dialect_name"}
        engine = execution_engine.ExecutionEngine(module)
        # Arguments and the result are passed as an array of addresses.
        values = (ctypes.c_int32 * 2)(21, 0)
        start = ctypes.addressof(values)
        packed = (ctypes.c_void_p * 2)(start, start + 4)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("twice"))(packed)
        assert values[1] == 42
