"""A CUDA device where there is none: what tensors say, what operators do, what comes back."""

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
import torch

from nvfp4.capture import activity, standin

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")


@pytest.fixture(scope="module")
def stand_ins() -> Iterator[list[standin.StandIn]]:
    """The last one is installed, unless a test has uninstalled it."""
    found: list[standin.StandIn] = []
    yield found
    found[-1].uninstall()


@pytest.fixture(autouse=True)
def installed(stand_ins: list[standin.StandIn]) -> standin.StandIn:
    if not standin.is_installed():
        stand_ins.append(standin.install())
    return stand_ins[-1]


NAMES_OF_THE_DEVICE = ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0), 0]


def made(name: str, what: Any, device: Any) -> Any:
    return getattr(torch, name)(what, device=device)


BY_SIZE = ("empty", "zeros", "ones", "rand", "randperm", "arange", "eye")
FACTORIES: list[Callable[..., torch.Tensor]] = [
    *(partial(made, name, 4) for name in BY_SIZE),
    *(partial(made, name, [1.0, 2.0]) for name in ("tensor", "as_tensor", "asarray")),
    lambda device: torch.full((2,), 7, device=device),
    lambda device: torch.randn(2, device=device, dtype=torch.float16),
    lambda device: torch.randint(0, 4, (2,), device=device, dtype=torch.uint8),
    lambda device: torch.linspace(0, 1, 4, device=device),
    lambda device: torch.empty_strided((2, 3), (1, 2), device=device),
    lambda device: torch.empty_like(torch.ones(2), device=device),
    lambda device: torch.ones(2).to(device),
    lambda device: torch.ones(2).to(device, torch.float16),
    lambda device: torch.ones(2).to(device=device, non_blocking=True),
    lambda device: torch.ones(2).cuda(device),
]


def assert_cuda(tensor: torch.Tensor) -> None:
    assert type(tensor) is torch.Tensor
    assert tensor.is_cuda
    assert tensor.device == torch.device("cuda:0")
    assert tensor.get_device() == 0


@pytest.mark.parametrize("device", NAMES_OF_THE_DEVICE, ids=repr)
@pytest.mark.parametrize("make", FACTORIES, ids=range(len(FACTORIES)))
def test_every_factory_takes_every_name_of_the_device(
    make: Callable[..., torch.Tensor], device: Any
) -> None:
    assert_cuda(make(device))


@pytest.mark.parametrize(
    "make",
    [
        *(torch.zeros_like, torch.rand_like, torch.clone),
        lambda like: like.new_zeros(3),
        lambda like: like.new_empty(3),
        lambda like: like.new_full((3,), 2.0),
        lambda like: like.new_tensor([1.0]),
        lambda like: torch.ones(2).to(like),
        lambda like: like.view(2, 3).t().contiguous(),
        lambda like: like[1:3],
        lambda like: like[like > 1],
        lambda like: like[torch.tensor([0, 2])],
        lambda like: like + 1,
        lambda like: torch.tensor(2.0) * like,
        lambda like: torch.cat([like, like]),
        lambda like: torch.stack([like, like]).sum(dim=0),
        lambda like: like.to(torch.float8_e4m3fn),
        lambda like: torch.nn.functional.softmax(like, dim=0),
        lambda like: torch.ones(2).type("torch.cuda.HalfTensor"),
    ],
)
def test_what_comes_from_a_cuda_tensor_is_a_cuda_tensor(
    make: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    assert_cuda(make(torch.arange(6.0, device="cuda")))


def test_cpu_tensors_stay_on_the_cpu() -> None:
    for tensor in (
        torch.ones(2),
        torch.ones(2, device="cpu"),
        torch.ones(2, device="cuda").cpu(),
        torch.ones(2, device="cuda").to("cpu"),
        torch.ones(2) + 1,
    ):
        assert not tensor.is_cuda
        assert tensor.device == torch.device("cpu")
        assert tensor.get_device() == -1


def test_a_device_without_a_number_is_not_the_device_of_a_tensor_as_on_a_gpu() -> None:
    tensor = torch.ones(2, device="cuda")
    assert tensor.device != torch.device("cuda")
    assert tensor.device.type == "cuda"
    assert str(tensor.device) == "cuda:0"


def test_an_adopted_tensor_keeps_memory_sizes_strides_and_offset() -> None:
    host = torch.randn(4, 7, 1).half().permute(1, 2, 0)[2:]
    tensor = standin.adopt(host)
    assert_cuda(tensor)
    assert tensor.data_ptr() == host.data_ptr()
    assert (tensor.shape, tensor.stride()) == (host.shape, host.stride())
    assert tensor.storage_offset() == host.storage_offset()
    tensor.zero_()
    assert not host.any()


def test_host_view_undoes_adopt() -> None:
    host = torch.arange(6).view(2, 3)
    back = standin.host_view(standin.adopt(host))
    assert not back.is_cuda
    assert back.data_ptr() == host.data_ptr()
    assert torch.equal(back, host)


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.bfloat16, torch.float64, torch.complex64),
        *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
        torch.float4_e2m1fn_x2,
    ],
    ids=str,
)
def test_every_dtype_can_be_adopted_copied_and_read_back(dtype: torch.dtype) -> None:
    raw = torch.randint(0, 2, (4, 16), dtype=torch.uint8)
    copy = standin.adopt(raw.view(dtype)).clone().t().contiguous().t().contiguous()
    assert copy.dtype == dtype
    assert torch.equal(copy.cpu().view(torch.uint8), raw)


