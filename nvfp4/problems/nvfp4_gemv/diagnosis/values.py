"""Outputs that follow from what must come out, or from what c held before."""

from collections.abc import Iterator

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.causes import cause
from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Hypothesis, Mismatch, Predict
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, Inputs


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
    if want.shape[1] > 1:
        yield Hypothesis(cause("output.carried_batches"), _carried_batches(inputs))


def _carried_batches(inputs: Inputs) -> Predict:
    """Exact sums: rounded ones may cancel."""

    def predict(batch: int, rows: Array) -> Array:
        return sum(inputs.operands(each, rows).exact() for each in range(batch + 1))

    return predict
