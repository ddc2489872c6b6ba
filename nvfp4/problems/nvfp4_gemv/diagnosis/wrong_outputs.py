"""The diagnosis of a wrong output, from all that is known of it."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.diagnosis import hypotheses
from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Explanation, Mismatch
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Inputs, read_inputs
from nvfp4.problems.nvfp4_gemv.diagnosis.misreadings import misreadings
from nvfp4.problems.nvfp4_gemv.diagnosis.where import region
from nvfp4.problems.nvfp4_gemv.task import input_t, output_t
from nvfp4.records.base import Record

most_named = 3
"""The most causes that are named if they fit equally well; if there are more, none is."""

most_parts = 2
"""The most mistakes that are named at once, each with its own elements."""

_values_tried, _places_tried = 40, 400
_endless = 1e300


class Diagnosis(Record):
    """The extent of a wrong output, and its likely causes."""

    wrong: int
    """Number of wrong elements."""
    error_share: float
    """The largest error over the allowed one; infinity for NaN and infinity."""
    region: str
    contents: list[tuple[str, str]]
    """Properties of the output as a whole: (code, sentence) of each."""
    parts: list[list[Explanation]]
    """For each group of wrong elements that was explained, the explanations that fit best, equally
    well."""

    @property
    def cause(self) -> str | None:
        """The likely causes; those of the same elements are joined by "or"."""
        named = []
        for explanations in self.parts:
            causes = ", or ".join(each.hypothesis.cause.text for each in explanations)
            explained = explanations[0].explained
            if explained < self.wrong:
                causes += f" (explains {explained} of {self.wrong} wrong elements)"
            named.append(causes)
        return "; and ".join(named) or None

    @property
    def text(self) -> str:
        """Lines for the participant."""
        share = f"; the largest error is {self.error_share:.3g} times the allowed one"
        lines = [f"wrong: {self.region}" + share * bool(math.isfinite(self.error_share))]
        lines += [sentence for _, sentence in self.contents]
        if self.cause:
            lines.append(f"likely cause: {self.cause}")
        return "\n".join(lines)

    def causes(self) -> list[dict[str, Any]]:
        """Return for programs the code and arguments of each part's cause, or the output's kind."""
        first = self.contents[0][0] if self.contents else "output.wrong"
        parts = [
            {
                **best.hypothesis.cause.record(),
                "explains": best.explained,
                "or": [each.hypothesis.cause.record() for each in others],
            }
            for best, *others in self.parts
        ]
        return parts or [{"code": first, "explains": 0, "or": []}]


def diagnose(data: input_t, output: output_t, ref: output_t) -> Diagnosis:
    """Return the diagnosis of a wrong output. data: as the submission got it; output, ref: [m, 1,
    l], of which some elements differ."""
    wrong = ~reference.close_enough(output, ref)[:, 0, :].cpu().numpy()
    got, want = (each[:, 0, :].double().cpu().numpy() for each in (output, ref))
    mismatch = Mismatch(got, want, wrong)
    contents = list(_contents(mismatch))
    constant = any(code in ("output.zero", "output.constant") for code, _ in contents)
    parts: list[list[Explanation]] = []
    if mismatch.sampled and not constant:
        # If the output is c itself, its contents before the call are unknown.
        parts = _parts(read_inputs(data), mismatch, output.data_ptr() != data[6].data_ptr())
    share = reference.error_share(output, ref)
    share = share if share < _endless else math.inf
    return Diagnosis(int(wrong.sum()), share, region(wrong), contents, parts)


def _contents(mismatch: Mismatch) -> Iterator[tuple[str, str]]:
    """Yield (code, sentence) for NaN, infinity, and outputs with only one value."""
    got, wrong = mismatch.got, mismatch.wrong
    for code, name, there in (
        ("output.nan", "NaN", np.isnan(got) & wrong),
        ("output.infinite", "infinite", np.isinf(got) & wrong),
    ):
        if there.any():
            count = int(there.sum())
            which = "one element is" if count == 1 else f"{count} elements are"
            which = "every element is" if there.all() else which
            row, batch = (int(each) for each in np.argwhere(there)[0])
            place = f": {region(there)}, the first is c[{row}, 0, {batch}]"
            yield code, f"{which} {name}{'' if there.all() else place}"
    values = got[mismatch.finite]
    if values.size > 1 and (values == values[0]).all():
        value = float(values[0])
        everywhere = bool((got == value).all())
        which = "every element of c is" if everywhere else f"all {values.size} wrong elements are"
        yield ("output.constant" if value else "output.zero"), f"{which} {value:g}"


def _parts(inputs: Inputs, mismatch: Mismatch, kept: bool) -> list[list[Explanation]]:
    """Return explanations of the wrong elements, then of the elements that these leave
    unexplained."""
    parts: list[list[Explanation]] = []
    while mismatch.sampled and len(parts) < most_parts:
        found = _explain(inputs, mismatch, kept)
        if not found or len(found) > most_named:
            break
        parts.append(found)
        explained = mismatch.explained_by(found[0].hypothesis)
        mismatch = Mismatch(mismatch.got, mismatch.want, mismatch.wrong & ~explained)
    return parts


def _explain(inputs: Inputs, mismatch: Mismatch, kept: bool) -> list[Explanation]:
    """Return the explanations that fit best.

    The plainer kinds come first; if one of them explains everything, the others are not tried.
    kept: whether the inputs have c as it was before.
    """
    k = inputs.shape[1]
    known = [each.hypothesis(inputs) for each in misreadings(k)]
    values = hypotheses.from_values(inputs, mismatch, kept)
    sums = hypotheses.from_sums(inputs, mismatch)
    kinds: list[Callable[[], list[Explanation]]] = [
        lambda: mismatch.explanations(values, _values_tried),
        lambda: mismatch.explanations(hypotheses.from_places(mismatch), _places_tried),
        lambda: mismatch.explanations(known, len(known)),
        lambda: mismatch.explanations(sums, tried=8 * k * k.bit_length()),
        lambda: hypotheses.from_rounding(inputs, mismatch),
    ]
    found: list[Explanation] = []
    for kind in kinds:
        found += kind()
        if any(each.explained == mismatch.count for each in found):
            break
    return _best(found, mismatch)


def _best(found: list[Explanation], mismatch: Mismatch) -> list[Explanation]:
    """Return the explanations of the most elements, each cause once; among equal ones, those that
    match the most right elements as well."""
    most = max((each.explained for each in found), default=0)
    equal = [each for each in found if each.explained == most]
    if len({each.hypothesis.cause.text for each in equal}) > 1:
        agreement = [mismatch.explained_by(each.hypothesis).sum() for each in equal]
        pairs = zip(equal, agreement, strict=True)
        equal = [each for each, count in pairs if count == max(agreement)]
    kept: dict[str, Explanation] = {}
    for each in equal:
        kept.setdefault(each.hypothesis.cause.text, each)
    return list(kept.values())
