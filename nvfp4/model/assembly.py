"""Machine code for a GPU that is not here, by NVIDIA's assembler."""

import re
import tempfile
from bisect import bisect_left
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Thread

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.execution.module import load_module
from nvfp4.emulator.ptx.link import statements
from nvfp4.emulator.ptx.syntax import Instruction
from nvfp4.model.gpu import NoPrediction
from nvfp4.model.sass import Code, read
from nvfp4.model.tools import BROUGHT_BY, MachineCode, ended, of_entry, target_of, tools
from nvfp4.records.launch import PTXAS_OPTIONS
from nvfp4.retarget.errors import NotRetargetable
from nvfp4.retarget.rewrite import rewrite

_COMMENTS = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_OLD_LINES = re.compile(
    r"(\"[^\"\n]*\")|\.section\s+[\w.]+\s*\{[^}\"]*\}|\.file\s+\d+\s+\"[^\"]*\"(?:\s*,\s*\d+)*|\.loc(?:\s+\d+){3}"
    r"(?:\s*,\s*(?:inlined_at(?:\s+\d+){3}|function_name\s+[\w$.]+(?:\s*\+\s*\d+)?))*"
)
"""Matches the debugging information and the line numbers that the compiler has written. Strings,
which both patterns match as their group, stay, and comments go first: neither may begin a match."""


class Lines:
    """The lines of a text, by position."""

    def __init__(self, text: str) -> None:
        self._ends = [place for place, character in enumerate(text) if character == "\n"]

    def of(self, position: int) -> int:
        """Return the line, from 1, of a character; 0 for position 0, which stands for no
        statement."""
        return bisect_left(self._ends, position) + 1 if position else 0


@lru_cache(maxsize=4)
def located(ptx: str) -> str:
    """Return the PTX with a new `.loc` in front of each instruction, whose line number is the
    position of the instruction in `ptx`. Raises PtxSyntaxError."""
    bodies = [function.body for function in load_module(ptx).syntax.functions.values()]
    found = (each for body in bodies for each in statements(body))
    pieces, last = [], 0
    for start in sorted(each.start for each in found if isinstance(each, Instruction)):
        pieces += [_bare(ptx[last:start]), f"\n.loc 1 {start} 0\n"]
        last = start
    return "".join([*pieces, _bare(ptx[last:]), '\n.file 1 "kernel.ptx"\n'])


def _bare(text: str) -> str:
    for pattern in (_COMMENTS, _OLD_LINES):
        text = pattern.sub(lambda found: found[1] or " ", text)
    return text


_TARGET = re.compile(r"sm_(\d+)([af]?)")
# Options of ptxas that decide about the machine code, and others, by either of their names.
_OPTION = re.compile(
    r"--?(O|opt-level|Ofc|Ofast-compile|allow-expensive-optimizations|fmad|[df][ls]cm|"
    r"(def|force)-(load|store)-cache|maxrregcount|maxntid|minnctapersm|override-directive-values|"
    r"regUsageLevel|register-usage-level|no-bb-merge|dont-merge-basicblocks)(=?[\w,]+)?"
)
_WITHOUT_EFFECT = re.compile(
    r"--?(v|verbose|w|disable-warnings|warn\S*|Werror|suppress\S*|lineinfo|generate-line-info|"
    r"arch|gpu-name|m|machine|c|compile-only|preserve-relocs)((=|64)\S*)?"
)


def start_assembling(ptx: str, entry: str, arch: str) -> None:
    """Assemble a kernel in a thread, while the caller emulates it; `assembled` waits for it. One at
    a time, so that a submission with many kernels starts no crowd of assemblers."""
    if not any(thread.is_alive() for thread in _ahead):
        _ahead[:] = [Thread(target=_outcome, args=(ptx, entry, arch), daemon=True)]
        _ahead[0].start()


_ahead: list[Thread] = []


def assembled(ptx: str, entry: str, arch: str) -> Code:
    """Return the machine code of a kernel on `arch`.

    PTX for another GPU is rewritten; PTX of sm_100 keeps what it does instead of instructions of
    sm_100a. Raises NoPrediction.
    """
    for thread in _ahead:
        thread.join()
    outcome = _outcome(ptx, entry, arch)
    if isinstance(outcome, NoPrediction):
        raise outcome
    return outcome


