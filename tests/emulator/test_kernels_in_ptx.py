"""Kernels of `kernels/*.ptx`: what each leaves in memory, what is found, what is refused.

A line `//# TITLE` begins a kernel, whose body follows; `ptx_harness.run` supplies the rest of it.
Lines `// KEY: VALUE` say what it runs on and what is expected:

arrays: what q0, q1, ... point to, Python expressions; 64 zeros by default.
block, grid, cluster, shared_bytes, check, before, directives: arguments of `ptx_harness.run`.
raises: CLASS: REGEX, the error and a part of its text; `A|B` is either. Without it there is none.
finds: CODE: REGEX, a finding and a part of its message. All are listed, or there is one line `any`.
codes: instead of `raises` or `finds`, the codes of all that is found, sorted; `none` if nothing is.
holds: a Python expression of the arrays a0, a1, ... and of `report`, or of `error` if there is one.
frame: the kernel is the middle of one on tensor memory, whose threads store so many words each; see
    `tensor_harness.execute`. columns: how many it allocates.

`{{EXPRESSION}}` in a kernel stands for its value.

`//? $NAME = TEXT` begins a case of the kernel, in which TEXT stands for $NAME, with own keys.
The keys before the first one are common. `//= $NAME = TEXT` in front of all kernels is for all, but
for the cases that give the name themselves.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensor_harness as tensor
from conftest import run_python
from ptx_harness import MINE, MINE_IN_GRID, Array, aligned, ptx_of, run

from nvfp4 import emulator
from nvfp4.emulator import Launch, LaunchReport, errors
from nvfp4.emulator.execution import launch as execution
from nvfp4.emulator.execution import schedule
from nvfp4.records.tensormap import DataType, TensorMap

KNOWN = {"arrays", "block", "grid", "cluster", "shared_bytes", "check", "before", "directives"}
KNOWN |= {"raises", "finds", "codes", "holds", "frame", "columns"}


def mapped(data: Array, box: tuple[int, int]) -> tuple[Array, Array]:
    """The tensor map of a matrix of words, and the matrix."""
    data = aligned(data)
    rows, columns = data.shape
    tile = TensorMap(
        DataType.UINT32, data.ctypes.data, (columns, rows), (4 * columns,), box, (1, 1)
    )
    return aligned(tile.pack()), data


NAMES: dict[str, Any] = {
    "np": np, "json": json, "aligned": aligned,
    "words": lambda n=64: np.arange(n, dtype=np.uint32),
    "zeros": lambda n=64: np.zeros(n, np.uint32), "ones": lambda n=64: np.ones(n, np.uint32),
    "mapped": mapped, **vars(tensor)
}  # fmt: skip


class Kernel(NamedTuple):
    body: str
    keys: list[tuple[str, str]]

    def of(self, key: str) -> list[str]:
        return [value for name, value in self.keys if name == key]


def replaced(text: str, names: dict[str, str]) -> str:
    while (found := re.sub(r"\$(\w+)", lambda m: names.get(m[1], m[0]), text)) != text:
        text = found
    return text


def kernels(path: Path) -> dict[str, Kernel]:
    """The kernels of a file and their cases, by title."""
    top, *parts = path.read_text(encoding="utf-8").split("\n//# ")
    names = {"MINE": MINE, "MINE_IN_GRID": MINE_IN_GRID}
    names |= dict(re.findall(r"^//= \$(\w+) = (.*)$", top, re.M))
    found = {}
    for part in parts:
        title, _, text = part.partition("\n")
        common, *cases = re.split(r"^//\? ", text, flags=re.M)
        body = re.sub(r"^//.*\n", "", text, flags=re.M)
        for case in cases or [""]:
            said, _, own = case.partition("\n")
            given = dict(re.findall(r"\$(\w+) = (.*?)(?=; \$\w+ = |$)", said))
            lines = re.findall(r"^// +(\w+): (.*)$", f"{common}\n{own}", re.M)
            keys = [(key, replaced(value, names | given)) for key, value in lines]
            assert {key for key, _ in keys} <= KNOWN, title
            full = f"{title} ({said})" if cases else title
            assert full not in found, full
            found[full] = Kernel(replaced(body, names | given), keys)
    return found


KERNELS = {
    f"{path.stem}: {title}": kernel
    for path in sorted((Path(__file__).parent / "kernels").glob("*.ptx"))
    for title, kernel in kernels(path).items()
}


def launch(kernel: Kernel, arrays: list[Array]) -> LaunchReport:
    """Run a kernel as its keys say. arrays: gets those that it works on."""
    body = re.sub(r"\{\{(.+?)\}\}", lambda m: str(eval(m[1], NAMES)), kernel.body)
    if frame := kernel.of("frame"):
        a, b = tensor.matrices()
        arrays += [a, b, np.zeros((128, int(frame[-1])), np.uint32)]
        columns = int((kernel.of("columns") or ["32"])[0])
        return tensor.execute(body, [tensor.packed(a), tensor.packed(b)], arrays[-1], columns)
    given = [array for text in kernel.of("arrays") for array in eval(f"[{text}]", NAMES)]
    arrays += given or [np.zeros(64, np.uint32)]
    options: dict[str, Any] = {key: "\n".join(kernel.of(key)) for key in ("before", "directives")}
    for key in ("block", "grid", "cluster", "shared_bytes", "check"):
        options.update((key, eval(value)) for value in kernel.of(key))
    return run(body, *arrays, **options)


@pytest.mark.parametrize("title", KERNELS)
def test_a_kernel_does_what_is_said_beside_it(title: str) -> None:
    kernel = KERNELS[title]
    arrays: list[Array] = []
    raises = [text.partition(": ") for text in kernel.of("raises")]
    codes = kernel.of("codes")
    names = dict(NAMES)
    if raises:
        kinds = tuple(getattr(errors, name) for name in raises[0][0].split("|"))
        with pytest.raises(kinds) as caught:
            launch(kernel, arrays)
        names["error"] = caught.value
        for _, _, text in raises:
            assert re.search(text, str(caught.value), re.S)
    elif codes:
        try:
            found = sorted({each.code for each in launch(kernel, arrays).findings})
        except errors.EmulatorError as error:
            found = [error.code]
        assert (" ".join(found) or "none") == codes[0]
    else:
        names["report"] = report = launch(kernel, arrays)
        finds = [text.partition(": ") for text in kernel.of("finds")]
        if [code for code, _, _ in finds] != ["any"]:
            assert [each.code for each in report.findings] == [code for code, _, _ in finds]
            for each, (_, _, text) in zip(report.findings, finds, strict=True):
                assert re.search(text, each.message, re.S)
    names.update((f"a{i}", array) for i, array in enumerate(arrays))
    for text in kernel.of("holds"):
        assert eval(text, names), text


def test_a_runaway_address_never_reaches_the_process() -> None:
    """In a process of its own: the emulator must survive any address a kernel makes up."""
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np
from ptx_harness import run
from nvfp4.emulator.errors import EmulatorError
for bits in range(0, 64):
    for op in ("ld.global.u32 %r5, [%d5];", "st.u32 [%d5], %r0;", "red.global.add.u32 [%d5], %r0;"):
        try:
            run(f"mov.u64 %d5, {{1 << bits}}; {{op}}", np.zeros(4, np.uint32), check=False)
        except EmulatorError:
            continue
        raise SystemExit(f"no error at {{1 << bits:#x}}: {{op}}")
"""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr


def test_a_launch_that_cannot_end_in_time_is_given_up_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "_LEAST_SEEN_S", 0.0)
    loop = "mov.u32 %r5, 0; L: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 900; @%p1 bra L;"
    began = time.monotonic()
    asked = Launch(ptx_of(loop, 0), "k", (1 << 20, 1, 1), (128, 1, 1), [], deadline=began + 9)
    with pytest.raises(errors.TooSlow, match=r"the 1,048,576 CTAs of k would take \d+ s here"):
        emulator.run(asked)
    assert time.monotonic() < began + 9


def test_a_loop_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "STEP_LIMIT", 3000)
    with pytest.raises(errors.RunawayKernel, match="still running") as stopped:
        run("L: bra L;", np.zeros(1))
    assert set(stopped.value.arguments) == {"seconds", "cpu_s"}
