"""The headers that stand for torch's: what C++ built on them does is what it does with torch's."""

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from nvfp4.capture.cuda.headers_of_torch import binds_as_ours_cannot
from nvfp4.emulation import Emulation


@pytest.fixture(scope="module")
def built(emulated: Emulation) -> Any:
    """The functions of slim_torch.cu."""
    return cpp_extension.load("slim_torch_test", [str(Path(__file__).with_name("slim_torch.cu"))])


@pytest.fixture
def x(emulated: Emulation) -> torch.Tensor:
    return torch.arange(12.0, device="cuda").reshape(4, 3)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


def test_what_a_build_takes_torchs_own_headers_for() -> None:
    for text, taken in {
        'm.def("f", &f); m.def("g", &g); m.def("f(Tensor x) -> Tensor");': False,
        'm.def("f", py::overload_cast<int>(&f)); m.def("f", &g);': True,
        'TORCH_LIBRARY(ns, m) {\n  m.def("f(Tensor x) -> Tensor", &f);\n}\nm.def("g", &g)': False,
        'TORCH_LIBRARY(ns, m) {\n  m.def("f", &f);\n}': True,
        'TORCH_LIBRARY(ns, m) {\n  m.def("f(Tensor(a!) x) -> ()");\n}': False,
        'TORCH_LIBRARY(ns, m) {\n  m.def("f(Tensor x, int n=2) -> ()");\n}': True,
        'TORCH_LIBRARY(ns, m) {\n  m.def("f(Tensor x, *, int n) -> ()");\n}': True,
        'TORCH_LIBRARY(ns, m) { m.def("f(Tensor x, int n=2) -> ()"); }': True,
        'TORCH_LIBRARY(ns, m) { m.def("f(Tensor x) -> ()"); }\nm.def("g", &g)\n}': False,
    }.items():
        assert binds_as_ours_cannot(text) is taken


def test_a_module_has_what_was_put_into_it(built: Any) -> None:
    assert built.scaled.__doc__.startswith("scaled(arg0: torch.Tensor, arg1: float) -> ")
    assert "Scales x." in built.scaled.__doc__
    assert built.scaled.__name__ == "scaled"


def test_kernels_read_and_write_tensors(built: Any, x: torch.Tensor) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16):
        assert same(built.scaled(x.to(dtype), 3), x.to(dtype) * 3)
    with pytest.raises(NotImplementedError, match="\"scaled\" not implemented for 'Int'"):
        built.scaled(x.int(), 3)
    assert same(built.added(x[0].half(), x[1].bfloat16()), (x[0] + x[1]).half())
    with pytest.raises(RuntimeError, match=r"^expected scalar type Half but found Float"):
        built.added(x[0], x[1])


def test_tensors_come_back_as_they_went_in(built: Any, x: torch.Tensor) -> None:
    assert built.same(x) is x
    assert built.undefined() is None
    assert built.both(x, x[0])[1] is x
    assert [t is x for t in built.listed([x, x[0]])] == [True, False, True]
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        built.same([1.0])


def test_facts_of_a_tensor(built: Any, x: torch.Tensor) -> None:
    assert built.facts(x[1:, 1:]) == ([3, 2], [3, 1], False, "Float")
    assert built.facts(x.to(torch.float8_e4m3fn))[3] == "Float8_e4m3fn"
    assert built.product_of_sizes(x) == 12
    assert built.undefined_sizes() == [0, 0]


def test_methods_of_tensors(built: Any, x: torch.Tensor) -> None:
    expected = [*(x[1:3], x[0], x[2], x[2, 1], x.t(), x.view(2, 6).t().flatten())]
    assert all(same(a, b) for a, b in zip(built.shapes(x), expected, strict=True))
    expected = [*(x.half(), x.int(), x.bool(), x, x.view(torch.int32), x, x.cpu(), x)]
    assert all(same(a, b) for a, b in zip(built.converted(x), expected, strict=True))
    assert built.converted(x)[3] is x


def test_functions_that_make_tensors(built: Any, x: torch.Tensor) -> None:
    expected = [
        torch.zeros(2, 3, dtype=torch.int32, device="cuda"),
        torch.ones(2, device="cuda"),
        torch.full((2, 1), 3.5).half(),
        torch.zeros(4, 3, dtype=torch.uint8, device="cuda"),
        torch.empty(0, 4, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.int64),
        torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64, device="cuda"),
    ]
    assert all(same(a, b) for a, b in zip(built.made(x), expected, strict=True))


