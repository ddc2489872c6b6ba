"""Counts the instructions of a submission's kernel in its disassembly: hot loop, spills, loads.

    python -m benchmarks.sass --arch sm_100a --shape 7168,16384,1
    python -m benchmarks.sass --arch sm_100a --most 1.33    fails above 1.33 instructions an element

Run it from the repository root; it needs no GPU. The kernel is compiled for --arch, and nvdisasm
(from PATH or the nvidia-cuda-nvdisasm package) disassembles its cubin. The hot loop is the longest
stretch that a backward branch repeats; a kernel without one is counted whole. Elements are those
of a that one thread multiplies in it.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from typing import Any

from nvfp4.cli.problem import load_problem
from nvfp4.problems.nvfp4_gemv import referee
from nvfp4.records.cases import parse_case
from nvfp4.tuner.space import Shape, load_submission

kinds = {
    "global load": "LDG",
    "global store": "STG",
    "local (spill)": "LDL|STL",
    "shared": "LDS|STS|LDSM|ATOMS",
    "constant load": "LDC|LDCU|ULDC|S2R|S2UR|CS2R",
    "convert": "F2FP|F2F|I2F|F2I|I2FP",
    "byte permute": "PRMT|UPRMT",
    "integer dot": "IDP",
    "half arithmetic": "HFMA2|HMUL2|HADD2|HSETP2",
    "float arithmetic": "FHFMA|FFMA|FMUL|FADD|FSEL|FSETP|FMNMX|FFMA2|FADD2|FMUL2",
    "logic and shift": "LOP3|SHF|SHL|SHR|ULOP3|USHF|LOP|R2P|PLOP3|UPLOP3|SEL|SGXT",
    "integer": "IMAD|IADD|IADD3|LEA|ISETP|VIADD|VIADDMNMX|IMNMX|VIMNMX|IABS",
    "uniform integer": "UIADD3|UIMAD|ULEA|UISETP",
    "move": "MOV|UMOV|R2UR|IMOV|USEL",
    "shuffle": "SHFL|VOTE|REDUX",
    "barrier": "BAR|WARPSYNC|DEPBAR|BSSY|BSYNC|MEMBAR",
    "control": "BRA|EXIT|NOP|RET|CALL|UCGABAR_WAIT|ACQBULK",
}
kind_of = {opcode: kind for kind, opcodes in kinds.items() for opcode in opcodes.split("|")}


@dataclass(frozen=True)
class Instruction:
    """address in bytes; opcode with its modifiers; the text after it."""

    address: int
    opcode: str
    operands: str

    @property
    def kind(self) -> str:
        return kind_of.get(self.opcode.split(".")[0], "other")


def nvdisasm() -> str:
    """The disassembler's path. Raises FileNotFoundError that says where to get it."""
    packages = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    for place in [shutil.which("nvdisasm"), *sorted(packages.glob("*/bin/nvdisasm"), reverse=True)]:
        if place:
            return str(place)
    raise FileNotFoundError("no nvdisasm: pip install nvidia-cuda-nvdisasm")


def disassemble(cubin: bytes) -> list[Instruction]:
    """The instructions of a cubin with one kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [nvdisasm(), "-c", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    labels: dict[str, int] = {}
    waiting: list[str] = []
    found: list[Instruction] = []
    for line in text.splitlines():
        label = re.match(r"(\.L\w+):", line)
        code = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*(.*);", line)
        if label:
            waiting.append(label[1])
        elif code:
            address = int(code[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting = []
            found.append(Instruction(address, code[2], code[3]))
    return [
        Instruction(
            i.address,
            i.opcode,
            re.sub(r"`\((\.L\w+)\)", lambda match: hex(labels.get(match[1], -1)), i.operands),
        )
        for i in found
    ]


def hot_loop(instructions: list[Instruction]) -> list[Instruction]:
    """The longest stretch that a backward branch repeats; empty without one.

    A branch to itself, which pads the end of every kernel, is no loop.
    """
    best: list[Instruction] = []
    for branch in instructions:
        target = re.search(r"0x[0-9a-f]+", branch.operands)
        if branch.opcode.split(".")[0] != "BRA" or not target:
            continue
        first = int(target[0], 16)
        if 0 <= first < branch.address:
            body = [i for i in instructions if first <= i.address <= branch.address]
            best = max((best, body), key=len)
    return best


def without_padding(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions up to the branch to itself that follows the last exit."""
    last = max((n for n, i in enumerate(instructions) if i.opcode.startswith("EXIT")), default=-1)
    return instructions[: last + 1] or instructions


def cubin_of(compiled: Any) -> bytes:
    """The machine code. CuTe DSL gives a path in its place where it looks for a file by one name of
    an architecture and finds it written by another (sm_110a, sm_101a).
    """
    found = compiled.__cubin__
    if isinstance(found, bytes):
        return found
    files = pathlib.Path(found).parent.glob("*.cubin")
    return max(files, key=lambda each: each.stat().st_mtime).read_bytes()


def report(submission: Any, shape: Shape) -> float:
    """Prints the counts of one shape's kernel; returns the hot loop's instructions an element."""
    m, k, l = shape
    capability = submission.compute_capability()
    chosen = submission.configuration_for(m, k, l, capability)
    ragged = m % (chosen.groups * chosen.rows) != 0
    whole = without_padding(
        disassemble(cubin_of(submission.compiled(k, chosen, capability, ragged)))
    )
    loop = hot_loop(whole)
    body = loop or whole
    elements = chosen.rows * chosen.pieces * chosen.bytes * 2
    if not loop:
        elements *= -(-k // (chosen.threads_k * chosen.pieces * chosen.bytes * 2))
    ratio = len(body) / elements
    spills = sum(i.kind == "local (spill)" for i in whole)
    registers = max((int(n) for i in whole for n in re.findall(r"\bR(\d+)", i.operands)), default=0)
    widths = collections.Counter(i.opcode for i in whole if i.opcode.startswith("LDG"))
    print(f"{shape} {chosen}")
    print(f"  {len(whole)} instructions, {registers + 1} registers, {spills} spills")
    print("  loads: " + ", ".join(f"{count} {name}" for name, count in widths.most_common()))
    print(
        f"  {'hot loop' if loop else 'no loop, the whole kernel'}: {len(body)} instructions for "
        f"{elements} elements of a = {ratio:.3f} an element"
    )
    for kind, count in collections.Counter(i.kind for i in body).most_common():
        print(f"    {kind:16} {count:5} {count / elements:6.3f}")
    return ratio


def contest_shapes() -> list[Shape]:
    """m, k and l of the contest's benchmarks."""
    return [referee.shape_of(parse_case(line)) for line in load_problem().benchmarks]


def _sizes(text: str) -> Shape:
    m, k, l = map(int, text.split(","))
    return m, k, l


def main() -> int:
    """Reports every shape; 1 if one exceeds --most."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", default="sm_100a")
    parser.add_argument("--submission", type=pathlib.Path, default=pathlib.Path("submission.py"))
    parser.add_argument(
        "--shape", action="append", type=_sizes, help="m,k,l; default: the contest's"
    )
    parser.add_argument("--most", type=float, help="fail above so many instructions an element")
    arguments = parser.parse_args()
    os.environ["CUTE_DSL_ARCH"] = arguments.arch
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUTE_DSL_KEEP": "cubin", "CUTE_DSL_DUMP_DIR": folder}
        submission = load_submission(arguments.submission)
        ratios = [report(submission, shape) for shape in arguments.shape or contest_shapes()]
    if arguments.most and max(ratios) > arguments.most:
        print(f"above {arguments.most} instructions an element: {max(ratios):.3f}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