def test_the_memory_of_an_adopted_tensor_outlives_the_cpu_tensor() -> None:
    tensor = standin.adopt(torch.full((1 << 16,), 3))
    torch.zeros(1 << 16)
    assert int(tensor.sum()) == 3 << 16


def test_views_share_memory_and_in_place_operators_write_it() -> None:
    tensor = torch.zeros(4, 4, device="cuda")
    view = tensor.view(2, 8)[1]
    assert view.data_ptr() == tensor.data_ptr() + 32
    assert view.fill_(1) is view
    tensor[0, 0] = 5
    tensor[0, 1:3] = torch.tensor([6.0, 7.0], device="cuda")
    assert tensor.flatten().tolist() == [5, 6, 7, 0] + [0] * 4 + [1] * 8


def test_views_that_are_conjugated_or_negated_when_read_have_their_values() -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j], device="cuda")
    assert (numbers * numbers.conj()).tolist() == [5, 25]
    assert (numbers.conj().imag + 1).tolist() == [-1, 5]
    numbers.conj().imag.fill_(1)
    assert numbers.cpu().tolist() == [1 - 1j, 3 - 1j]


ones = partial(torch.ones, device="cuda")


def twice(x: torch.Tensor, mode: str) -> torch.Tensor:
    double = torch.compile(lambda y: y * 2, mode=mode)
    first, second = double(x), double(x)
    return first + second


