"""Outputs that follow from what must come out, or from what c held before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from nvfp4.judge.diagnosis.causes import cause
from nvfp4.judge.diagnosis.evidence import Hypothesis, Mismatch, Predict
from nvfp4.judge.diagnosis.inputs import Array, Inputs

_largest_power = 24
_largest_count = 64


def _table(predicted: Array) -> Predict:
    return lambda batch, rows: predicted[rows, batch]


def from_values(inputs: Inputs, mismatch: Mismatch, kept: bool) -> Iterator[Hypothesis]:
    """Hypotheses on whole outputs. kept: whether ``inputs.c`` is what c held before."""
    before, want = inputs.c, mismatch.want
    if kept:
        elements = int((mismatch.finite & (mismatch.got == before)).sum())
        yield Hypothesis(cause("output.unwritten", elements=elements), _table(before), True)
        with np.errstate(invalid="ignore"):
            yield Hypothesis(cause("output.added"), _table(want + before))
    factor = _factor(mismatch)
    if factor is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            yield Hypothesis(
                cause("output.factor", factor=int(factor) if factor == int(factor) else factor),
                _table(want * factor),
            )
    bfloat16 = torch.from_numpy(want).bfloat16().double().numpy()
    yield Hypothesis(cause("output.rounded", dtype="bfloat16"), _table(bfloat16), True)
    float8 = torch.from_numpy(want).to(torch.float8_e4m3fn).double().numpy()
    yield Hypothesis(cause("output.rounded", dtype="float8_e4m3fn"), _table(float8), True)
    with np.errstate(invalid="ignore"):
        if want.shape[1] > 1:
            yield Hypothesis(cause("output.carried_batches"), _carried_batches(inputs))
        for stride, every in _strides(want.shape[0]):
            whole = np.cumsum(want.reshape(-1, every // stride, stride, want.shape[1]), axis=1)
            yield Hypothesis(
                cause("output.carried_rows", rows=stride, every=every),
                _table(whole.reshape(want.shape)),
            )


def _carried_batches(inputs: Inputs) -> Predict:
    """Exact sums: rounded ones may cancel."""

    def predict(batch: int, rows: Array) -> Array:
        return sum(inputs.operands(each, rows).exact() for each in range(batch + 1))

    return predict


def _strides(m: int) -> Iterator[tuple[int, int]]:
    """Strides, and the rows after which an accumulator is cleared."""
    stride = 1
    while stride < m:
        every = 2 * stride
        while every <= m:
            if m % every == 0:
                yield stride, every
            every *= 2
        if m % stride == 0 and m // stride > 1 and every // 2 != m:
            yield stride, m
        stride *= 2


def _factor(mismatch: Mismatch) -> float | None:
    """A plain number by which results differ from what they must be."""
    there = mismatch.finite & (np.abs(mismatch.want) > 1e-2)
    if not there.any():
        return None
    ratio = float(np.median(mismatch.got[there] / mismatch.want[there]))
    if ratio == 0:
        return None
    size = abs(ratio)
    power = 2.0 ** round(np.log2(size))
    plain = [power, float(round(size)), 1 / max(1, round(1 / size))]
    near = [each for each in plain if each and abs(size / each - 1) < 2e-3]
    if not near or abs(np.log2(near[0])) > _largest_power:
        return None
    if near[0] != power and not 1 / _largest_count <= size <= _largest_count:
        return None
    factor = float(np.copysign(near[0], ratio))
    return None if factor == 1 else factor
