"""What is known of a wrong output, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import reference
from nvfp4.local.diagnosis import k_sums, places, shifts
from nvfp4.local.diagnosis.evidence import Explanation, Mismatch
from nvfp4.local.diagnosis.inputs import Inputs, read_inputs
from nvfp4.local.diagnosis.misreadings import misreadings
from nvfp4.local.diagnosis.rounding import accumulated_in_float16
from nvfp4.local.diagnosis.values import from_values
from nvfp4.local.diagnosis.where import Region, region
from task import input_t, output_t

most_named = 3
"""Causes that fit equally well; of more none is named."""

_values_tried = 40


@dataclass(frozen=True)
class Diagnosis:
    """wrong, elements: how many of how many. error_share: the largest error over the allowed one,
    infinity for NaN and infinity. contents: what is special about the output as a whole, a code
    and a sentence. explanations: those that fit best, equally well.
    """

    wrong: int
    elements: int
    error_share: float
    region: Region
    contents: list[tuple[str, str]]
    explanations: list[Explanation]

    @property
    def cause(self) -> str | None:
        """The likely causes, joined by "or"."""
        if not self.explanations or len(self.explanations) > most_named:
            return None
        named = ", or ".join(each.cause.text for each in self.explanations)
        explained = self.explanations[0].explained
        if explained == self.wrong:
            return named
        return f"{named} (explains {explained} of {self.wrong} wrong elements)"

    @property
    def text(self) -> str:
        """Lines for the participant."""
        share = f"; the largest error is {self.error_share:.3g} times the allowed one"
        lines = [f"wrong: {self.region.text}" + share * bool(np.isfinite(self.error_share))]
        lines += [sentence for _, sentence in self.contents]
        if self.cause:
            lines.append(f"likely cause: {self.cause}")
        return "\n".join(lines)

    def causes(self) -> list[dict[str, Any]]:
        """For programs: each cause with its code and arguments, or what the output is like. The
        first also has how much it explains.
        """
        named = [each.cause.record() for each in self.explanations] if self.cause else []
        if not named:
            named = [{"code": self.contents[0][0] if self.contents else "output.wrong"}]
        explained = self.explanations[0].explained if self.cause and self.explanations else 0
        first = {"explains": explained, "wrong": self.wrong, "elements": self.elements}
        return [{**named[0], **first, "where": self.region.text}, *named[1:]]


def diagnose(data: input_t, output: output_t, ref: output_t) -> Diagnosis:
    """data: as the submission got it; output, ref: [m, 1, l], of which some elements differ."""
    wrong = ~reference.close_enough(output, ref)[:, 0, :].cpu().numpy()
    got, want = (each[:, 0, :].double().cpu().numpy() for each in (output, ref))
    mismatch = Mismatch(got, want, wrong)
    contents = list(_contents(mismatch))
    constant = any(code in ("output.zero", "output.constant") for code, _ in contents)
    explanations: list[Explanation] = []
    if mismatch.sampled and not constant:
        # Where c itself is at hand, nobody knows what it held before.
        kept = output.data_ptr() != data[6].data_ptr()
        explanations = _explain(read_inputs(data), mismatch, kept)
    return Diagnosis(
        int(wrong.sum()),
        wrong.size,
        reference.error_share(output, ref),
        region(wrong),
        contents,
        explanations,
    )


def likely_cause(data: input_t, output: output_t, ref: output_t) -> str | None:
    """The causes that explain a wrong output, joined by "or", or None."""
    return diagnose(data, output, ref).cause


def _contents(mismatch: Mismatch) -> Iterator[tuple[str, str]]:
    """NaN and infinity, and outputs that are one value."""
    got, wrong = mismatch.got, mismatch.wrong
    for code, name, there in (
        ("output.nan", "NaN", np.isnan(got) & wrong),
        ("output.infinite", "infinite", np.isinf(got) & wrong),
    ):
        if there.any():
            which = "every element is" if there.all() else f"{int(there.sum())} elements are"
            row, batch = (int(each) for each in np.argwhere(there)[0])
            place = f": {region(there).text}, the first is c[{row}, 0, {batch}]"
            yield code, f"{which} {name}{'' if there.all() else place}"
    values = got[mismatch.finite]
    if values.size > 1 and (values == values[0]).all():
        value = float(values[0])
        everywhere = bool((got == value).all())
        which = "every element of c is" if everywhere else f"all {values.size} wrong elements are"
        yield ("output.constant" if value else "output.zero"), f"{which} {value:g}"


def _explain(inputs: Inputs, mismatch: Mismatch, kept: bool) -> list[Explanation]:
    """The explanations that fit best. The plainer kinds come first: where one of them explains
    everything, the others are not tried. kept: whether the inputs have c as it was before."""
    m, k, l = inputs.shape
    kinds: list[Callable[[], list[Explanation]]] = [
        lambda: mismatch.explanations(from_values(inputs, mismatch, kept), _values_tried),
        lambda: mismatch.explanations(places.from_places(mismatch), places.tried(m, l)),
        lambda: _of_misreadings(inputs, mismatch),
        lambda: mismatch.explanations(k_sums.summed(inputs, mismatch), k_sums.tried(k)),
        lambda: mismatch.explanations(k_sums.solved(inputs, mismatch), k),
        lambda: [each for each in [accumulated_in_float16(inputs, mismatch)] if each],
    ]
    found: list[Explanation] = []
    for kind in kinds:
        found += kind()
        if any(each.explained == mismatch.count for each in found):
            break
    return _best(found, mismatch)


def _of_misreadings(inputs: Inputs, mismatch: Mismatch) -> list[Explanation]:
    _, k, _ = inputs.shape
    known = [each.hypothesis(inputs) for each in misreadings(k)]
    found = mismatch.explanations(known, len(known))
    return found + mismatch.explanations(shifts.shifted(inputs, mismatch), shifts.tried(k))


def _best(found: list[Explanation], mismatch: Mismatch) -> list[Explanation]:
    """Those that explain most, each cause once; of several, those by which the right elements are
    right as well."""
    most = max((each.explained for each in found), default=0)
    equal = [each for each in found if each.explained == most]
    if len({each.cause.text for each in equal}) > 1:
        agreement = [mismatch.agreement(each.hypothesis) for each in equal]
        equal = [
            each for each, count in zip(equal, agreement, strict=True) if count == max(agreement)
        ]
    kept: dict[str, Explanation] = {}
    for each in equal:
        kept.setdefault(each.cause.text, each)
    return list(kept.values())