@lru_cache(maxsize=64)
def _outcome(ptx: str, entry: str, arch: str) -> Code | NoPrediction:
    try:
        return _assemble(ptx, entry, arch)
    except NoPrediction as why:
        return why


def _assemble(ptx: str, entry: str, arch: str) -> Code:
    try:
        text = located(ptx)
    except PtxSyntaxError as error:
        raise NoPrediction(str(error)) from None
    if not _takes(arch, target_of(ptx)):
        try:
            text = rewrite(text, arch).ptx
        except NotRetargetable as error:
            raise NoPrediction(f"the kernel cannot be rewritten for {arch}: {error}") from None
    options = _options(ptx)
    programs = tools("ptxas"), tools("nvdisasm")
    for name, found in zip(("ptxas", "nvdisasm"), programs, strict=True):
        if not found:
            raise NoPrediction(f"{name} is missing; pip install {BROUGHT_BY[name]} brings it")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        for ptxas in programs[0]:
            said, made = _cubin(ptxas, text, entry, arch, *options)
            if not made:
                continue
            cubin.write_bytes(made)
            for nvdisasm in programs[1]:
                words = [str(nvdisasm), "-g", "-c", "-hex", str(cubin)]
                listed, listing = ended([*words, "-ndf"])
                if "BRX" in listing:  # what follows the flow of data knows their tables, slowly
                    listed, listing = ended(words)
                code = read(listing if listed else "", entry)
                if code.instructions:
                    used = of_entry(said, entry)
                    code.registers, code.stack_bytes = used.registers or 0, used.stack_bytes
                    code.spilled_bytes = used.spilled_bytes or 0
                    return code
    raise NoPrediction(f"ptxas refuses the PTX for {arch}; a newer one may know it")


def usage(ptx: str, entry: str, arch: str) -> MachineCode | None:
    """Return registers and spills of a kernel from the same run of the assembler that `assembled`
    uses. None if that assembles another text, the kernel is only a part of its module, or it is
    refused."""
    if target_of(ptx) != arch or ptx.count(".entry") != 1 or ".func" in ptx or ".section" in ptx:
        return None
    with suppress(PtxSyntaxError, NoPrediction):
        for ptxas in tools("ptxas"):
            said, made = _cubin(ptxas, located(ptx), entry, arch, *_options(ptx))
            if made:
                return of_entry(said, entry)
    return None


def _options(ptx: str) -> list[str]:
    """Return what the submission asks of ptxas. Raises NoPrediction."""
    text = ptx.rpartition(PTXAS_OPTIONS)[2] if PTXAS_OPTIONS in ptx else ""
    words = re.sub(r"\s+(?=[^-\s])", "=", text.replace('"', "").strip()).split()
    asked = [each for each in words if not _WITHOUT_EFFECT.fullmatch(each)]
    if odd := next((each for each in asked if not _OPTION.fullmatch(each)), None):
        raise NoPrediction(f"what ptxas makes with {odd} is not known")
    return asked


@lru_cache(maxsize=16)
def _cubin(ptxas: Path, text: str, entry: str, arch: str, *options: str) -> tuple[str, bytes]:
    """Return what an assembler prints, and its machine code; empty if it refuses the text."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        words = [str(ptxas), "-v", "-lineinfo", f"-arch={arch}", "-e", entry, *options]
        taken, said = ended([*words, "-o", str(cubin), str(source)])
        return (said, cubin.read_bytes()) if taken and cubin.is_file() else ("", b"")


def _takes(arch: str, target: str | None) -> bool:
    """Whether the driver of a GPU compiles PTX of `target` as it is. From equal PTX, ptxas makes
    equal machine code for sm_100, sm_100f and sm_100a.

    Source: ptxas 13.5.37 on conversions of cuda_fp4.h, 2026-11-24.
    """
    made = _TARGET.fullmatch(target or "")
    own = _TARGET.fullmatch(arch)
    if made is None or own is None:
        return False
    return made[1] == own[1] or (not made[2] and int(made[1]) < int(own[1]))
