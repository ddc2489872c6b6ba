"""Whether a GPU would take a recorded launch: what the submission's process says is not asked."""

import math

from nvfp4.emulator import Launch
from nvfp4.emulator.errors import NotAdmitted
from nvfp4.model.tools import MachineCode, assemble
from nvfp4.records.texts import short_name

_block_registers = 65536
_register_unit = 8
"""A warp gets registers in units of as many a thread."""


class Admission:
    """Has each kernel assembled before it is emulated: what no assembler takes shall not reach the
    emulator. Nothing is refused where NVIDIA's assembler is missing, or too old."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str], MachineCode] = {}

    def require(self, launch: Launch) -> str:
        """Raise NotAdmitted for PTX that the assembler refuses, and for a block with more registers
        than a multiprocessor has. Returns why nothing could be asked, empty where it was or where
        there is no assembler."""
        key, kernel = (launch.ptx, launch.kernel), short_name(launch.kernel)
        if key not in self._kernels:
            self._kernels[key] = assemble(*key, False)
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
