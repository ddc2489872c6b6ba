"""Torch's operators on CUDA tensors, carried out by the CPU's kernels on the same memory.

Every operator that has a kernel for the CPU or for CUDA gets one for CUDA that hands the CPU's
kernel CPU tensors on the memory of its arguments and makes CUDA tensors of the results. This sits
at the bottom of torch's dispatcher, below autograd, autocast and composite operators, and holds
for all threads.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from nvfp4.capture import activity, host_access, stream_order
from nvfp4.capture.standin import memory
from nvfp4.capture.standin.graphs import OVERWRITING, UNSET, capturable
from nvfp4.capture.standin.scaled_mm import scaled_mm
from nvfp4.capture.torch_memory import put_noise
from nvfp4.records.launch_errors import NeedsGpu

_NAMESPACE = "aten::"

# Operators that only make another view of the same memory: the CPU's kernel does it for any device.
_VIEWS = ("as_strided", "_reshape_alias", "view", "unfold", "view_as_real", "view_as_complex")
_METADATA = (
    *("set_.source_Storage_storage_offset", "set_.source_Storage", "set_.source_Tensor"),
    "is_set_to",
)

_ONLY_SHAPES = (*_VIEWS, *_METADATA, "resize_")

_ALLOCATING = ("empty", "new_empty", "resize_", "set_")
"""Operators that only allocate and put no work into a stream."""

# These take tensors of other devices.
_INDEXING = ("index.Tensor", "index.Tensor_out", "_index_put_impl_", "index_put_", "_unsafe_index")
_ACROSS_DEVICES = (*_INDEXING, "_foreach_copy_")

# cuBLAS has none for integers.
_MATRIX_PRODUCTS = ("mm", "bmm", "addmm", "addbmm", "baddbmm")
_PRODUCTS = (*_MATRIX_PRODUCTS, "addmv", "mv", "dot", "vdot")

# How torch convolves without cuDNN. A filter a channel is apart: a GPU takes no TF32 for it.
_CONVOLUTIONS = ("_slow_conv2d_forward", "slow_conv")

# Where indices are alike, any of their values may be the one that stays.
_STORING = ("scatter.src", "scatter_.src", "index_copy", "put_", "_index_put_impl_")


class Kernels:
    """The operators registered for CUDA; `remove` takes them away.

    generator: the source of random numbers of the device."""

    def __init__(self, generator: torch.Generator) -> None:
        self._library = torch.library.Library("aten", "IMPL")
        special: dict[str, Callable[..., Any]] = {
            **{
                n: partial(memory.operator(n).redispatch, memory.CPU_KEY)
                for n in (*_VIEWS, *_METADATA)
            },
            "copy_": _copy_,
            "resize_": _resize_,
            "_scaled_mm": _scaled_mm,
            "_scaled_mm.out": _scaled_mm_out,
            "_scaled_mm_v2": _scaled_mm_v2,
        }
        kernels = {name: kernel for name, kernel in special.items() if _exists(name)}
        for name in (*_registered("CPU"), *_registered("CUDA"), *_OF_CUDA_ALONE):
            made = _CpuKernel(name, generator)
            unset = name.partition(".")[0] in UNSET
            kernels.setdefault(name, partial(_noisy, made) if unset else made)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kernels of a torch built with CUDA are replaced
            for name, kernel in kernels.items():
                if name not in _ONLY_SHAPES:
                    kernel = activity.busy("emulating")(capturable(name, kernel))
                self._library.impl(name, kernel, "CUDA")

    def remove(self) -> None:
        """Leave torch's dispatcher as it was."""
        self._library._destroy()


def _registered(key: str) -> list[str]:
    """Return the operators that have their own kernel for a dispatch key."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return [name.removeprefix(_NAMESPACE) for name in names if name.startswith(_NAMESPACE)]


def _exists(name: str) -> bool:
    """Whether this version of torch has an operator."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return packet is not None and (overload or "default") in packet.overloads()


