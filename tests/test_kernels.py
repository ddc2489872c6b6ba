"""The CuTe DSL submission without a GPU: what it refuses, its configurations, its code."""

import contextlib
import multiprocessing
import os
from pathlib import Path

import pytest
from bot import root
from conftest import run_python

pytest.importorskip("cutlass")

odd_shapes = [(1, 64, 1), (3, 64, 5), (17, 192, 2), (129, 320, 1), (33, 1088, 2), (7, 16384, 1)]

both = pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])

# What the processes of this file begin with is imported once.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["cutlass.cute", "nvfp4.emulation"])


def execute(code: str, arch: str, output: Path) -> None:
    """Run code that knows the names of this function, in the repository's folder."""
    os.chdir(root)
    import torch

    from nvfp4 import emulation

    with (
        output.open("w") as file,
        contextlib.redirect_stdout(file),
        emulation.install(arch) as emulated,
    ):
        import reference
        import submission

        known = {"torch": torch, "reference": reference, "submission": submission}
        exec(code, {**known, "emulated": emulated, "arch": arch})


def run(code: str, arch: str, folder: Path) -> list[str]:
    """Lines that Python code prints in a process that emulates an architecture."""
    output = folder / "output"
    process = forks.Process(target=execute, args=(code, arch, output))
    process.start()
    process.join(300)
    assert process.exitcode == 0, output.read_text()
    return output.read_text().splitlines()


@both
def test_every_output_of_odd_shapes_is_right_on_an_emulated_device(
    arch: str, tmp_path: Path
) -> None:
    code = f"""
for m, k, l in {odd_shapes}:
    data = reference.generate_full_range_input(m, k, l, seed=m + k)
    right, message = reference.check_implementation(data, submission.custom_kernel(data))
    print(right or [m, k, l, message])
"""
    assert run(code, arch, tmp_path) == ["True"] * len(odd_shapes)


@pytest.mark.parametrize(
    ("arch", "decoder"),
    [
        ("sm_90a", "IntegerDecoderBeforeE4M3"),
        ("sm_90a", "IntegerDecoder"),
        ("sm_100a", "HalfDecoder"),
    ],
)
def test_the_product_of_any_two_scales_is_exact_and_nan_where_one_is_nan(
    arch: str, decoder: str, tmp_path: Path
) -> None:
    """Output [i, j] is a quarter of scale i times scale j: a float16 without rounding."""
    code = f"""
submission.decoder_for = lambda capability: submission.{decoder}
a, b, sfa, sfb, *permuted, c = reference.generate_full_range_input(256, 64, 256, seed=1)
a.view(torch.uint8).fill_(0x11)
b.view(torch.uint8).fill_(0)
codes = torch.arange(256)
row, batch = codes[:, None], codes[None]
block = (row + batch) % 4
sfa.view(torch.uint8).zero_()[row, block, batch] = row.to(torch.uint8).expand(256, 256)
sfb.view(torch.uint8)[:] = codes.to(torch.uint8)
# 0.5 in each block's element that is its number.
for element in (0, 17, 34, 51):
    b.view(torch.uint8)[0, element // 2] = 0x10 if element % 2 else 0x01
submission.custom_kernel((a, b, sfa, sfb, *permuted, c))
scales = codes.to(torch.uint8).view(torch.float8_e4m3fn).double()
expected = 0.25 * scales[:, None] * scales
assert expected.nan_to_num().abs().max() == 50176
torch.testing.assert_close(c[:, 0].double(), expected, rtol=0, atol=0, equal_nan=True)
"""
    run(code, arch, tmp_path)


