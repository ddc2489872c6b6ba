"""The machine code of a kernel by line of source, and the time of a call with and without each
line."""

from collections import defaultdict
from typing import Any

from nvfp4.emulator.cost import KernelCost
from nvfp4.model.assembly import Lines, assembled
from nvfp4.model.counting import sampled
from nvfp4.model.gpu import NoPrediction
from nvfp4.model.prediction import GPUS, kernel_time, no_prediction, predict
from nvfp4.model.tools import target_of
from nvfp4.records.options import Options

_MOST_LEFT_OUT = 8
_NOTICEABLE = 0.01

Place = tuple[str | None, int | None]


def line_times(cost: KernelCost, options: Options) -> dict[str, Any]:
    """`predicted`, as of `records.prediction`; `lines`: by (file, line), the us due to
    the line, and the us of the call if it cost nothing, None where that is not computed."""
    gpu = GPUS[options.model]
    asked = sampled(cost)
    clean = options.flush == "clean"
    try:
        whole = predict(gpu, [asked], clean)
    except NoPrediction as error:
        return {"predicted": no_prediction(gpu.name, str(error)), "lines": {}}
    numbers: dict[Place, set[int]] = defaultdict(set)
    for number, (_, file, line) in cost.ptx_lines.items():
        numbers[file, line].add(number)
    spent = whole.kernels[0].lines
    times = {place: sum(spent.get(n, 0.0) for n in mine) for place, mine in numbers.items()}
    found: dict[Place, tuple[float, float | None]] = {
        each: (us, None) for each, us in times.items()
    }
    for place in sorted(times, key=lambda each: -times[each])[:_MOST_LEFT_OUT]:
        if times[place] >= _NOTICEABLE * whole.us:
            less = kernel_time(gpu, asked, clean, without=frozenset(numbers[place]))
            found[place] = times[place], whole.us - whole.kernels[0].us + less.us
    return {"predicted": whole.to_dict(), "lines": found}


def machine_code_of(cost: KernelCost) -> tuple[list[dict[str, Any]], str | None]:
    """Return the machine instructions of a kernel with their lines of source, as `records.costs`
    has them, or a sentence on why there are none."""
    target = target_of(cost.ptx)
    if target is None:
        return [], "no SASS: the PTX names no architecture"
    try:
        code = assembled(cost.ptx, cost.entry, target)
    except NoPrediction as why:
        return [], f"no SASS: {why}"
    numbers, found = Lines(cost.ptx), []
    for each in code.instructions:
        _, file, line = cost.ptx_lines.get(numbers.of(each.statement), (0, None, None))
        found.append({"file": file, "line": line, "text": each.text})
    return found, None


def with_times(plain: dict[str, Any], times: dict[str, Any]) -> dict[str, Any]:
    """A kernel's cost as plain values, its lines with `us` and `without_us`."""
    for line in plain["lines"]:
        us, without_us = times["lines"].get((line["file"], line["line"]), (None, None))
        line["us"], line["without_us"] = us, without_us
    return {**plain, "predicted": times["predicted"]}
