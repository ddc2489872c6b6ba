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
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        for ptxas in programs[0]:
            words = [str(ptxas), "-v", "-lineinfo", f"-arch={arch}", "-e", entry]
            said = ran([*words, "-o", str(cubin), str(source)])
            if said is None or not cubin.is_file():
                continue
            for nvdisasm in programs[1]:
                listing = ran([str(nvdisasm), "-g", "-c", "-hex", "-ndf", str(cubin)])
                if listing is None:
                    continue
                code = read(listing, entry)
                if code.instructions:
                    registers, spilled = of_entry(said, entry)
                    code.registers, code.spilled_bytes = registers or 0, spilled or 0
                    return code
    raise NoMachineCode(f"ptxas refuses the PTX for {arch}; a newer one may know it")
