"""PTX types: their widths, the register classes that hold them, the NumPy dtypes of both, and views
between register words and the lanes or values inside them."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nvfp4.emulator import arrays
from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.records.base import Record

Array: TypeAlias = arrays.Array

# A register holds raw bits: one dtype for each register class.
REGISTER_DTYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    "b8": np.dtype(np.uint8),
    "b16": np.dtype(np.uint16),
    "b32": np.dtype(np.uint32),
    "b64": np.dtype(np.uint64),
}


class Type(Record):
    """A PTX operand type: its register class and the NumPy dtype that reads the bits as a value."""

    name: str
    register: str
    value: np.dtype[Any]
    lanes: int = 1

    @property
    def bits(self) -> int:
        """Width of one lane of the type in bits."""
        return 8 * self.value.itemsize

    @property
    def raw(self) -> np.dtype[Any]:
        """The dtype of the words of its registers."""
        return REGISTER_DTYPES[self.register]


# Narrow floats have no NumPy dtype of their own: their value dtype is the raw integer.
TYPES = {
    name: Type(name, register, np.dtype(value), lanes)
    for name, register, value, lanes in (
        *(
            (f"{kind}{8 * size}", f"b{8 * size}", f"{'i' if kind == 's' else 'u'}{size}", 1)
            for kind in "usb"
            for size in (1, 2, 4, 8)
        ),
        ("pred", "pred", "?", 1),
        ("f16", "b16", "u2", 1),
        ("bf16", "b16", "u2", 1),
        ("f32", "b32", "f4", 1),
        ("tf32", "b32", "u4", 1),
        ("f64", "b64", "f8", 1),
        ("f16x2", "b32", "u2", 2),
        ("bf16x2", "b32", "u2", 2),
        ("u16x2", "b32", "u2", 2),
        ("s16x2", "b32", "i2", 2),
        ("f32x2", "b64", "f4", 2),
        *((f"{name}x2", "b16", "u1", 2) for name in ("e4m3", "e5m2", "e2m3", "e3m2", "ue8m0")),
        *((f"{name}x4", "b32", "u1", 4) for name in ("e4m3", "e5m2", "e2m3", "e3m2")),
        ("e2m1x2", "b8", "u1", 2),
        ("e2m1x4", "b16", "u1", 4),
    )
}
# Types of memory that no register class holds.
_WIDE_BITS = {"b128": 128, "u128": 128, "s128": 128, "f128": 128}


def is_type(name: str) -> bool:
    """Whether a part of an opcode is a type."""
    return name in TYPES or name in _WIDE_BITS


def type_bits(name: str) -> int:
    """Width of a type such as `u32` (written without its dot); a predicate has one bit."""
    if name in _WIDE_BITS:
        return _WIDE_BITS[name]
    if name not in TYPES:
        raise PtxSyntaxError(f"unknown type .{name}")
    register = TYPES[name].register
    return 1 if register == "pred" else 8 * REGISTER_DTYPES[register].itemsize


def type_bytes(name: str) -> int:
    """Bytes of a variable of a type."""
    return max(1, type_bits(name) // 8)


def register_class(size_bytes: int) -> str:
    """The register class of `size_bytes` bytes."""
    return f"b{8 * size_bytes}"


def on_values(function: Callable[..., Any], type_: Type) -> Callable[..., Array]:
    """Turn a function of values of `type_` (all sources, one result) into one of register words."""
    dtype, raw = type_.value, type_.raw
    if type_.lanes > 1:
        return on_lanes(function, dtype, raw)

    if dtype == raw:
        return function
    return lambda *words: function(*[word.view(dtype) for word in words]).view(raw)


def on_lanes(
    function: Callable[..., Any], lane: np.dtype[Any], raw: np.dtype[Any]
) -> Callable[..., Array]:
    """Turn a function of arrays of lanes (low lane first) into one of words that pack several
    lanes."""

    def lifted(*words: Array) -> Array:
        shape = common_shape(words)
        return function(*[split(word, shape, lane) for word in words]).view(raw).reshape(shape)

    return lifted


def on_each_lane(function: Callable[..., Any], type_: Type) -> Callable[..., Array]:
    """Lift a function of lanes' raw bits to words of a type; it stays as it is for one lane."""
    lane = np.dtype(f"u{type_.value.itemsize}")
    return on_lanes(function, lane, type_.raw) if type_.lanes > 1 else function


def common_shape(words: tuple[Array, ...]) -> tuple[int, ...]:
    """Return the shape that `words` broadcast to."""
    shape: tuple[int, ...] = words[0].shape
    for word in words:
        if word.shape != shape:
            return np.broadcast(*words).shape
    return shape


def flat(word: Array, shape: tuple[int, ...]) -> Array:
    """Return `word`, broadcast to `shape` and flattened. All compiled loops take such arrays, so
    that none is compiled twice."""
    if word.shape == shape and word.flags.carray:
        return word.reshape(-1)
    whole = np.empty(shape, word.dtype)
    whole[...] = word
    return whole.reshape(-1)


def split(word: Array, shape: tuple[int, ...], lane: np.dtype[Any]) -> Array:
    """Return `word`, broadcast to `shape`, as a flat array of its lanes, low lane first."""
    if word.shape != shape:
        word = np.broadcast_to(word, shape)
    return np.ascontiguousarray(word).reshape(-1).view(lane)
