"""Every code that a verdict can hold, and what it means; docs/codes.md is made of them."""

judge_codes = {
    "output.state": (
        "A full-range output is wrong after other calls, and right in a process of its own: the "
        "submission keeps something from call to call."
    ),
    "output.mismatch": (
        "Elements of c are not within the tolerance. `causes` says why, where that is known."
    ),
    "output.not_repeatable": "The same inputs gave another output in a fresh process.",
    "output.changed_later": "Something wrote to the output after custom_kernel had returned.",
    "output.overwritten": "A later call wrote to an earlier output, which the contest still needs.",
    "contract.not_capturable": "The call failed while the problem's CUDA graph was captured.",
    "contract.returned": "custom_kernel returned something else than a tensor like c.",
    "contract.no_custom_kernel": "The file defines no function custom_kernel(data).",
    "contract.not_python": "The file cannot be imported.",
    "contract.input_changed": "custom_kernel wrote to one of its inputs.",
    "contract.other_dtype": "The dtype of the output changed from call to call.",
    "contract.l2_set_aside": "custom_kernel kept a part of the L2 cache for itself.",
    "finding.strict": (
        "A finding, which fails a case with `--strict`; `arguments.finding` is its code."
    ),
    "timeout.import": (
        "The import of the submission took too long, and not by compiling or emulating."
    ),
    "timeout.call": "A call of custom_kernel took too long.",
    "timeout.mode": "The time limit (`--timeout`) was reached before this case was judged.",
    "not_judged.too_slow": (
        "A call or the import did not end in time without a GPU, and it need not have: by the "
        "cases that passed, by what any kernel takes, or because compiling took the time. The "
        "case is `skipped`; `--timeout` gives it more time."
    ),
    "not_judged.not_emulated": (
        "The kernel or the host code uses what is not emulated without a GPU; it may be right. "
        "The case is `skipped`."
    ),
    "not_judged.emulator_failed": (
        "The emulator has failed at a kernel that may be right. The case is `skipped`."
    ),
    "not_judged.not_installed": (
        "The submission needs a package or a library that is not here. The case is `skipped`."
    ),
    "not_judged.machine_limit": (
        "It needs more memory, files or processes than it may have here. The case is `skipped`."
    ),
    "not_judged.not_retargeted": (
        "A kernel has an instruction that this GPU lacks and that cannot be rewritten. The case "
        "is `skipped`."
    ),
    "not_judged.rounding": (
        "The result differs from the reference no more than the order of a sum explains. The case "
        "is `skipped`; the message has the distance of both from the float64 result."
    ),
    "not_judged.problem": (
        "The problem's own code failed: `generate_input`, `ref_kernel` or its checker. The case is "
        "`skipped`."
    ),
    "not_judged.judge_ended": (
        "The judge, or the process for the submission, ended before this case was judged. The "
        "case is `skipped`."
    ),
    "process.sys_exit": "The submission called sys.exit.",
    "process.exited": "The submission's process ended by itself.",
    "process.killed": (
        "The submission's process was killed: a crash in native code, or too little memory."
    ),
    "process.closed": "The submission closed the connection to the judge.",
    "process.too_many": "The submission started too many processes.",
    "process.protocol": (
        "What the submission's process told the judge cannot be true, or is no message at all."
    ),
    "process.no_result": "The judge has ended without a result of the case.",
    "process.not_started": "The process for the submission did not start.",
    "timing.below_floor": "The reported times are shorter than memory allows.",
    "timing.unjoined_stream": "Work on another stream was not joined to the current one.",
    "timing.clocks_disagree": "The reported times are shorter than the judge's own clock allows.",
    "emulation.too_few_bytes": "The kernels did not touch all that they must read and write.",
    "setup.no_gpu": "An emulated kernel has no time, and times were asked for.",
    "setup.memory": "The shape is too large for the memory of this machine.",
    "unknown": "None of these; `message` says what happened.",
}
"""Codes that the judge and the command raise themselves."""

own_records = {
    "import.syntax": "The file is not valid Python.",
    "import.module": "An import of the submission failed.",
    "import.exception": "The import of the submission raised; `arguments.type` is the class.",
    "import.not_installed": "The submission needs a package or a library that is not here.",
    "machine.limit": "It needs more memory or files than it may have here.",
    "call.exception": "custom_kernel raised; `arguments.type` is the class of the exception.",
    "cuda.error": "The CUDA device was lost: an illegal address, a trap, a launch failure.",
}
"""Codes of what Python raises, besides those of the errors of capture/, emulator/ and retarget/."""

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
    "unwritten_tensor": "Tensor memory is read that nothing has written.",
    "tensor_race": "Tensor memory is touched while an operation nobody has waited for uses it.",
    "tensor_fence": "Operations on tensor memory cross threads, no tcgen05.fence at the barrier.",
    "tensor_swizzle": "A tensor core reads by another swizzle than a tensor map has written with.",
    "output_dtype": "c has another dtype than float16, which the contest takes.",
    "tolerance": "An error over the limit, which only the contest's rounding lets through.",
    "stream.unordered": "Nothing orders a kernel in another stream with the caller's work.",
    "own_stream": "A kernel runs in a stream of its own: it fails no case.",
    "software_conversion": "The architecture of the file lacks conversions; it fails no case.",
    "input_changed": "custom_kernel wrote to an input of a problem whose contest allows that.",
    "autotune": "One configuration was used of several: without a GPU none can be timed.",
}
"""Codes of findings, which fail a case only with ``--strict``, if at all."""

warning_codes = {
    "other_leaderboard": "Its directive names another leaderboard.",
    "not_confined": "The submission ran with less confinement than usual.",
    "fails_alone": "The file fails when it is run by itself, as the contest's bot does first.",
    "full_range": "Right on the contest's inputs, wrong on full-range inputs.",
    "other_shape": "Of `nvfp4 check`: right at the contest's shape, not at an awkward one.",
    "unverified": "Host code has read device memory, so that counts may leave out work, or there "
    "were few calls.",
    "strict": "`--strict` found nothing, and some findings are the submission's own word.",
    "dropped": "There was no room for all that was told; the verdict does not depend on it.",
    "cpu_times": "The times are those of this CPU.",
    "own_times": "No clock of the judge's has seen the benchmarks on a GPU.",
    "noisy": "The spread of some timings is large.",
}
"""Codes of warnings, which never fail a submission."""