mixed = "Expected all tensors to be on the same device"
REFUSED: list[tuple[Callable[[torch.Tensor, torch.Tensor], object], str]] = [
    (lambda cpu, cuda: cpu + cuda, mixed),
    (lambda cpu, cuda: cuda.mul_(cpu), mixed),
    (lambda cpu, cuda: cuda @ cpu, mixed),
    (lambda cpu, cuda: torch.cat([cuda, cpu]), mixed),
    (lambda cpu, cuda: torch.where(cuda > 0, cuda, cpu), mixed),
    (lambda cpu, cuda: torch.add(cuda, cuda, out=cpu), mixed),
    (lambda cpu, cuda: torch.nn.functional.linear(cuda, cpu), mixed),
    (lambda cpu, cuda: cpu[cuda.long()], r"same device as the indexed tensor \(cpu\)"),
    (lambda cpu, cuda: cuda.half() @ cuda, "same dtype"),
    (lambda cpu, cuda: cuda.int() @ cuda.int(), "not implemented for 'IntTensor'"),
    (lambda cpu, cuda: cuda.int() @ cuda.int()[0], "not implemented for 'IntTensor'"),
    # As an H200 with torch 2.11 does:
    (lambda cpu, cuda: cuda.to(torch.float8_e5m2) @ cuda.to(torch.float8_e5m2), "'torch.float8"),
    (lambda cpu, cuda: cuda.to(torch.uint16).mul_(2), "not implemented for 'torch.uint16'"),
    (lambda cpu, cuda: torch.conv2d(cuda.int()[None, None], cuda.int()[None, None]), "int32"),
    (lambda cpu, cuda: torch.max_pool2d(cuda.long()[None], 2), "not implemented for 'torch.int64"),
    (lambda cpu, cuda: torch.histogram(cuda, 4), "not implemented for 'torch.float32'"),
    (lambda cpu, cuda: torch._int_mm(cuda.char(), cuda.char()), "more than 16 rows"),
    (lambda cpu, cuda: torch.tensor(0.0).add_(cuda.sum()), mixed),
    (lambda cpu, cuda: torch.clamp(cuda, torch.tensor(0.0)), mixed),
    (lambda cpu, cuda: torch.exp(cuda, out=torch.tensor(0.0)), mixed),
    (lambda cpu, cuda: torch.mm(cuda, cuda, out=ones(2, 2).half()), "out tensor to have dtype"),
    (lambda cpu, cuda: torch.mm(cuda, cuda, out_dtype=torch.float16), "out_dtype must be"),
    (lambda cpu, cuda: torch.layer_norm(cuda.half(), (2,), cuda[0]), "expected scalar type"),
    (lambda cpu, cuda: torch.group_norm(cuda.bfloat16(), 2, cuda[0]), "expected scalar type"),
    (lambda cpu, cuda: torch.compile(len, mode="fastest"), "Unrecognized mode=fastest"),
    (lambda cpu, cuda: cuda.pin_memory(), "only dense CPU tensors"),
    (lambda cpu, cuda: cuda.numpy(), "can't convert cuda:0 device type tensor to numpy"),
    (lambda cpu, cuda: cpu.to("cuda:1"), "invalid device ordinal"),
    (lambda cpu, cuda: torch.zeros(2, device="cuda:1"), "invalid device ordinal"),
    (lambda cpu, cuda: cuda.byte().view(torch.float4_e2m1fn_x2).half(), ""),
]


