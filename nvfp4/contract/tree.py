"""Nested data of tensors: a record of its structure, and the storages as flat bytes.

Tensors travel between processes as bytes beside this record; nothing is unpickled. Views and
aliases survive, because a leaf names its storage.
"""

import math
import re
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import asdict, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch

from nvfp4.records.base import Record
from nvfp4.records.channel import NotPlain, record

OnHost = Callable[[torch.Tensor], torch.Tensor]
"""Gives a tensor of a stand-in device on the same memory of the CPU."""
Adopt = Callable[[torch.Tensor, str], torch.Tensor]
"""Gives a tensor as the receiver is to see it, from the tensor and the device of its storage."""

_plain = (bool, int, float, str, type(None))

most_leaves = 4096
"""Limit on the leaves, and on the storages, of a tree that another process has made."""

_deepest, _most_dimensions = 32, 64
_LARGEST = 2**50

TAKEN = ["float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"]
"""Dtypes of an output that a checker can compare, besides the expected one."""


class TreeError(ValueError):
    """Data hold what cannot travel, or a record describes no data."""


class Leaf(Record):
    """A tensor."""

    path: str
    """Such as ``data[0][1]``, or a name of the problem's own."""
    storage: int
    """The number of its storage."""
    dtype: str
    """Without ``torch.``."""
    shape: list[int]
    strides: list[int]
    """In elements."""
    offset: int = 0
    """In elements, from the start of the storage."""
    dimensions: list[list[str]] = field(default_factory=list)
    """For messages: by dimension, what an index counts and the name of the size."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return dtype_of(self.dtype).itemsize


class Storage(Record):
    """Bytes that leaves lie in."""

    nbytes: int
    device: str = "cuda"
    """cuda or cpu."""


class Tree(Record):
    """A structure of tensors and plain values."""

    skeleton: Any
    """The structure as JSON: {"leaf": number}, {"value": value}, {"tuple": [...]}, {"list": [...]},
    {"dict": [[key, ...], ...]} or, for a named tuple, {"named": [[name, ...], ...]}."""
    leaves: list[Leaf]
    storages: list[Storage]

    @property
    def first_leaves(self) -> list[Leaf]:
        """The first leaf of each storage; other leaves are views of the same memory."""
        found: dict[int, Leaf] = {}
        for leaf in self.leaves:
            found.setdefault(leaf.storage, leaf)
        return [found[number] for number in range(len(self.storages))]

    @property
    def names(self) -> list[str]:
        """A name for each storage: the path of its first leaf."""
        return [leaf.path for leaf in self.first_leaves]

    @property
    def single(self) -> Leaf | None:
        """The leaf of data that are one tensor."""
        return self.leaves[0] if self.skeleton == {"leaf": 0} else None

    def named(
        self, names: Sequence[str], dimensions: dict[str, tuple[tuple[str, str], ...]]
    ) -> "Tree":
        """Return the same tree with other names of the leaves, and words for their dimensions.
        ``b1`` and ``a[3]`` take those of b and a unless they have their own."""
        leaves = []
        for leaf, name in zip(self.leaves, names, strict=True):
            words = dimensions.get(name, dimensions.get(re.sub(r"\[\d+\]|\d+", "", name), ()))
            leaves.append(replace(leaf, path=name, dimensions=[list(pair) for pair in words]))
        return replace(self, leaves=leaves)

    def to_plain(self) -> dict[str, Any]:
        """Return the tree as values of JSON."""
        return asdict(self)


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name. Raises TreeError."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or name.startswith("q"):  # quantized: never copied
        raise TreeError(f"{name[:40]!r} is no dtype")
    return found


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype, as a leaf has it."""
    return str(dtype).removeprefix("torch.")


def tree_of(plain: Any) -> Tree:
    """Read a record of another process. Raises TreeError unless it describes data."""
    try:
        tree = record(Tree, plain)
    except NotPlain as error:
        raise TreeError(str(error)) from None
    leaves, storages = tree.leaves, tree.storages
    if len(leaves) > most_leaves or len(storages) > most_leaves:
        raise TreeError(f"there are more than {most_leaves} tensors")
    for storage in storages:
        if not 0 <= storage.nbytes < _LARGEST or storage.device not in ("cuda", "cpu"):
            raise TreeError("a storage has no size")
    for leaf in leaves:
        elements = math.prod(size or 1 for size in leaf.shape[:_most_dimensions])
        numbers = [*leaf.shape, *leaf.strides, leaf.offset, leaf.storage, elements]
        sizes = all(0 <= each < _LARGEST for each in numbers)
        dimensions = len(leaf.strides) == len(leaf.shape) <= _most_dimensions
        if not sizes or not dimensions or leaf.storage >= len(storages):
            raise TreeError("a tensor is not described")
        if span_bytes(leaf) > storages[leaf.storage].nbytes:
            raise TreeError("a tensor reaches past its storage")
    if len({leaf.storage for leaf in leaves}) != len(storages):
        raise TreeError("a storage has no tensor")
    _check_skeleton(tree.skeleton, len(leaves), _deepest)
    return tree


