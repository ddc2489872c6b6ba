"""The slim headers of torch: what C++ built on them does is what it does with torch's own."""

import shutil
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from cuda_headers_build import compile_object, load

_here = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The functions of test_cuda_headers.cpp."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("functions")
    return load(compile_object(_here / "test_cuda_headers.cpp", folder / "functions.o"), folder)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(12.0).reshape(4, 3)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def test_a_module_has_what_was_put_into_it(built: ModuleType) -> None:
    assert built.__doc__ == "Functions to test."
    assert built.answer == 42
    assert "Scales x." in built.scaled.__doc__
    assert built.scaled.__name__ == "scaled"


def test_kernels_read_and_write_memory(built: ModuleType, x: torch.Tensor) -> None:
    assert same(built.scaled(x), x * 2)
    out = torch.zeros(4, 3)
    assert built.fill_rows(out, x[:, 1]) is None
    assert same(out, x[:, 1:2].expand(4, 3))
    built.copy_bytes(x.data_ptr(), out.data_ptr(), 4 * 12)
    assert same(out, x)


def test_tensors_come_back_as_they_went_in(built: ModuleType, x: torch.Tensor) -> None:
    assert built.same(x) is x
    assert built.undefined() is None
    a, b = torch.zeros(1), torch.ones(1)
    assert built.both(a, b)[0] is b
    assert [t is a for t in built.listed([a, b])] == [True, False, True]
    assert [built.is_defined(), built.is_defined(None), built.is_defined(x)] == [False, False, True]


def test_facts_of_a_tensor(built: ModuleType, x: torch.Tensor) -> None:
    assert built.facts(x[1:, 1:]) == (4, [3, 2], [3, 1], False, "Float")
    assert built.facts(torch.zeros(2, 2, dtype=torch.float8_e4m3fn))[4] == "Float8_e4m3fn"
    assert built.product_of_sizes(x) == 12
    assert built.type_of(x.half()) is torch.float16


def test_methods_of_tensors(built: ModuleType, x: torch.Tensor) -> None:
    assert same(built.shapes(x), x.t().flatten())
    expected = [x[1:3], x[0], x[:, 1:], x[2], x[2, 1], x.t()]
    assert all(same(a, b) for a, b in zip(built.slices(x), expected, strict=True))


def test_undefined_tensors(built: ModuleType) -> None:
    assert built.undefined_sizes() == [0, 0]


def test_guards_against_gradients(built: ModuleType) -> None:
    x = torch.ones(3, requires_grad=True)
    assert not built.without_gradients(x)
    assert not built.in_inference_mode(x)
    assert (x * 2).requires_grad
    assert not torch.is_inference_mode_enabled()


def test_functions_that_make_tensors(built: ModuleType, x: torch.Tensor) -> None:
    made = built.made(x)
    expected = [
        *(torch.zeros(2, 3, dtype=torch.int32), torch.ones(2), torch.full((2, 1), 3.5).half()),
        torch.zeros(4, 3, dtype=torch.uint8),
        *(torch.empty(0, 4, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.int64)),
        *(torch.zeros(2), torch.full((2, 2), 4.0, dtype=torch.float64)),
    ]
    assert len(made) == len(expected)
    assert all(same(a, b) for a, b in zip(made, expected, strict=True))


def test_conversions_of_tensors(built: ModuleType, x: torch.Tensor) -> None:
    converted = built.converted(x)
    dtypes = [torch.float16, torch.int32, torch.float64, torch.bool, torch.float32, torch.int8]
    assert all(same(a, x.to(dtype)) for a, dtype in zip(converted, dtypes, strict=False))
    assert converted[4] is x
    assert same(converted[6], x.view(torch.int32))
    assert built.items(torch.tensor(2.5)) == (2.5, 2, 2.5, True)


def test_memory_of_others_is_freed_with_the_tensor(built: ModuleType) -> None:
    tensor = built.of_memory(2)
    assert tensor.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert not built.was_freed()
    del tensor
    assert built.was_freed()