@both
def test_sums_of_the_largest_products_are_exact(arch: str, tmp_path: Path) -> None:
    """Block i + 1 of a is block i negated but for one element, so that the difference is left."""
    code = """
m, k = 256, 64
a, b, sfa, sfb, *permuted, c = reference.generate_full_range_input(m, k, 1, seed=1)
draw = torch.Generator().manual_seed(1)
# Mostly 6, so that sums come close to 576; 0.5 and 1.5 make them odd multiples of a quarter.
large = torch.tensor([7] * 30 + [1, 3], dtype=torch.uint8)
def pick(*size):
    return large[torch.randint(0, len(large), size, generator=draw)]
half = pick(m, 2, 16)
other = half ^ 8
other[torch.arange(m), :, torch.arange(m) % 16] = 1
code_a = torch.stack([half, other], 2).reshape(m, k)
code_b = pick(2, 1, 16).expand(2, 2, 16).reshape(k)
a.view(torch.uint8)[:, :, 0] = code_a[:, ::2] | code_a[:, 1::2] << 4
b.view(torch.uint8)[0, :, 0] = code_b[::2] | code_b[1::2] << 4
sfa.view(torch.uint8).fill_(0x38)
sfb.view(torch.uint8).fill_(0x38)
submission.custom_kernel((a, b, sfa, sfb, *permuted, c))
values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]).double()
values = torch.cat([values, -values])
expected = values[code_a.long()] @ values[code_b.long()]
sums = (values[code_a.long()] * values[code_b.long()]).reshape(m, 4, 16).sum(2)
assert (sums.abs() > 512).any() and (expected % 0.5 != 0).any()
torch.testing.assert_close(c[:, 0, 0].double(), expected, rtol=0, atol=0)
"""
    run(code, arch, tmp_path)


def test_what_the_kernel_cannot_take_is_refused_before_a_launch(tmp_path: Path) -> None:
    code = """
good = reference.generate_full_range_input(4, 64, 1, seed=1)
def refuse(**changed):
    names = ["a", "b", "sfa", "sfb", "sfa_permuted", "sfb_permuted", "c"]
    data = tuple(changed.get(name, tensor) for name, tensor in zip(names, good))
    try:
        print("accepted", submission.custom_kernel(data))
    except ValueError as error:
        print(error)
refuse(a=good[0][:, :16])
refuse(c=good[6].float())
refuse(sfa=good[2][:, :2])
refuse(b=good[1].contiguous().permute(2, 1, 0).contiguous().permute(2, 1, 0)[:64])
"""
    lines = run(code, "sm_90a", tmp_path)
    assert lines[0] == "k must be a positive multiple of 64, but is 32"
    assert lines[1] == "c must be torch.float16 on cpu, but is torch.float32 on cpu"
    assert lines[2].startswith("sfa must be [4, 4, 1] to fit a")
    assert lines[3].startswith("b must be [128, 32, 1] to fit a")


@both
def test_the_rule_gives_a_configuration_that_can_be_launched_for_any_shape(
    arch: str, tmp_path: Path
) -> None:
    code = """
for m in (1, 7, 128, 7168, 10**6):
    for k in (64, 128, 320, 1088, 4608, 7168, 53248, 2**20):
        for l in (1, 3, 70000):
            c = submission.rule(m, k, l, submission.compute_capability())
            assert c.threads_k * c.groups <= c.resident, (m, k, l, c)
            assert c in submission.configurations(m, k, l, submission.compute_capability())
"""
    run(code, arch, tmp_path)


def test_the_blackwell_loops_take_at_most_1_33_instructions_an_element_and_do_not_spill() -> None:
    pytest.importorskip("nvidia")
    done = run_python("-m", "benchmarks.sass", "--arch", "sm_100a", "--most", "1.33", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 spills") == 3
    assert done.stdout.count("LDG.E.NA.EFL2.256") == 3


def test_a_configuration_can_be_forced(tmp_path: Path) -> None:
    code = """
data = reference.generate_full_range_input(40, 1024, 1, seed=2)
submission.gemv(data, submission.Configuration(threads_k=16, groups=4, rows=2, pieces=2))
print(list(emulated.launches[-1].block)[:2], list(emulated.launches[-1].grid)[0])
"""
    assert run(code, "sm_90a", tmp_path)[-1] == "[16, 4] 5"


def test_a_configuration_that_cannot_be_launched_says_why(tmp_path: Path) -> None:
    code = """
for fields in ((24, 4, 1), (8, 1, 1), (512, 4, 1), (32, 1, 3), (8, 4, 16), (32, 1, 1, 1, 8)):
    try:
        submission.Configuration(*fields)
    except ValueError as error:
        print(str(error).split("): ")[1])
"""
    assert run(code, "sm_90a", tmp_path) == [
        "threads_k must be 8, 16 or a multiple of 32",
        "a CTA of 8 threads is not whole warps",
        "resident must be at most 1024 and at least the 2048 threads of a CTA",
        "rows must be a power of two of at most 32",
        "rows must be a power of two of at most 8",
        "a piece is 16 or 32 bytes",
    ]
