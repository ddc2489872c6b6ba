"""Views between register words and the lanes or values inside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, Type


def on_values(function: Callable[..., Any], type_: Type) -> Callable[..., Array]:
    """Lift a function of values of `type_` (all sources, one result) to register words."""
    dtype, raw = type_.value, REGISTER_DTYPES[type_.register]
    if type_.lanes > 1:
        return on_lanes(function, dtype, raw)

    if dtype == raw:
        return function

    def lifted(*words: Array) -> Array:
        result: Array = function(*[word.view(dtype) for word in words]).view(raw)
        return result

    return lifted


def on_lanes(
    function: Callable[..., Any], lane: np.dtype[Any], raw: np.dtype[Any]
) -> Callable[..., Array]:
    """Lift a function of arrays of lanes (low lane first) to words that pack several of them."""

    def lifted(*words: Array) -> Array:
        shape = common_shape(words)
        result: Array = function(*[split(word, shape, lane) for word in words])
        return result.view(raw).reshape(shape)

    return lifted


def common_shape(words: tuple[Array, ...]) -> tuple[int, ...]:
    """The shape `words` broadcast to."""
    shape: tuple[int, ...] = words[0].shape
    for word in words:
        if word.shape != shape:
            return np.broadcast(*words).shape
    return shape


def flat(word: Array, shape: tuple[int, ...]) -> Array:
    """`word` broadcast to `shape` and flat, as every compiled loop takes it: none is compiled for
    another kind of array."""
    if word.shape == shape and word.flags.carray:
        return word.reshape(-1)
    whole = np.empty(shape, word.dtype)
    whole[...] = word
    return whole.reshape(-1)


def split(word: Array, shape: tuple[int, ...], lane: np.dtype[Any]) -> Array:
    """`word` broadcast to `shape` as a flat array of its lanes, low lane first."""
    if word.shape != shape:
        word = np.broadcast_to(word, shape)
    return np.ascontiguousarray(word).reshape(-1).view(lane)
