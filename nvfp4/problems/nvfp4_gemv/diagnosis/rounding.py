"""Small errors: sums in float16, recognised by how large their errors are."""

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Explanation, Hypothesis, Mismatch, cause
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, Inputs

_rows = 48
_least_wrong = 8
_tail = 8.0
_alike = 1.5
_alike_share = 0.2


def accumulated_in_float16(inputs: Inputs, mismatch: Mismatch) -> Explanation | None:
    """Return the cause if the errors in all rows are as large as those of sums in float16."""
    m, k, _ = inputs.shape
    if mismatch.count < _least_wrong or not np.isfinite(mismatch.got).all():
        return None
    generator = np.random.default_rng(0)
    batch = mismatch.sampled[0][0]
    rows = np.sort(generator.permutation(m)[:_rows])
    products = inputs.operands(batch, rows).products()
    exact = products.sum(axis=1)
    errors = mismatch.got[rows, batch] - exact
    step = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    if not np.isfinite(step).all():
        return None
    # In the units of a result's last place all rows count alike.
    mine = np.abs(errors) / step
    theirs = np.abs(_serial(products) - exact) / step
    if not _as_large(mine, theirs):
        return None
    why = cause(
        "precision.float16",
        order="one after the other",
        k=k,
        rms_steps=round(_rms(mine), 1),
        rms_steps_of_float16=round(_rms(theirs), 1),
        what="the errors are as large as those of sums in float16: "
        f"{_rms(mine):.1f} steps of float16 (root mean square) where adding the {k} products in "
        f"float16, one after the other, gives {_rms(theirs):.1f}; add in float32",
    )
    got = mismatch.got
    return Explanation(why, mismatch.count, Hypothesis(why, lambda batch, rows: got[rows, batch]))


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _as_large(mine: Array, theirs: Array) -> bool:
    """Whether errors are distributed alike: their size, how many are nothing, the largest."""
    own, other = _rms(mine), _rms(theirs)
    if not (np.isfinite(own) and np.isfinite(other)) or other < 1 or own < 1:
        return False
    alike = 1 / _alike < own / other < _alike
    none = abs(float((mine < 1).mean()) - float((theirs < 1).mean()))
    return alike and none < _alike_share and float(mine.max()) < _tail * float(theirs.max())


def _serial(products: Array) -> Array:
    """Sums in float16, one product after the other: float64 [rows]."""
    with np.errstate(over="ignore", invalid="ignore"):
        halves: Array = products.astype(np.float16)
        total = np.zeros(halves.shape[0], np.float16)
        for column in np.ascontiguousarray(halves.T):
            total = total + column
        return total.astype(np.float64)