def test_numbers_and_keyword_arguments(built: ModuleType) -> None:
    assert built.numbers(1, 2) == "1 2 3 0.5 1 255"
    assert built.numbers(-1, b=2**40, f=7, d=2, e=0) == f"-1 {2**40} 3 2 0 7"
    assert built.numbers(torch.tensor(4), True, 2**32 - 1).startswith("4 1 4294967295")


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((1.5, 2), {}),
        ((2**31, 2), {}),
        ((1, 2, -1), {}),
        ((1, 2, 3, 4, 5, 256), {}),
        (("1", 2), {}),
        ((None, 2), {}),
        ((1,), {}),
        ((1, 2, 3, 4, 5, 6, 7), {}),
        ((1, 2), {"g": 3}),
        ((1, 2), {"a": 3}),
    ],
)
def test_wrong_arguments(
    built: ModuleType, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as error:
        built.numbers(*arguments, **keywords)
    text = str(error.value)
    assert text.startswith("numbers(): incompatible function arguments. The following argument")
    assert "a: " in text
    assert all(f"{value!r}" in text for value in arguments)
    assert all(f"{key}={value!r}" in text for key, value in keywords.items())


def test_strings_and_containers(built: ModuleType) -> None:
    assert built.texts("ü", b"b", "c") == "übc"
    assert built.sum_of([1, 2]) == 4
    assert built.sum_of((1, 2), more=[3, 4.5]) == 10
    assert built.lengths({"a": "xyz", "b": ""}) == {"a": 3, "b": 0}
    assert built.options(None, (1, 2)) == (None, [2.0, 1.0])
    assert built.options(5, [1.0, 2.0])[0] == 5
    assert built.kinds(torch.float16, torch.device("cuda:1")) == "Half cuda:1 1"
    assert built.kinds(torch.bool, torch.device("cpu")) == "Bool cpu 0"
    with pytest.raises(RuntimeError, match="loading for c10::Scalar NYI"):
        built.takes_scalar(1.5)
    assert built.call(lambda count, text: text * count, [1]) == "TEXTTEXT"
    assert built.sum_of([torch.tensor(1), True]) == 3
    assert built.sum_of([1], {2.0}) == 3
    for wrong in (([1], [2, "3"]), ("12",), ([1.5],), ({1},), ([np.int64(1)],)):
        with pytest.raises(TypeError, match=r"sum_of\(\): incompatible"):
            built.sum_of(*wrong)
    with pytest.raises(TypeError, match="incompatible"):
        built.options(None, (1, 2, 3))
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        built.same([1.0])


def test_overloads(built: ModuleType, x: torch.Tensor) -> None:
    assert [built.overloaded(v) for v in (1, "1", x)] == [1, 2, 3]
    with pytest.raises(TypeError, match=r"(?s)1\. .*2\. .*3\. "):
        built.overloaded(None)


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("runtime_error", RuntimeError, "^runtime_error$"),
        ("invalid_argument", RuntimeError, "^invalid_argument$"),
        ("out_of_range", RuntimeError, "^out_of_range$"),
        ("TORCH_CHECK", RuntimeError, "^Expected false to be true, but got false"),
        ("VALUE", ValueError, "^VALUE$"),
        ("INDEX", IndexError, "^INDEX$"),
        ("TYPE", TypeError, "^TYPE$"),
        ("NOT_IMPLEMENTED", NotImplementedError, "^NOT_IMPLEMENTED$"),
        ("EQ", RuntimeError, r"Check failed: how.size\(\) == 3 \(2 vs. 3\)"),
        ("AT_ERROR", RuntimeError, "^value is 3$"),
        ("ASSERT", RuntimeError, "^how.empty.. INTERNAL ASSERT FAILED at .*no"),
        ("view", RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
        ("item", RuntimeError, "Tensor with 2 elements cannot be converted to Scalar"),
        ("index", IndexError, "index 5"),
        ("undefined", RuntimeError, "Expected a proper Tensor but got None"),
        ("int overflow", RuntimeError, "overflow"),
    ],
)
def test_exceptions(built: ModuleType, how: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as error:
        built.fail(how)
    assert type(error.value) is kind


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("runtime_error", RuntimeError),
        ("invalid_argument", ValueError),
        ("out_of_range", IndexError),
        ("TORCH_CHECK", RuntimeError),
        ("INDEX", IndexError),
        ("VALUE", ValueError),
        ("view", RuntimeError),
        ("index", IndexError),
    ],
)
def test_exceptions_of_functions_that_are_not_wrapped(
    built: ModuleType, how: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as error:
        built.fail_plainly(how)
    assert type(error.value) is kind


def test_an_error_of_python_is_an_error_of_torch_in_cpp(built: ModuleType) -> None:
    assert "is invalid for input of size 6" in built.caught()


def test_dispatch(built: ModuleType) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        assert built.dispatched(torch.tensor([1.5, 2.0], dtype=dtype)) == 3.5
    with pytest.raises(NotImplementedError, match="\"dispatched\" not implemented for 'Int'"):
        built.dispatched(torch.zeros(1, dtype=torch.int32))
    assert built.size_of_type(torch.zeros(1, dtype=torch.int16)) == 2
    assert built.size_of_type(torch.zeros(1).to(torch.float8_e4m3fn)) == -1


def test_data_ptr_checks_the_dtype(built: ModuleType, x: torch.Tensor) -> None:
    assert built.total_of_half(torch.ones(3).half()) == 3
    with pytest.raises(RuntimeError, match=r"^expected scalar type Half but found Float"):
        built.total_of_half(x)


@pytest.mark.parametrize(
    ("function", "dtype", "bits"),
    [
        ("wrong_half", torch.float16, torch.int16),
        ("wrong_bfloat16", torch.bfloat16, torch.int16),
        ("wrong_e4m3", torch.float8_e4m3fn, torch.uint8),
        ("wrong_e5m2", torch.float8_e5m2, torch.uint8),
    ],
)
def test_small_floats_round_as_torch_rounds(
    built: ModuleType, function: str, dtype: torch.dtype, bits: torch.dtype
) -> None:
    info = torch.iinfo(bits)
    values = torch.arange(info.min, info.max + 1).to(bits).view(dtype)
    floats = values.float()
    assert getattr(built, function)(values, floats, (floats * 1.0009765).to(dtype)) == 0


def test_references_are_not_leaked(built: ModuleType, x: torch.Tensor) -> None:
    def use() -> None:
        built.scaled(x)
        built.same(x)
        built.listed([x, x])
        built.facts(x)
        built.product_of_sizes(x)
        built.slices(x)
        built.converted(x)
        with pytest.raises(TypeError):
            built.numbers(x, x)
        with pytest.raises(RuntimeError):
            built.scaled(x[0])
        torch.ops.slim_test.plus(x, 1.0, bias=x)

    use()
    before = sys.getrefcount(x), sys.getrefcount(torch.float32), sys.getrefcount(None)
    for _ in range(5):
        use()
    after = sys.getrefcount(x), sys.getrefcount(torch.float32), sys.getrefcount(None)
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 50


def test_without_the_gil(built: ModuleType, x: torch.Tensor) -> None:
    results: list[float] = []

    def work() -> None:
        results.extend(built.without_gil(x[2, 1]) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [7.0] * 200
    assert sys.getrefcount(x) < 10


def test_operators_of_a_library(built: ModuleType, x: torch.Tensor) -> None:
    ops = torch.ops.slim_test
    assert same(ops.plus(x, 1.5), x + 3)
    assert same(ops.plus(x, 1.5, 3, bias=x), x + 4.5 + x)
    assert same(ops.plus(x, value=1.0, times=2), x + 2)
    y = x.clone()
    assert ops.negate(y, [1, 2]) is None
    assert same(y, -x)
    assert same(ops.doubled(x), x * 2)
    assert same(ops.tripled(x), x * 3)
    assert same(ops.halved(x), x / 2)
    first, converted = ops.first([x, y], dtype=torch.float64)
    assert first.data_ptr() == x.data_ptr()
    assert same(converted, x.double())
    assert ops.scalar(torch.zeros(1), 2.5) == "2.5 1 2.5"
    assert ops.scalar(torch.zeros(1, dtype=torch.int32), 3) == "3 0 3"
    assert str(ops.doubled.default._schema) == "slim_test::doubled(Tensor _0) -> Tensor _0"
    with pytest.raises(NotImplementedError):
        ops.plus(x.to("meta"), 1.0)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_namespace_is_defined_once(built: ModuleType, tmp_path: Path) -> None:
    functions = Path(str(built.__file__)).with_name("functions.o")
    with pytest.raises(RuntimeError, match="Only a single TORCH_LIBRARY can be used to register"):
        load(functions, tmp_path)