class _CpuKernel:
    """An operator. Its schema is read at the first call, because few operators are ever called."""

    def __init__(self, name: str, generator: torch.Generator) -> None:
        self._name = name
        self._generator = generator
        self._operator: Any = None

    def _read_schema(self) -> None:
        found = memory.operator(self._name)
        schema = found._schema
        arguments = schema.arguments
        self._draws = any(each.name == "generator" for each in arguments)
        written = {
            alias: each.name if each.kwarg_only else i
            for i, each in enumerate(arguments)
            if each.alias_info is not None and each.alias_info.is_write
            for alias in each.alias_info.before_set
        }
        self._takes_tensor = [each.type.kind() == "TensorType" for each in arguments]
        self._outputs = [each.name for each in arguments if each.is_out]
        self._written = list(written.values())
        self._overwrites = self._name.partition(".")[0] in OVERWRITING
        # The argument that each result is, None for a new tensor.
        aliases = [each.alias_info for each in schema.returns]
        self._results = [
            next((written[alias] for alias in each.before_set), None) if each else None
            for each in aliases
        ]
        views = bool(aliases) and all(each and not each.is_write for each in aliases)
        self.computes = not views and not self._name.startswith(_ALLOCATING)
        # Last, since other threads ask for it.
        base = self._name.partition(".")[0]
        found = _OF_CUDA_ALONE.get(self._name, found)
        if base in _PRODUCTS and not self._name.endswith(".dtype"):
            found = partial(_in_float32, found)
        if base.rstrip("_") in _MATRIX_PRODUCTS or base.startswith(_CONVOLUTIONS):
            found = partial(_in_tf32, base, found)
        if self._name.startswith(_STORING):
            found = partial(_backwards, base, found)
        self._operator = found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._operator is None:
            self._read_schema()
        _refuse_what_cuda_refuses(self._name, args, kwargs)
        if self._name not in _ACROSS_DEVICES:
            require_one_device((*args, *kwargs.values()), self._name)
            at = self._written
            written = [args[i : i + 1] if isinstance(i, int) else kwargs.get(i) for i in at]
            require_one_device(written)
        if self._draws and kwargs.get("generator") is None:
            kwargs["generator"] = self._generator
        on_cpu = _Aliases()
        cpu_args = [
            scalar_tensor(each, args)
            if takes_tensor and isinstance(each, _NUMBERS)
            else on_cpu(each)
            for each, takes_tensor in zip(args, self._takes_tensor, strict=False)
        ]
        cpu_kwargs = {name: on_cpu(each) for name, each in kwargs.items()}
        inputs = [each for name, each in kwargs.items() if name not in self._outputs]
        on_cpu.read((*args[self._overwrites :], *inputs))
        # An output that is empty may be meant to be resized; its alias cannot be.
        outputs: dict[str, Any] = {name: kwargs.get(name) for name in self._outputs}
        resized = [n for n, out in outputs.items() if torch.is_tensor(out) and not out.numel()]
        for name in resized:
            cpu_kwargs[name] = torch.empty(0, dtype=kwargs[name].dtype)
        results = self._operator(*cpu_args, **cpu_kwargs)
        if self.computes:
            stream_order.operated()
        if host_access.owner.elsewhere:
            for each in self._written:
                if isinstance(each, str):
                    memory.tell_written(cpu_kwargs.get(each))
                elif each < len(cpu_args):
                    memory.tell_written(cpu_args[each])
            if self.computes and not self._written:
                memory.tell_written(results)
        for name in resized:
            replace_contents(kwargs[name], cpu_kwargs[name])
        if len(self._results) == 1:
            return self._result(self._results[0], results, args, kwargs)
        if not self._results:
            return None
        return tuple(
            self._result(source, each, args, kwargs)
            for source, each in zip(self._results, results, strict=True)
        )

    @staticmethod
    def _result(source: Any, value: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if source is not None:
            return kwargs[source] if isinstance(source, str) else args[source]
        if isinstance(value, torch.Tensor):
            return memory.as_cuda(value)
        if isinstance(value, (list, tuple)):
            return [_CpuKernel._result(None, each, args, kwargs) for each in value]
        return value


def _conv_depthwise(x: Any, weight: Any, size: Any, bias: Any, stride: Any, *others: Any) -> Any:
    """Convolve each channel by itself. size: that of the kernel. others: padding, dilation."""
    zeros, convolve = [0] * len(stride), torch.ops.aten.convolution
    return convolve(x, weight, bias, stride, *others, False, zeros, x.shape[1])


def _in_dtype(product: Callable[..., Any], a: Any, b: Any, dtype: torch.dtype) -> Any:
    if dtype != a.dtype and (dtype != torch.float32 or a.dtype.itemsize != 2):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    return product(a.to(dtype), b.to(dtype))


_OF_CUDA_ALONE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("_conv_depthwise2d", "conv_depthwise3d"), _conv_depthwise),
    "mm.dtype": partial(_in_dtype, torch.mm),
    "bmm.dtype": partial(_in_dtype, torch.bmm),
}
"""Operators that the CPU has not, with what computes the same there."""