@pytest.mark.parametrize(("use", "why"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_gpu_refuses_is_refused(
    use: Callable[[torch.Tensor, torch.Tensor], object], why: str
) -> None:
    with pytest.raises((RuntimeError, TypeError), match=why):
        use(torch.ones(2, 2), torch.ones(2, 2, device="cuda"))


GIVEN: list[tuple[Callable[[torch.Tensor], torch.Tensor], list[int]]] = [
    (lambda x: x.resize_(2, 3).flatten()[:4], [0, 1, 2, 3]),
    (lambda x: torch.add(x, x, out=torch.empty(4, device="cuda")), [0, 2, 4, 6]),
    (lambda x: torch.add(x, x, out=torch.empty(0, device="cuda")), [0, 2, 4, 6]),
    (lambda x: torch.zeros(4).copy_(x), [0, 1, 2, 3]),
    (lambda x: x.copy_(torch.ones(4)), [1, 1, 1, 1]),
    (lambda x: torch.ones(3).pin_memory().cuda(non_blocking=True), [1, 1, 1]),
    (lambda x: torch.ones(3, device="cuda").to("cpu", non_blocking=True), [1, 1, 1]),
    (lambda x: torch.ones(3, pin_memory=True).cuda(), [1, 1, 1]),
    (lambda x: x[torch.tensor([1, 3])], [1, 3]),
    (lambda x: torch.conv1d(ones(1, 2, 4), 3 * ones(2, 1, 1), groups=2)[0, 1], [3, 3, 3, 3]),
    (lambda x: torch.tensor(torch.cuda.Stream.priority_range()), [0, -5]),
    (lambda x: torch.compile(lambda y: y * 2, mode="max-autotune")(x), [0, 2, 4, 6]),
    (lambda x: twice(x, "reduce-overhead"), [1, 3, 5, 7]),  # of the first call nothing is left
    (lambda x: twice(x, "default"), [0, 4, 8, 12]),
    (lambda x: (ones(4) * 1e12).int(), [2**31 - 1] * 4),
    (lambda x: (ones(4) * -1e30).long(), [-(2**63)] * 4),
    (lambda x: (ones(4) / 0).to(torch.uint8), [255] * 4),
    (lambda x: (ones(4).half() * torch.nan).int(), [0] * 4),
    (lambda x: torch.mm(ones(1, 4).half(), ones(4, 4).half(), out_dtype=torch.float)[0], [4] * 4),
    (lambda x: torch.func.jvp(torch.square, (x.float(),), (ones(4),))[1], [0, 2, 4, 6]),
]


@pytest.mark.parametrize(("use", "values"), GIVEN, ids=range(len(GIVEN)))
def test_what_a_gpu_gives_is_given(
    use: Callable[[torch.Tensor], torch.Tensor], values: list[int]
) -> None:
    x = torch.arange(4, device="cuda")
    assert repr(x) == "tensor([0, 1, 2, 3], device='cuda:0')"
    assert use(x).tolist() == values


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(
    "compute",
    [
        *(lambda x: x + 1, lambda x: x * 0.1, lambda x: x / 3, lambda x: 2 - x.int()),
        *(lambda x: x.int() & 15, lambda x: x.to(torch.uint8) >> 4, lambda x: x > 2),
        *(lambda x: torch.where(x > 2, x, 0.1), lambda x: torch.pow(2.0, x.float())),
        *(lambda x: torch.clamp(x, 1, 3), lambda x: x.float().masked_fill(x > 1, float("-inf"))),
        lambda x: torch.fmod(x, 3),
        lambda x: torch.maximum(x, torch.tensor(2, dtype=x.dtype, device=x.device)),
        lambda x: (x == 2) | False,
    ],
)
def test_numbers_beside_tensors_give_values_and_dtypes_of_the_cpu(
    compute: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    host = torch.arange(5).to(dtype)
    result = compute(host.cuda())
    assert_cuda(result)
    assert result.dtype == compute(host).dtype
    assert torch.equal(result.cpu(), compute(host))


def test_operators_on_lists_of_tensors_work() -> None:
    xs = [torch.ones(2, device="cuda"), torch.arange(3.0, device="cuda")]
    torch._foreach_add_(xs, 1)
    assert [x.tolist() for x in torch._foreach_mul(xs, 2)] == [[4, 4], [2, 4, 6]]
    torch._foreach_copy_(xs, [torch.zeros(2), torch.zeros(3)])
    assert [x.tolist() for x in xs] == [[0, 0], [0, 0, 0]]


def test_threads_of_a_submission_see_the_device() -> None:
    with ThreadPoolExecutor() as pool:
        result = pool.submit(lambda: torch.ones(2, device="cuda") + 1).result()
    assert_cuda(result)
    assert result.tolist() == [2, 2]


def test_device_contexts_and_the_default_device_make_cuda_tensors() -> None:
    with torch.device("cuda"):
        assert_cuda(torch.zeros(2))
        assert_cuda(torch.tensor([1]))
        assert torch.zeros(2, device="cpu").device.type == "cpu"
    torch.set_default_device("cuda")
    try:
        assert_cuda(torch.rand(2))
    finally:
        torch.set_default_device(None)
    assert not torch.zeros(2).is_cuda


def test_modules_move_to_the_device() -> None:
    layer = torch.nn.Linear(4, 2).cuda()
    with torch.inference_mode():
        assert_cuda(layer(torch.ones(3, 4, device="cuda")))
    assert next(torch.nn.Linear(4, 2).to("cuda").parameters()).is_cuda


def test_autocast_lowers_matrix_products() -> None:
    x = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        assert (x @ x).dtype == torch.float16
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: a @ b,
        lambda a, b: torch.mm(a, b, out=torch.empty(64, 64, dtype=a.dtype, device="cuda")),
        lambda a, b: torch.mm(a, b, out=torch.empty(0, dtype=a.dtype, device="cuda")),
        lambda a, b: (a[None] @ b[None])[0],
        lambda a, b: torch.addmm(torch.zeros_like(a), a, b),
    ],
)
def test_products_of_float16_are_rounded_once(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        host = torch.rand(2, 64, 64).half()
    found = product(*host.to("cuda"))
    assert_cuda(found)
    assert torch.equal(found.cpu(), (host[0].float() @ host[1].float()).half())


SUMS: dict[str, Callable[[Callable[..., torch.Tensor]], torch.Tensor]] = {
    "conv2d": lambda x: torch.conv2d(x(1, 16, 4, 4), ones(1, 16, 2, 2)),
    "transposed": lambda x: torch.conv_transpose2d(x(1, 64, 1, 1), ones(64, 1, 7, 7)),
    "depthwise": lambda x: torch.conv2d(x(1, 4, 8, 8), ones(4, 1, 8, 8), groups=4),
    "mm": lambda x: x(2, 64) @ ones(64, 2),
    "baddbmm": lambda x: torch.baddbmm(0 * ones(1, 2, 2), x(1, 2, 64), ones(1, 64, 2)),
    "mv": lambda x: x(2, 64) @ ones(64),
}


@pytest.mark.parametrize(
    ("name", "setting", "value", "rounded"),
    [
        *((name, "cudnn.enabled", True, name in ("conv2d", "transposed")) for name in SUMS),
        *((name, "cuda.matmul.allow_tf32", True, "v" not in name) for name in list(SUMS)[3:]),
        ("mm", "cuda.matmul.fp32_precision", "tf32", True),
        ("conv2d", "cudnn.allow_tf32", False, False),
        ("conv2d", "cudnn.enabled", False, False),
    ],
)
def test_products_take_tf32_where_torch_lets_a_gpu_take_it(
    name: str, setting: str, value: Any, rounded: bool
) -> None:
    library, _, key = setting.rpartition(".")
    settings = attrgetter(library)(torch.backends)
    before = getattr(settings, key)
    between = 1 + 2**-11  # half-way between two numbers of TF32
    setattr(settings, key, value)
    try:
        found = SUMS[name](lambda *sizes: torch.full(sizes, between, device="cuda")) / 64
    finally:
        setattr(settings, key, before)
    assert found.unique().tolist() == [1 + 2**-10 if rounded else between]


@pytest.mark.parametrize("store", ["scatter_ 0", "index_copy_ 0", "put_", "index_put_"])
def test_of_values_stored_at_one_index_the_last_need_not_stay(store: str) -> None:
    name, *dim = store.split()
    index = torch.tensor([1, 1], device="cuda")
    where = (index,) if name == "index_put_" else index
    getattr(x := 0 * ones(2), name)(*map(int, dim), where, ones(2).cumsum(0))
    assert x.tolist() == [0, 1]


def test_the_same_seed_gives_the_same_numbers_and_leaves_those_of_the_cpu_alone() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        first, host = torch.rand(4, device="cuda"), torch.rand(4)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(4), host)
        assert torch.equal(torch.rand(4, device="cuda"), first)
        torch.cuda.manual_seed(5)
        assert torch.equal(torch.rand(4, device="cuda"), first)
        generator = torch.Generator(device="cuda").manual_seed(5)
        assert isinstance(generator, torch.Generator)
        assert torch.equal(torch.rand(4, device="cuda", generator=generator), first)


def test_dlpack_and_the_cuda_array_interface_say_cuda() -> None:
    tensor = torch.arange(4, device="cuda")
    assert tuple(map(int, tensor.__dlpack_device__())) == (2, 0)
    assert torch.from_dlpack(tensor).data_ptr() == tensor.data_ptr()
    assert "dltensor" in repr(tensor.__dlpack__(stream=1))
    assert tensor.__cuda_array_interface__["data"][0] == tensor.data_ptr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(1 << 20, device="cuda"),
        lambda: torch.ones(1, device="cuda").new_empty(64),
        lambda: torch.empty_strided((8, 8), (8, 1), device="cuda"),
        lambda: torch.zeros(2, device="cuda").resize_(66)[2:],
    ],
)
def test_what_nobody_has_set_is_not_zero(make: Callable[[], torch.Tensor]) -> None:
    made = make().flatten()[:64]
    assert made.numel() == 64 and made.ne(0).all()


def test_the_time_of_an_operator_is_not_the_submissions_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = torch.ones(2, device="cuda")
    told: list[Any] = []
    monkeypatch.setattr(activity, "_tell", told.append)
    numbers.view(2, 1).add_(1)
    assert told == ["emulating", "running"]


def test_a_deep_copy_is_a_cuda_tensor_of_its_own() -> None:
    tensor = torch.arange(6, device="cuda").view(2, 3).T
    copied = copy.deepcopy(tensor)
    tensor.zero_()
    assert copied.is_cuda
    assert copied.tolist() == [[0, 3], [1, 4], [2, 5]]