def span_bytes(leaf: Leaf) -> int:
    """Bytes from the start of the storage to the end of the leaf's last element."""
    if 0 in leaf.shape:
        return 0
    last = sum((size - 1) * step for size, step in zip(leaf.shape, leaf.strides, strict=True))
    return (leaf.offset + last + 1) * leaf.itemsize


def _check_skeleton(skeleton: Any, leaves: int, depth: int) -> None:
    if not isinstance(skeleton, dict) or len(skeleton) != 1 or depth == 0:
        raise TreeError("the structure of data is not described")
    ((kind, content),) = skeleton.items()
    if kind == "leaf":
        if type(content) is not int or not 0 <= content < leaves:
            raise TreeError("the structure names a tensor that is not there")
    elif kind == "value":
        if type(content) not in _plain:
            raise TreeError("a value is not plain")
    elif kind in ("tuple", "list") and isinstance(content, list):
        for each in content:
            _check_skeleton(each, leaves, depth - 1)
    elif kind in ("dict", "named") and isinstance(content, list):
        for each in content:
            if not isinstance(each, list) or len(each) != 2 or type(each[0]) not in _plain:
                raise TreeError("a key is not plain")
            _check_skeleton(each[1], leaves, depth - 1)
        if kind == "named":
            try:
                _named(tuple(name for name, _ in content))
            except (TypeError, ValueError):
                raise TreeError("a name is none of a field") from None
    else:
        raise TreeError("the structure of data is not described")


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two flat uint8 tensors are equal. torch compares eight bytes as fast as
    one."""
    words = one.numel() // 8 * 8
    return (
        one.numel() == other.numel()
        and torch.equal(one[words:], other[words:])
        and torch.equal(one[:words].view(torch.int64), other[:words].view(torch.int64))
    )


def flatten(
    data: Any, root: str = "data", on_host: OnHost = lambda tensor: tensor
) -> tuple[Tree, list[torch.Tensor]]:
    """Return the tree of data, and its storages as flat uint8 tensors, not copied.

    Raises TreeError for what is neither a tensor, a plain value, a tuple, a list nor a dict.
    """
    found = _Flattened(on_host)
    return Tree(found.walk(data, root, _deepest), found.leaves, found.storages), found.flat


class _Flattened:
    """Flattens data. It is a class because a nested recursive function would keep its tensors until
    Python collects garbage."""

    def __init__(self, on_host: OnHost) -> None:
        self.leaves: list[Leaf] = []
        self.storages: list[Storage] = []
        self.flat: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._on_host = on_host

    def _storage_of(self, tensor: torch.Tensor) -> int:
        held = self._on_host(tensor)
        storage = held.untyped_storage()
        key = storage.data_ptr() or id(tensor)
        if key not in self._numbers:
            self._numbers[key] = len(self.flat)
            self.flat.append(torch.empty(0, dtype=torch.uint8, device=held.device).set_(storage))
            self.storages.append(Storage(storage.nbytes(), tensor.device.type))
        return self._numbers[key]

    def walk(self, value: Any, path: str, depth: int) -> Any:
        """Return the skeleton of a value; depth: how deep it may be nested."""
        if depth == 0:
            raise TreeError(f"{path} is nested too deeply")
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.is_quantized:
                raise TreeError(f"{path} is a tensor with layout {value.layout}")
            storage, dtype = self._storage_of(value), name_of(value.dtype)
            shape, strides = list(value.shape), list(value.stride())
            self.leaves.append(Leaf(path, storage, dtype, shape, strides, value.storage_offset()))
            return {"leaf": len(self.leaves) - 1}
        if type(value) in _plain:
            return {"value": value}
        if isinstance(value, (tuple, list)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            listed = [self.walk(e, f"{path}[{n}]", depth - 1) for n, e in enumerate(value)]
            names = getattr(value, "_fields", ())
            if kind == "tuple" and names and len(names) == len(listed):
                return {"named": [list(pair) for pair in zip(names, listed, strict=True)]}
            return {kind: listed}
        if isinstance(value, dict):
            walked = {key: self.walk(e, f"{path}[{key!r}]", depth - 1) for key, e in value.items()}
            return {"dict": [list(pair) for pair in walked.items()]}
        raise TreeError(f"{path} is a {type(value).__name__}")


def view(leaf: Leaf, flat: torch.Tensor) -> torch.Tensor:
    """Return a leaf over its flat uint8 storage."""
    dtype = dtype_of(leaf.dtype)
    # FP4 has no strided views of its own: bytes are viewed first.
    held = flat[: span_bytes(leaf)] if flat.numel() % dtype.itemsize else flat
    typed = held if dtype.itemsize == 1 else held.view(dtype)
    shaped = typed.as_strided(leaf.shape, leaf.strides, typed.storage_offset() + leaf.offset)
    return shaped.view(dtype) if dtype.itemsize == 1 and dtype != torch.uint8 else shaped


def build(
    tree: Tree, flat: Sequence[torch.Tensor], adopt: Adopt = lambda tensor, device: tensor
) -> Any:
    """Return the data of a tree over its storages."""
    tensors = [
        adopt(view(leaf, flat[leaf.storage]), tree.storages[leaf.storage].device)
        for leaf in tree.leaves
    ]
    return _made(tree.skeleton, tensors)


def _made(skeleton: Any, tensors: list[torch.Tensor]) -> Any:
    ((kind, content),) = skeleton.items()
    if kind == "leaf":
        return tensors[content]
    if kind == "value":
        return content
    if kind in ("dict", "named"):
        made = {key: _made(each, tensors) for key, each in content}
        return made if kind == "dict" else _named(tuple(made))(*made.values())
    return (tuple if kind == "tuple" else list)(_made(each, tensors) for each in content)


@lru_cache(maxsize=64)
def _named(names: tuple[str, ...]) -> Any:
    return namedtuple("Data", names)


def tensors_of(data: Any) -> list[torch.Tensor]:
    """Return the tensors of nested data, in their order."""
    if isinstance(data, torch.Tensor):
        return [data]
    if isinstance(data, dict):
        data = list(data.values())
    if not isinstance(data, (tuple, list)):
        return []
    return [tensor for each in data for tensor in tensors_of(each)]


_aligned_bytes = 256


def packed(tree: Tree) -> Tree:
    """Return the tree of the same data where each leaf fills a storage of its own; its dimensions
    keep their order in memory. A dense leaf keeps its strides, also those of dimensions of size 1:
    torch copies many such leaves by one kernel."""
    leaves, storages = [], []
    for number, leaf in enumerate(tree.leaves):
        size = torch.Size(leaf.shape)
        strides, step = list(leaf.strides), 1
        for dimension in reversed(outermost_first(leaf)):
            if size[dimension] > 1:
                strides[dimension], step = step, step * size[dimension]
        leaves.append(replace(leaf, storage=number, strides=strides, offset=0))
        storages.append(Storage(size.numel() * leaf.itemsize))
    return Tree(tree.skeleton, leaves, storages)


def outermost_first(leaf: Leaf) -> list[int]:
    """Return the dimensions of a leaf in the order in which they lie; those of one element come
    first."""
    wide = [size > 1 for size in leaf.shape]
    return sorted(range(len(leaf.shape)), key=lambda each: (wide[each], -leaf.strides[each]))


def places(tree: Tree) -> list[int]:
    """Where each storage begins if all lie one after the other, and where the last ends."""
    return list(accumulate((room_for([storage.nbytes]) for storage in tree.storages), initial=0))


def room_for(sizes: Sequence[int]) -> int:
    """Bytes that storages of these sizes take one after the other."""
    return sum(-(-size // _aligned_bytes) * _aligned_bytes for size in sizes)


def parts(tree: Tree, raw: torch.Tensor) -> list[torch.Tensor]:
    """Return the storages in flat uint8 memory where they lie one after the other."""
    held = zip(places(tree), tree.storages, strict=False)
    return [raw[at : at + storage.nbytes] for at, storage in held]


def is_packed(tree: Tree, room_bytes: int) -> bool:
    """Return whether a tree from another process is packed and fits into ``room_bytes``."""
    return tree == packed(tree) and places(tree)[-1] <= room_bytes


def is_like(tree: Tree, expected: Tree) -> bool:
    """Whether an output has tensors of the expected shapes and of dtypes that can be compared."""
    pairs = zip(tree.leaves, expected.leaves, strict=False)
    alike = all(a.shape == b.shape and a.dtype in (b.dtype, *TAKEN) for a, b in pairs)
    single = expected.single is None or tree.single is not None
    return alike and single and len(tree.leaves) == len(expected.leaves)
