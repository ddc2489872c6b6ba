"""Errors that stop a launch: faults as records and as text, and launches that a GPU would refuse.
Nothing here relies on the submission's process."""

import math
from pathlib import Path
from typing import Any

from nvfp4.emulator import Launch
from nvfp4.emulator.errors import EmulatorError, NotAdmitted, SourceLocation
from nvfp4.model.assembly import usage
from nvfp4.model.tools import MachineCode, assemble
from nvfp4.records.gpu_messages import Fault, longest_output
from nvfp4.records.launch_errors import CodedError
from nvfp4.records.source import SourceLine, headed
from nvfp4.records.texts import cut, plain, short_name


def fault_of(
    error: EmulatorError | CodedError, submission: Path, name: str, launched: SourceLine | None
) -> Fault:
    """Return a fault with its place, or a refusal that any device would give. launched: the
    submission's line that requested the failed operation."""
    if isinstance(error, CodedError):
        text = headed(launched, error.message, error.hint, type(error).refusal)
        failure = {"code": error.verdict_code, "message": error.message, "hint": error.hint}
        failure |= _place(launched)
    else:
        text, failure = error.rendered(launched), _failure(error, launched)
    output = getattr(error, "output", "")[-longest_output:]
    return Fault(cut(plain(text, submission, name)), failure, type(error).refusal, output)


def _failure(error: EmulatorError, launched: SourceLine | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "code": f"kernel.{error.code}",
        "message": error.message,
        "hint": error.hint,
        "rule": error.rule,
        "arguments": error.arguments,
    }
    if error.where is None:
        return record | _place(launched)
    if error.related:
        others = [(each.message, _location(each.where)) for each in error.related]
        record["related"] = [{"message": message, **place} for message, place in others]
    return record | _location(error.where)


def _place(line: SourceLine | None) -> dict[str, Any]:
    return {"file": line.file, "line": line.line, "column": line.column} if line else {}


def _location(where: SourceLocation) -> dict[str, Any]:
    return {
        **_place(where.user),
        "kernel": short_name(where.kernel),
        "ptx_line": where.line,
        "cta": where.cta,
        "thread": where.thread,
    }


_block_registers = 65536
_register_unit = 8
"""Registers of a thread are allocated in multiples of this."""


class Admission:
    """Assembles each kernel before it is emulated, so that PTX that the assembler refuses does not
    reach the emulator. Nothing is refused if NVIDIA's assembler is missing or too old."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str], MachineCode] = {}

    def registers(self, launch: Launch) -> int:
        """Return the registers of a thread of a launch that was admitted; 0 if unknown."""
        return self._kernels[launch.ptx, launch.kernel].registers or 0

    def require(self, launch: Launch, arch: str = "") -> str:
        """Raise NotAdmitted for PTX that the assembler refuses, and for a block with more registers
        than a multiprocessor has.

        Returns why the assembler could not decide; empty if it did, or if there is none. arch: the
        GPU whose machine code will be needed, if any.
        """
        key, kernel = (launch.ptx, launch.kernel), short_name(launch.kernel)
        if key not in self._kernels:
            self._kernels[key] = usage(*key, arch) or assemble(*key)
        code = self._kernels[key]
        if code.refusal is not None:
            raise NotAdmitted(f"ptxas refuses the PTX of {kernel}: {code.refusal}")
        if code.unknown:
            return f"no ptxas here knows the PTX of {kernel}; a newer one may"
        registers = -(-(code.registers or 1) // _register_unit) * _register_unit
        threads = -(-math.prod(launch.block) // 32) * 32
        if registers * threads > _block_registers:
            raise NotAdmitted(
                f"{kernel}: {threads} threads of {code.registers} registers; a block has "
                f"{_block_registers}"
            )
        return ""