_SMALL, _UNSIGNED = (torch.float8_e4m3fn, torch.float8_e5m2), (torch.uint16, torch.uint32)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
_NOT_FOR: dict[str, tuple[torch.dtype, ...]] = {
    **dict.fromkeys(("mul", "all", "roll"), (*_SMALL, *_UNSIGNED)),
    **dict.fromkeys(("bitwise_and", "where", "sort", "index"), _UNSIGNED),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "abs"), _SMALL),
    **dict.fromkeys(("histogram", "_histogramdd_bin_edges"), (torch.float32, torch.float64)),
    **dict.fromkeys(("_slow_conv2d_forward", "_conv_depthwise2d"), _INTEGERS),
    **{"max_pool2d_with_indices": _INTEGERS, "avg_pool2d": (torch.int64,)},
    "histc": (torch.float16, torch.bfloat16),
}
"""Types that the CPU's kernels of operators take and CUDA's do not."""
_ALIKE = ("native_layer_norm", "native_group_norm")
"""Operators whose operands have to have one type for CUDA."""


def _in_float32(product: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute a product of float16 matrices in float32 and round once, as a GPU does; torch's own
    float16 product takes a hundred times as long."""
    if {each.dtype for each in args if isinstance(each, torch.Tensor)} != {torch.float16}:
        return product(*args, **kwargs)
    wide = [each.float() if isinstance(each, torch.Tensor) else each for each in args]
    if "out" not in kwargs:
        return product(*wide, **kwargs).half()
    out = kwargs.pop("out")
    result = product(*wide, **kwargs, out=torch.empty(0))
    return out.resize_(result.shape).copy_(result)


def _in_tf32(base: str, product: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute a product of float32 operands, rounded to TF32 where a GPU would round them."""
    first = int("add" in base)
    a, b = args[first : first + 2]
    if "conv" in base:
        # cuDNN 9.19 on an H200 takes float32 for short sums and for one channel in one dimension.
        rounds = torch.backends.cudnn.enabled and b.numel() > 48 * len(b) and a.shape[1:3] != (1, 1)
    else:
        rounds = 1 not in (*a.shape[-2:-1], *b.shape[-1:])
    if rounds and a.dtype == b.dtype == torch.float32 and _allows_tf32("conv" in base):
        args = (*args[:first], _to_tf32(a), _to_tf32(b), *args[first + 2 :])
    return product(*args, **kwargs)


def _allows_tf32(convolves: bool) -> bool:
    """Whether torch's settings let a GPU use TF32 for convolutions, or else for other products."""
    if precision := getattr(torch._C, "_get_fp32_precision_getter", None):  # torch 2.9 or later
        return bool(precision("cuda", "conv" if convolves else "matmul") == "tf32")
    return torch._C._get_cudnn_allow_tf32() if convolves else torch._C._get_cublas_allow_tf32()


def _to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Round float32 to the 10 bits of mantissa of TF32, to nearest, ties away from zero."""
    bits = (tensor.view(torch.int32) + 0x1000) & ~0x1FFF
    return torch.where(tensor.isfinite(), bits.view(torch.float32), tensor)


def _backwards(base: str, store: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Store values at indices from the last one to the first: a GPU has no order, and the CPU's is
    the one that a submission would count on."""
    storage = tensor.untyped_storage().data_ptr()
    with suppress(IndexError, RuntimeError):  # the operator refuses what does not fit
        overlaps = any(e.untyped_storage().data_ptr() == storage for e in memory.tensors_in(args))
        if not overlaps and not torch.are_deterministic_algorithms_enabled():
            args = _flip(base, tensor, *args)
    return store(tensor, *args, **kwargs)


def _flip(base: str, tensor: torch.Tensor, *args: Any) -> tuple[Any, ...]:
    """Return the arguments beside tensor with indices and their values in reversed order."""
    if isinstance(args[0], int):
        dim, index, values = args
        size = index.shape[dim] if base.startswith("scatter") else values.shape[dim]
        return dim, index.flip(dim if index.dim() > 1 else 0), values.narrow(dim, 0, size).flip(dim)
    index, values, *others = args
    if base == "put_":
        return index.flatten().flip(0), values.flatten().flip(0), *others
    if any(each is None or each.element_size() == 1 for each in index):
        return args  # a mask names no element twice
    index = torch.broadcast_tensors(*index)
    dims = tuple(range(index[0].dim()))
    values = values.expand(*index[0].shape, *tensor.shape[len(index) :])
    return [each.flip(dims) for each in index], values.flip(dims), *others


class _Aliases:
    """Arguments for the CPU: each CUDA tensor as one CPU tensor, the CUDA device as the CPU. Those
    that share a storage still do, so that torch sees which overlap."""

    def __init__(self) -> None:
        self._made: dict[int, torch.Tensor] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.is_cuda and id(value) not in self._made:
                self._made[id(value)] = self._alias(value)
            return self._made.get(id(value), value)
        if isinstance(value, (list, tuple)):
            return [self(each) for each in value]
        return cpu_for(value) if isinstance(value, torch.device) else value

    def _alias(self, value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        host_access.owner.opens(storage.data_ptr(), storage.nbytes())
        shared = self._storages.get(storage.data_ptr())
        if shared is None or value.is_conj() or value.is_neg():
            alias = memory.as_cpu(value)
            self._storages[storage.data_ptr()] = alias.untyped_storage()
            return alias
        place = value.storage_offset(), value.size(), value.stride()
        return torch.empty(0, dtype=value.dtype).set_(shared, *place)

    def read(self, values: Any) -> None:
        """Fetch the contents of the CUDA tensors among values."""
        for tensor in memory.tensors_in(values):
            for address, nbytes in memory.byte_runs(self(tensor)) if tensor.is_cuda else ():
                host_access.reads(address, nbytes)


_NUMBERS = (bool, int, float, complex)


def scalar_tensor(number: Any, beside: Any) -> torch.Tensor:
    """Return a number in the place of a tensor, as it reaches Python: a scalar that changes no
    dtype.

    A float keeps its precision beside float64 tensors; elsewhere it has the default dtype.
    """
    doubles = (torch.float64, torch.complex128)
    precise = any(getattr(each, "dtype", None) in doubles for each in beside)
    dtype = torch.float64 if precise and isinstance(number, float) else None
    return torch.tensor(number, dtype=dtype)


def cpu_for(device: torch.device) -> torch.device:
    """Return the CPU in place of the CUDA device; RuntimeError for a device of another number."""
    if device.type == "cuda" and device.index not in (None, 0):
        raise RuntimeError(
            "CUDA error: invalid device ordinal\n"
            f"  hint: the stand-in has one device, cuda:0, not {device}"
        )
    return torch.device("cpu")


@cache
def _taking_cpu_scalars() -> set[str]:
    """Return the operators that take CPU tensors of no dimension beside CUDA tensors."""
    known = Path(torch.__file__).parents[1] / "torchgen/packaged/ATen/native/native_functions.yaml"
    each = known.read_text(encoding="utf-8").split("\n- func: ")
    but = ("lerp.Scalar", "lerp_.Scalar", "addcdiv", "_foreach_lerp")
    names = {text.partition("(")[0] for text in each if "device_check: NoCheck" in text}
    return {name for name in names if not name.startswith(but)}


def require_one_device(values: Any, name: str = "") -> None:
    """Raise RuntimeError, as on a GPU, for CUDA tensors together with CPU tensors, but for scalars
    where an operator takes them."""
    for tensor in memory.tensors_in(values):
        if not tensor.is_cuda and (tensor.dim() > 0 or name not in _taking_cpu_scalars()):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two "
                f"devices, cuda:0 and {tensor.device}!"
            )


def _refuse_what_cuda_refuses(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError, as on a GPU, for arguments that only the CPU's kernels accept."""
    if not args or not isinstance(args[0], torch.Tensor):
        return
    first, base = args[0], name.partition(".")[0].rstrip("_")
    if base in _PRODUCTS and not (first.is_floating_point() or first.is_complex()):
        raise RuntimeError(f"\"{base}_cuda\" not implemented for '{first.type().split('.')[-1]}'")
    refused = _NOT_FOR.get(base, ())
    for each in memory.tensors_in(args) if refused else ():
        if each.dtype in refused:
            raise NotImplementedError(f"\"{base}_cuda\" not implemented for '{each.dtype}'")
    if base in _ALIKE and len({each.dtype for each in memory.tensors_in(args)}) > 1:
        raise RuntimeError(f"expected scalar type {first.dtype} for all operands of {base}")
    if base in _PRODUCTS and kwargs.get("out", first).dtype != first.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {first.dtype}")
    if base == "_int_mm" and (len(first) <= 16 or first.shape[1] % 8 or args[1].shape[1] % 8):
        raise RuntimeError("_int_mm takes more than 16 rows, and multiples of 8 in k and n")
    if name in _INDEXING and not first.is_cuda:
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
        )


def replace_contents(tensor: torch.Tensor, source: torch.Tensor) -> None:
    """Make a CUDA tensor have the sizes, strides and memory of a CPU tensor."""
    fresh = memory.as_cuda(source)
    _set(tensor, fresh.untyped_storage(), 0, fresh.size(), fresh.stride())


def _set(tensor: torch.Tensor, *source: Any) -> None:
    """Set storage, offset, sizes and strides of a CUDA tensor."""
    memory.operator("set_.source_Storage_storage_offset").redispatch(
        memory.CPU_KEY, tensor, *source
    )


def _noisy(kernel: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Create an uninitialised tensor, filled with noise: new pages of the host would be zeros."""
    tensor = memory.aligned(kernel(*args, **kwargs))
    storage = tensor.untyped_storage()
    put_noise(storage.data_ptr(), storage.nbytes())
    return tensor


def _copy_(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between and within devices; FP4 is copied as bytes, as CUDA does."""
    on_cpu = _Aliases()
    on_cpu.read((source,))
    target, values = on_cpu(tensor), _convertible(on_cpu(source), tensor.dtype)
    if target.dtype == values.dtype == torch.float4_e2m1fn_x2:
        target, values = target.view(torch.uint8), values.view(torch.uint8)
    target.copy_(values)
    if tensor.is_cuda and source.is_cuda:
        stream_order.operated()
    if tensor.is_cuda:
        memory.tell_written(target)
    return tensor


def _convertible(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return values that the CPU converts as a GPU does, which saturates 32 or 64 bits."""
    if not values.is_floating_point() or values.dtype.itemsize == 1:
        return values
    if dtype not in (*_INTEGERS, *_UNSIGNED):
        return values
    narrow = torch.uint32 if dtype in _UNSIGNED else torch.int32
    wide = torch.int64 if dtype in (torch.int64, torch.uint8) else narrow
    least, most, precise = torch.iinfo(wide).min, torch.iinfo(wide).max, values.double()
    if bool(((precise >= least) & (precise < most)).all()):
        return values
    unset = least if values.dtype == torch.float64 or wide == torch.int64 else 0
    below = precise.nan_to_num(unset).clamp(least, most - (most >> 53)).to(torch.int64)
    return torch.where(precise >= most, most, below).to(wide)


def _resize_(tensor: torch.Tensor, size: Any, *, memory_format: Any = None) -> torch.Tensor:
    """Resize a tensor and keep its contents, as torch does; memory is never given back."""
    fresh = torch.empty(size, dtype=tensor.dtype, memory_format=memory_format or _contiguous)
    needed = tensor.storage_offset() + fresh.numel()
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    if needed > held:
        fresh = torch.empty(needed, dtype=tensor.dtype)
        put_noise(fresh.data_ptr(), needed * fresh.element_size())
        host_access.reads(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        fresh[:held].copy_(memory.strided_view(memory.as_cpu(tensor), [held], [1], 0))
        memory.tell_written(fresh)
        fresh = memory.strided_view(fresh, size, torch.empty(size, device="meta").stride())
        replace_contents(tensor, fresh)
    else:
        storage, offset = tensor.untyped_storage(), tensor.storage_offset()
        _set(tensor, storage, offset, fresh.size(), fresh.stride())
    return tensor


_contiguous = torch.contiguous_format


def _scaled_mm(*args: Any, **kwargs: Any) -> torch.Tensor:
    require_one_device((*args, *kwargs.values()))
    on_cpu = _Aliases()
    on_cpu.read((*args, *kwargs.values()))
    result = scaled_mm(*map(on_cpu, args), **{name: on_cpu(each) for name, each in kwargs.items()})
    memory.tell_written(result)
    stream_order.operated()
    return memory.as_cuda(result)


def _scaled_mm_v2(mat1: torch.Tensor, mat2: torch.Tensor, *given: Any) -> torch.Tensor:
    """Implement the operator of torch.nn.functional.scaled_mm, for one level of scales."""
    scale_a, _, swizzle_a, scale_b, _, swizzle_b, bias, out_dtype, *_ = given
    in_tiles = [[1], [1]] if scale_a[0].element_size() == 1 else [[], []]
    swizzles = [[each for each in swizzle if each] for swizzle in (swizzle_a, swizzle_b)]
    if len(scale_a) != 1 or len(scale_b) != 1 or swizzles != in_tiles:
        raise NeedsGpu(
            "torch.nn.functional.scaled_mm without a GPU supports one scale tensor an operand, "
            "block scales with SwizzleType.SWIZZLE_32_4_4"
        )
    return _scaled_mm(mat1, mat2, scale_a[0], scale_b[0], bias, None, out_dtype)


def _scaled_mm_out(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    result = _scaled_mm(*args, **kwargs)
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)
