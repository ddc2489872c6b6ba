"""Stable codes for what the judge says in words alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

unknown = "unknown"


@dataclass(frozen=True)
class Said:
    """A message of the judge. pattern: of its beginning; a named group is an argument. meaning:
    for docs/codes.md.
    """

    code: str
    pattern: str
    meaning: str


_time = (
    r"(?P<seconds>[\d.e+]+) s"
    r"(?:, of which compiling and emulating took (?P<not_its_own_s>[\d.e+]+) s)?"
)

table = (
    Said(
        "output.state",
        r"(?s).*\nin a process of its own this call is right",
        "A full-range output is wrong after other calls, and right in a process of its own: the "
        "submission keeps something from call to call.",
    ),
    Said(
        "output.mismatch",
        r"(?P<wrong>\d+) of (?P<elements>\d+) elements are wrong",
        "Elements of c are not within the tolerance. `causes` says why, where that is known.",
    ),
    Said(
        "output.wrong_kind",
        r"the output is ",
        "The output is no tensor, or one of another shape or dtype.",
    ),
    Said(
        "output.not_repeatable",
        r"in a fresh process the same inputs gave ",
        "The same inputs gave another output in a fresh process.",
    ),
    Said(
        "output.changed_later",
        r"the output changed after it was returned",
        "Something wrote to the output after custom_kernel had returned.",
    ),
    Said(
        "contract.returned",
        r"custom_kernel returned (?!another )(?P<returned>.+?)(?:, expected |$)",
        "custom_kernel returned something else than a tensor like c.",
    ),
    Said(
        "contract.no_custom_kernel",
        r"\S+ defines no function custom_kernel",
        "The file defines no function custom_kernel(data).",
    ),
    Said("contract.not_python", r"\S+ is not a Python file", "The file cannot be imported."),
    Said(
        "contract.input_changed",
        r"custom_kernel changed its input (?P<input>\w+) in place",
        "custom_kernel wrote to one of its inputs.",
    ),
    Said(
        "contract.other_dtype",
        r"custom_kernel returned another dtype than in the call before",
        "The dtype of the output changed from call to call.",
    ),
    Said(
        "contract.l2_set_aside",
        r"custom_kernel set aside L2 cache",
        "custom_kernel kept a part of the L2 cache for itself.",
    ),
    Said(
        "finding.strict",
        r"[^\n]* \(--strict\)$",
        "A finding, which fails a case with `--strict`; `arguments.finding` is its code.",
    ),
    Said(
        "timeout.import",
        rf"its import did not finish within {_time}",
        "The import of the submission took too long, and not by compiling or emulating.",
    ),
    Said(
        "timeout.call",
        rf"custom_kernel did not finish within {_time}",
        "A call of custom_kernel took too long.",
    ),
    Said(
        "timeout.mode",
        r"not judged: the (?:time limit was reached|judge was stopped at the time limit)",
        "The time limit (`--timeout`) was reached before this case was judged.",
    ),
    Said(
        "not_judged.too_slow",
        r"not judged: too slow here",
        "A call or the import did not end in time without a GPU, and it need not have: by the "
        "cases that passed, by what any kernel takes, or because compiling took the time. "
        "The case is `skipped`; `--timeout` gives it more time.",
    ),
    Said(
        "not_judged.not_emulated",
        r"not judged: not emulated",
        "The kernel or the host code uses what is not emulated without a GPU; it may be right. The "
        "case is `skipped`.",
    ),
    Said(
        "not_judged.emulator_failed",
        r"not judged: our own fault",
        "The emulator has failed at a kernel that may be right. The case is `skipped`.",
    ),
    Said(
        "not_judged.not_installed",
        r"not judged: not installed here",
        "The submission needs a package or a library that is not here. The case is `skipped`.",
    ),
    Said(
        "not_judged.machine_limit",
        r"not judged: more than there is here",
        "It needs more memory, files or processes than it may have here. The case is `skipped`.",
    ),
    Said(
        "not_judged.not_retargeted",
        r"not judged: nothing takes its place on this GPU",
        "A kernel has an instruction that this GPU lacks and that cannot be rewritten. The case is "
        "`skipped`.",
    ),
    Said(
        "not_judged.judge_ended",
        r"not judged: the judge ended early",
        "The judge, or the process for the submission, ended before this case was judged. The case "
        "is `skipped`.",
    ),
    Said(
        "not_judged.interrupted",
        r"not judged: interrupted",
        "The command was interrupted before this case was judged.",
    ),
    Said(
        "process.sys_exit",
        r"the submission called sys\.exit\((?P<argument>[^\n]*)\)",
        "The submission called sys.exit.",
    ),
    Said(
        "process.exited",
        r"the submission's process ended with exit code (?P<exit_code>\d+)",
        "The submission's process ended by itself.",
    ),
    Said(
        "process.killed",
        r"the submission's process was killed by (?P<signal>\w+(?: \d+)?)",
        "The submission's process was killed: a crash in native code, or too little memory.",
    ),
    Said(
        "process.closed",
        r"the submission's process closed its connection",
        "The submission closed the connection to the judge.",
    ),
    Said(
        "process.too_many",
        r"the submission started more than (?P<limit>\d+) processes",
        "The submission started too many processes.",
    ),
    Said(
        "process.protocol",
        r"the submission's process sent |custom_kernel sent ",
        "What the submission's process told the judge cannot be true, or is no message at all.",
    ),
    Said(
        "process.not_started",
        r"the worker did not start",
        "The process for the submission did not start.",
    ),
    Said(
        "timing.below_floor",
        r"the mean of (?P<mean_us>[\d.]+) us is below the physical floor of (?P<floor_us>[\d.]+)",
        "The reported times are shorter than memory allows.",
    ),
    Said(
        "timing.unjoined_stream",
        r"the device worked (?P<excess_us>[\d.]+) us longer than ",
        "Work on another stream was not joined to the current one.",
    ),
    Said(
        "timing.busy_between_calls",
        r"the device was busy after (?P<share>\d+)% of its calls",
        "The submission works on the device between its calls, which slows others.",
    ),
    Said(
        "timing.clocks_disagree",
        r"a call took (?P<judge_us>[\d.]+) us by the judge's clock and (?P<told_us>[\d.]+) us ",
        "The reported times are shorter than the judge's own clock allows.",
    ),
    Said(
        "emulation.too_few_bytes",
        r"the kernels touched (?P<distinct_bytes>\d+) distinct bytes of memory, and the inputs and "
        r"c have (?P<least_bytes>\d+)",
        "The kernels did not touch all that they must read and write.",
    ),
    Said(
        "setup.no_gpu",
        r"there is no GPU here, and ",
        "An emulated kernel has no time, and times were asked for.",
    ),
    Said(
        "setup.memory",
        r"this case needs about (?P<needed_gib>[\d.]+) GiB of memory and (?P<free_gib>[\d.]+) GiB ",
        "The shape is too large for the memory of this machine.",
    ),
)

own_records = {
    "import.syntax": "The file is not valid Python.",
    "import.module": "An import of the submission failed.",
    "import.exception": "The import of the submission raised; `arguments.type` is the class.",
    "import.not_installed": "The submission needs a package or a library that is not here.",
    "machine.limit": "It needs more memory or files than it may have here.",
    "call.exception": "custom_kernel raised; `arguments.type` is the class of the exception.",
    "cuda.error": "The CUDA device was lost: an illegal address, a trap, a launch failure.",
}
"""Codes that come as a record, besides those of the errors of capture/, emulator/ and retarget/."""

setup_codes = {
    "usage": "The command line is wrong.",
    "setup": "Something keeps the command from judging; the message says what.",
    "setup.unreadable": "The submission cannot be read.",
    "setup.unwritable": "The output file cannot be written.",
    "setup.problem": "task.yml is missing or not what it should be.",
    "setup.judge": "The judge could not start, or lacks what the submission needs.",
    "setup.history": "The history cannot be used.",
    "setup.not_kept": "No judgement of this number is kept.",
}
"""Codes of the object `error`, where nothing was judged."""

batch_codes = {
    "batch.limit": "It was not judged within `--limit-s`.",
    "batch.crashed": "`nvfp4 eval` ended without a verdict, as where memory is short.",
}
"""Codes of the object `error` in a line of `nvfp4 batch`, beside setup_codes."""

finding_codes = {
    "shared_race": "Threads touch one byte of shared memory with no barrier between, one writing.",
    "global_race": "Threads touch one byte of global memory in no order, one of them writing.",
    "missing_fence": "A CTA reads what another wrote before a relaxed atomic, no fence between.",
    "read_only_load": "ld.global.nc (__ldg) reads what the same launch has written.",
    "unwaited_store": "A bulk copy out of shared memory that its thread never waits for.",
    "proxy_fence": "Threads and bulk copies access shared memory, no fence.proxy.async between.",
    "warp_sync": "Lanes of a warp rely on running together, with no __syncwarp between.",
    "unset_register": "A register is used before anything has set it.",
    "unwritten_shared": "Shared memory is read that no thread has written.",
    "output_dtype": "c has another dtype than float16, which the contest takes.",
    "tolerance": "An error over the limit, which only the contest's rounding lets through.",
    "unjoined_stream": "A kernel runs in a stream that the current one does not wait for.",
    "autotune": "One configuration was used of several: without a GPU none can be timed.",
}
"""Codes of findings, which fail a case only with ``--strict``."""

warning_codes = {
    "other_leaderboard": "Its directive names another leaderboard.",
    "other_problem": "The task.yml beside it is that of another problem.",
    "not_confined": "The submission ran with less confinement than usual.",
    "fails_alone": "The file fails when it is run by itself, as the contest's bot does first.",
    "full_range": "Right on the contest's inputs, wrong on full-range inputs.",
    "other_shape": "Of `nvfp4 check`: right at the contest's shape, not at an awkward one.",
    "refused_shape": "Of `nvfp4 check`: the submission raises at a shape of the contest's tests.",
    "unverified": "Kernels ran in the submission's process, which reports outputs and counts itself.",
    "extrapolated": "Counts were taken on a sample of the thread blocks.",
    "cpu_times": "The times are those of this CPU.",
    "noisy": "The spread of some timings is large.",
}
"""Codes of warnings, which never fail a submission."""

_patterns = [(each.code, re.compile(each.pattern, re.DOTALL)) for each in table]


def code_of(message: str) -> tuple[str, dict[str, Any]]:
    """The code of a message and its arguments: text, or numbers where they are some."""
    for code, pattern in _patterns:
        found = pattern.match(message)
        if found:
            given = found.groupdict().items()
            return code, {name: _number_or_text(text) for name, text in given if text is not None}
    return unknown, {}


def _number_or_text(text: str) -> int | float | str:
    if text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if abs(number) < 2**53 else text