def test_numbers_strings_and_containers(built: Any) -> None:
    assert built.numbers(1, 2, 3, 0.5, True, 255) == "1 2 3 0.5 1 255"
    assert built.numbers(-1, 2**40, 3, 2, 0, 7) == f"-1 {2**40} 3 2 0 7"
    assert built.numbers(torch.tensor(4), True, 2**32 - 1, 1, 1, 1).startswith("4 1 4294967295")
    assert built.texts("ü", b"b") == "üb"
    assert built.sum_of([1, 2], []) == 3
    assert built.sum_of((1, torch.tensor(2)), {3, 4.5}) == 10
    for dtype in (torch.float16, torch.bool, torch.float4_e2m1fn_x2):
        assert built.dtype(dtype) is dtype


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        *(((1.5, 2, 3, 4, 5, 6), {}), ((2**31, 2, 3, 4, 5, 6), {}), ((1, 2, -1, 4, 5, 6), {})),
        *(((1, 2, 3, 4, 5, 256), {}), (("1", 2, 3, 4, 5, 6), {}), ((None, 2, 3, 4, 5, 6), {})),
        *(((1, 2, 3, 4, 5), {}), ((1, 2, 3, 4, 5, 6, 7), {}), ((1, 2, 3, 4, 5), {"f": 6})),
    ],
)
def test_wrong_arguments(built: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as error:
        built.numbers(*arguments, **keywords)
    text = str(error.value)
    assert text.startswith("numbers(): incompatible function arguments. The following argument")
    assert "arg0: int" in text
    assert all(f"{value!r}" in text for value in arguments)
    assert (f"kwargs: {keywords!r}" in text) is bool(keywords)


def test_arguments_by_their_names(built: Any) -> None:
    assert built.less(7, 4) == built.less(7, b=4) == built.less(b=4, a=7) == 3
    assert built.less.__doc__.startswith("less(a: int, b: int) -> int")
    for arguments, keywords in (
        ((7,), {"a": 4}),
        ((7,), {"c": 4}),
        ((), {"b": 4}),
        ((7, 4), {"b": 4}),
    ):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            built.less(*arguments, **keywords)


FAILURES = {
    "runtime_error": (RuntimeError, "^runtime_error$"),
    "invalid_argument": (RuntimeError, "^invalid_argument$"),
    "out_of_range": (RuntimeError, "^out_of_range$"),
    "TORCH_CHECK": (RuntimeError, "^Expected false to be true, but got false"),
    "NOT_IMPLEMENTED": (NotImplementedError, "^NOT_IMPLEMENTED$"),
    "view": (RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
    "index": (IndexError, "index 5"),
    "undefined": (RuntimeError, "Expected a proper Tensor but got None"),
    "cuda": (RuntimeError, "^CUDA error: invalid argument"),
    "guard": (RuntimeError, "Expected a CUDA device, but got cpu"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_exceptions(built: Any, how: str) -> None:
    kind, message = FAILURES[how]
    with pytest.raises(kind, match=message) as error:
        built.fail(how)
    assert type(error.value) is kind
    assert "is invalid for input of size 6" in built.caught()


def test_small_floats_round_as_torch_rounds(built: Any) -> None:
    for name, dtype in (("half", torch.float16), ("bfloat16", torch.bfloat16)):
        values = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
        floats = values.float()
        rounded = (floats * 1.0009765).to(dtype)
        assert getattr(built, f"wrong_{name}")(values, floats, rounded) == 0


def test_streams_are_torchs(built: Any) -> None:
    assert built.current() == 0
    assert built.another() != built.another() != 0
    with torch.cuda.stream(torch.cuda.Stream()):
        assert built.current() == torch.cuda.current_stream().cuda_stream != 0
    assert built.multiprocessors() == 148


def test_references_are_not_leaked(built: Any, x: torch.Tensor) -> None:
    def use() -> None:
        for function in (built.same, built.facts, built.product_of_sizes, built.shapes):
            function(x)
        built.listed([x, x])
        built.converted(x)
        with pytest.raises(TypeError):
            built.numbers(x, x)
        with pytest.raises(RuntimeError):
            built.added(x, x)
        torch.ops.slim_test.plus(torch.ones(2), 1.0)

    def counts() -> tuple[int, int, int]:
        gc.collect()
        return sys.getrefcount(x), sys.getrefcount(torch.float32), sys.getrefcount(None)

    use()
    before = counts()
    for _ in range(60):
        use()
    after = counts()
    # Fewer of None are no leak: what other tests left behind is freed meanwhile, too.
    assert after[:2] == before[:2] and after[2] - before[2] < 50


def test_threads_share_a_tensor(built: Any, x: torch.Tensor) -> None:
    together = threading.Barrier(4)

    def sizes(_: int) -> list[int]:
        together.wait(10)
        return [built.product_of_sizes(x) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sizes, range(4))) == [[12] * 50] * 4
    assert sys.getrefcount(x) < 10


def test_operators_of_a_library(built: Any) -> None:
    ops, x = torch.ops.slim_test, torch.arange(6.0).reshape(2, 3)
    assert same(ops.plus(x, 1.5), x + 1.5)
    assert same(ops.plus(x, value=1), x + 1)
    assert same(ops.twice(x)[0], x)
    assert same(ops.row(x, 1), x[1])
    y = x.clone()
    assert ops.clear(y, [1, 2], "none") is None
    assert same(y, x * 0)


def test_operators_by_device(built: Any, x: torch.Tensor) -> None:
    ops = torch.ops.slim_test
    assert (ops.place(x), ops.place(torch.ones(2))) == ("CUDA", "CPU")
    assert same(ops.copied(x), x)
    assert torch.ops.slim_torch_test.two() == 2  # a macro names the extension
    with pytest.raises(NotImplementedError, match="'slim_test::copied' with arguments"):
        ops.copied(torch.ones(2))


def test_an_operator_that_cannot_be_registered_is_an_error(emulated: Emulation) -> None:
    text = 'TORCH_LIBRARY(slim_wrong, m) { m.def("f(NoType x) -> ()"); }'
    with pytest.raises(RuntimeError, match=r"^TORCH_LIBRARY of slim_wrong:\s+unknown type"):
        cpp_extension.load_inline("wrong", text, is_python_module=False)
