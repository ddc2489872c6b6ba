"""The CuTe DSL submission without a GPU: what it refuses, its configurations, its code."""

# mypy: allow-untyped-defs

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys

import pytest

root = pathlib.Path(__file__).resolve().parent.parent
shapes = [(1, 64, 1), (3, 64, 5), (17, 192, 2), (129, 320, 1), (33, 1088, 2), (7, 16384, 1)]


# What the processes of this file begin with is imported once.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["cutlass.cute", "nvfp4.emulation"])


def execute(code: str, arch: str, output: pathlib.Path) -> None:
    os.chdir(root)
    with output.open("w") as file, contextlib.redirect_stdout(file):
        exec(code, {"arch": arch})


def run(code: str, arch: str, folder: pathlib.Path) -> str:
    """Output of Python code in a process that compiles for an architecture."""
    output = folder / "output"
    process = forks.Process(target=execute, args=(code, arch, output))
    process.start()
    process.join(300)
    assert process.exitcode == 0, output.read_text()
    return output.read_text()


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_every_output_of_odd_shapes_is_right_on_an_emulated_device(arch, tmp_path):
    code = f"""
import json
from nvfp4 import emulation
with emulation.install(arch):
    import submission, reference
    wrong = []
    for m, k, l in {shapes}:
        data = reference.generate_full_range_input(m, k, l, seed=m + k)
        right, message = reference.check_implementation(data, submission.custom_kernel(data))
        wrong += [] if right else [[m, k, l, message]]
print(json.dumps(wrong))
"""
    assert json.loads(run(code, arch, tmp_path).splitlines()[-1]) == []


def test_what_the_kernel_cannot_take_is_refused_before_a_launch(tmp_path):
    code = """
import os
os.environ["CUTE_DSL_ARCH"] = arch
import submission, reference
good = reference.generate_full_range_input(4, 64, 1, seed=1)
def refuse(**changed):
    names = ["a", "b", "sfa", "sfb", "sfa_permuted", "sfb_permuted", "c"]
    data = tuple(changed.get(name, tensor) for name, tensor in zip(names, good))
    try:
        submission.custom_kernel(data)
    except ValueError as error:
        print(error)
    else:
        print("accepted")
refuse(a=good[0][:, :16])
refuse(c=good[6].float())
refuse(sfa=good[2][:, :2])
refuse(b=good[1].contiguous().permute(2, 1, 0).contiguous().permute(2, 1, 0)[:64])
"""
    lines = run(code, "sm_90a", tmp_path).splitlines()
    assert lines[0] == "k must be a positive multiple of 64, but is 32"
    assert lines[1] == "c must be torch.float16 on cpu, but is torch.float32 on cpu"
    assert lines[2].startswith("sfa must be [4, 4, 1] to fit a")
    assert lines[3].startswith("b must be [128, 32, 1] to fit a")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_rule_gives_a_configuration_that_can_be_launched_for_any_shape(arch, tmp_path):
    code = """
import os
os.environ["CUTE_DSL_ARCH"] = arch
import submission
for m in (1, 7, 128, 7168, 10**6):
    for k in (64, 128, 320, 1088, 4608, 7168, 53248, 2**20):
        for l in (1, 3, 70000):
            c = submission.rule(m, k, l, submission.compute_capability())
            assert c.threads_k * c.groups <= c.resident, (m, k, l, c)
            assert c in submission.configurations(m, k, l, submission.compute_capability())
print("all")
"""
    assert run(code, arch, tmp_path).splitlines()[-1] == "all"


def test_the_blackwell_loops_take_at_most_1_6_instructions_an_element_and_do_not_spill():
    pytest.importorskip("nvidia")
    command = [sys.executable, "-m", "benchmarks.sass", "--arch", "sm_100a", "--most", "1.6"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 spills") == 3
    assert done.stdout.count("LDG.E.NA.EFL2.256") == 3


def test_a_configuration_can_be_forced(tmp_path):
    code = """
from nvfp4 import emulation
with emulation.install(arch) as emulated:
    import submission, reference
    data = reference.generate_full_range_input(40, 1024, 1, seed=2)
    submission.gemv(data, submission.Configuration(threads_k=16, groups=4, rows=2, pieces=2))
    print(list(emulated.launches[-1].block)[:2], list(emulated.launches[-1].grid)[0])
"""
    assert run(code, "sm_90a", tmp_path).splitlines()[-1] == "[16, 4] 5"


def test_a_configuration_that_cannot_be_launched_says_why(tmp_path):
    code = """
import os
os.environ["CUTE_DSL_ARCH"] = arch
import submission
for fields in ((24, 4, 1), (8, 1, 1), (512, 4, 1), (32, 1, 3), (8, 4, 16), (32, 1, 1, 1, 8)):
    try:
        submission.Configuration(*fields)
    except ValueError as error:
        print(str(error).split("): ")[1])
"""
    assert run(code, "sm_90a", tmp_path).splitlines() == [
        "threads_k must be 8, 16 or a multiple of 32",
        "a CTA of 8 threads is not whole warps",
        "resident must be at most 1024 and at least the 2048 threads of a CTA",
        "rows must be a power of two of at most 32",
        "rows must be a power of two of at most 8",
        "a piece is 16 or 32 bytes",
    ]
