"""Machine code for a GPU that is not here, by NVIDIA's assembler."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.model.located import located
from nvfp4.model.sass import Code, read
from nvfp4.model.tools import of_entry, ran, target_of, tools
from nvfp4.retarget.errors import NotRetargetable
from nvfp4.retarget.rewrite import rewrite


class NoMachineCode(Exception):
    """Why there is none, in a sentence."""


class Refused(NoMachineCode):
    """Every assembler that is here refuses the PTX."""


@lru_cache(maxsize=64)
def assembled(ptx: str, entry: str, arch: str) -> Code:
    """The machine code of a kernel on `arch`, its lines being those of the PTX, which is rewritten
    where it is for another GPU. Raises NoMachineCode."""
    try:
        text = located(ptx)
    except PtxSyntaxError as error:
        raise NoMachineCode(str(error)) from None
    if target_of(ptx) != arch:
        try:
            text = rewrite(text, arch).ptx
        except NotRetargetable as error:
            raise NoMachineCode(f"the kernel cannot be rewritten for {arch}: {error}") from None
    programs = tools("ptxas"), tools("nvdisasm")
    for name, found in zip(("ptxas", "nvdisasm"), programs, strict=True):
        if not found:
            raise NoMachineCode(f"{name} is missing; pip install 'nvfp4[cuda]' or triton brings it")
    refused = True
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        for ptxas in programs[0]:
            words = [str(ptxas), "-v", "-lineinfo", f"-arch={arch}", "-e", entry]
            said = ran([*words, "-o", str(cubin), str(source)])
            if said is None or not cubin.is_file():
                continue
            refused = False
            for nvdisasm in programs[1]:
                listing = ran([str(nvdisasm), "-g", "-c", "-hex", str(cubin)])
                if listing is None:
                    continue
                code = read(listing, entry)
                if code.instructions:
                    registers, spilled = of_entry(said, entry)
                    code.registers, code.spilled_bytes = registers or 0, spilled or 0
                    return code
    if not refused:
        raise NoMachineCode(f"nvdisasm does not know {arch}; a newer one may")
    raise Refused(f"ptxas refuses the PTX for {arch}; a newer one may know it")


_REGISTERS = 65536
"""Of a thread block."""
_UNIT = 8


@lru_cache(maxsize=64)
def doubt(ptx: str, entry: str, threads: int) -> str:
    """Why no GPU may run a kernel in blocks of so many threads, in a clause; empty where one does,
    as far as there is an assembler that could tell."""
    arch = target_of(ptx)
    try:
        code = assembled(ptx, entry, arch or "")
    except Refused:
        return f"ptxas takes no such PTX for {arch}"
    except NoMachineCode:
        return ""
    wanted = -(-code.registers // _UNIT) * _UNIT * -(-threads // 32) * 32
    if wanted > _REGISTERS:
        return f"{threads} threads of {code.registers} registers do not fit into a block"
    return ""
