"""`nvfp4 explain`: what a line costs, what it wastes, and how both are shown."""

import re
from dataclasses import replace
from typing import Any

from nvfp4.cli.explain.advice import CostlyLine, costly_lines, kernel_notes
from nvfp4.cli.explain.listing import Shown, costly_sentences, kernel_heading, listing, short_count
from nvfp4.cli.problem import shape_of
from nvfp4.records.costs import AccessCost, Code, Kernel, LineCost, ReadCost

SHAPE = shape_of("m: 128; k: 1536; l: 1")


def access(opcode: str = "ld.global.b32", **changes: Any) -> AccessCost:
    """A coalesced load of 16 bytes by each lane of a thousand warps."""
    plain = AccessCost(opcode, 16, 1000, 16000, 16000, 0, 0, 0, 0, 16, None, None, [])
    return replace(plain, **changes)


def line(number: int = 7, **changes: Any) -> LineCost:
    """A line that a thousand full warps run."""
    plain = LineCost("submission.py", number, 1000, 32000, 0, 0, 0.0, [], {"add.s32": 1000}, [], [])
    return replace(plain, **changes)


def kernel(*lines: LineCost, **changes: Any) -> Kernel:
    total = sum(each.instructions for each in lines)
    dims = (128, 1, 1), (64, 1, 1)
    made = Kernel("gemv", *dims, 0, 0, 128, 128, 1, total, list(lines), 32, 0, [], [], None)
    return replace(made, **changes)


def costly(*lines: LineCost, **changes: Any) -> list[CostlyLine]:
    return costly_lines([kernel(*lines, **changes)], SHAPE, 5)


def only_code(*lines: LineCost, **changes: Any) -> str:
    """The code of the first advice on the first line."""
    return costly(*lines, **changes)[0].advice[0].code


def test_an_uncoalesced_load_says_how_many_sectors_would_do() -> None:
    bad = line(accesses=[access(nbytes=4, sectors=32000, least_sectors=4000, stride_bytes=512)])
    (found,) = costly(bad)
    assert found.sentence.startswith(
        "each warp asks for 32 sectors where 4 would do: neighbouring threads read 512 bytes apart"
    )


def test_a_bank_conflict_names_the_lanes() -> None:
    shared = access("ld.shared.b32", sectors=0, least_sectors=0, passes=8000, least_passes=1000)
    shared = replace(shared, conflict_ways=8, conflict_bank=0, conflict_lanes=[0, 4, 8, 12])
    (found,) = costly(line(accesses=[shared]))
    assert found.sentence == (
        "8-way bank conflict: lanes 0, 4, 8, ... hit bank 0; pad the row by one word or swizzle it"
    )


def test_scales_that_are_loaded_again_are_redundant_and_b_may_be() -> None:
    again = line(accesses=[access()], reads=[ReadCost("sfa", 16000, 1000)])
    assert "each byte of sfa is loaded 16 times by the launch" in costly(again)[0].sentence
    shared = line(8, accesses=[access(sectors=2000, least_sectors=2000)])
    shared = replace(shared, reads=[ReadCost("b", 16000, 16)])
    once = line(accesses=[access()], reads=[ReadCost("a", 16000, 16000)])
    assert not any(each.advice for each in costly(once, shared))
    too_often = [kernel(once, replace(shared, accesses=[access()]))]
    assert not costly_lines(too_often, SHAPE, 1)[0].advice  # each thread there is loads once
    (found,) = costly_lines([replace(too_often[0], ctas_total=4096)], SHAPE, 1)
    assert found.advice[0].code == "redundant_load"


def test_an_address_that_stays_is_loop_invariant() -> None:
    stays = line(
        accesses=[access(repeats=900, sectors=1000, least_sectors=1000)],
        reads=[ReadCost("sfa", 4000, 400)],
    )
    assert only_code(stays) == "loop_invariant_load"
    moves = replace(stays, accesses=[replace(stays.accesses[0], moves=500)])
    assert only_code(moves) == "redundant_load"


def test_a_branch_pays_for_what_its_warps_wait_for() -> None:
    branch = line(3, instructions=10, lanes=320, divergences=10, idle=600.0)
    found = costly(line(), branch, line(9, instructions=500))
    assert [each.line.line for each in found] == [7, 3, 9]
    assert "warps diverge here 10 times" in found[1].sentence
    assert not costly(line(), replace(branch, idle=5.0))[0].advice


def test_a_line_without_waste_says_what_it_does() -> None:
    opcodes = {"ld.global.L1::no_allocate.v4.b32": 600, "ld.global.v4.b32": 300, "add.s64": 100}
    (found,) = costly(line(opcodes=opcodes, accesses=[access()], reads=[ReadCost("a", 500, 500)]))
    assert found.sentence == (
        "no waste was found, full sectors, each byte of a once: 90% ld.global.v4.b32, 10% add.s64"
    )


def test_small_waste_is_not_mentioned() -> None:
    small = line(9, instructions=5, accesses=[access(requests=5, sectors=160, least_sectors=20)])
    assert not any(each.advice for each in costly(line(instructions=100_000), small))


def test_decoding_by_hand_is_named_where_most_of_it_is() -> None:
    work = {"and.b32": 3000, "shr.u32": 3000, "setp.ne.s32": 2000}
    many = {name: count * SHAPE.elements // 32_000 for name, count in work.items()}
    by_hand = line(instructions=sum(many.values()), opcodes=many)
    assert only_code(by_hand) == "scalar_conversions"
    assert not costly(replace(by_hand, opcodes={**many, "cvt.rn.f16x2.e2m1x2": 1000}))[0].advice


def test_a_kernel_says_what_is_wrong_as_a_whole() -> None:
    notes = list(kernel_notes(kernel(line(), block=[48, 1, 1], spilled_bytes=64)))
    assert notes[0].startswith("a block of 48 threads leaves 16 lanes")
    assert notes[1].startswith("64 bytes of registers are spilled")
    assert not list(kernel_notes(kernel(line())))


def test_lines_without_cost_are_folded() -> None:
    source = [f"source {number}" for number in range(1, 11)]
    one, other = line(3, accesses=[access()]), line(4, divergences=1234)
    shown = list(listing(kernel(one, other), "submission.py", source, Shown()))
    assert shown[0].endswith("| submission.py")
    assert [text.strip() for text in shown[1:2] + shown[-1:]] == ["...", "..."]
    first, second = shown[2:4]
    assert first.split("|")[0].split() == ["3", "50.0%", "1.00k", "16.0k", "1.00"]
    assert first.endswith("| source 3")
    assert second.split("|")[0].split() == ["4", "50.0%", "1.00k", "1.23k"]
    assert len(shown) == 5
    assert all(len(text) <= 80 for text in shown)


def test_code_stands_under_its_line_if_it_is_asked_for() -> None:
    code = kernel(
        line(2),
        ptx=[Code("submission.py", 2, "add.s32 %r1, %r2, %r3;", 1000)],
        sass=[Code("submission.py", 2, "IADD3 R0, R1, R2, RZ")],
    )
    asked = Shown(columns=100), Shown(ptx=True, sass=True, columns=100)
    plain, both = (
        "\n".join(listing(code, "submission.py", ["one", "two"], each)) for each in asked
    )
    assert "add.s32 %r1" not in plain
    assert "1.00k" in both.split("add.s32 %r1")[0].split("\n")[-1]
    assert re.search(r"SASS +IADD3", both)


def test_numbers_are_short() -> None:
    shown = [short_count(n) for n in (0, 999, 1000, 12345, 999_900, 7_567_616, 2e9)]
    assert shown == ["0", "999", "1.00k", "12.3k", "1.00M", "7.57M", "2.00G"]


def test_a_sample_is_admitted() -> None:
    heading = "\n".join(kernel_heading(kernel(line(), ctas_run=64, assembled_registers=None)))
    assert "64 of 128 CTAs were run" in heading
    assert "no ptxas" in heading


def test_tensor_cores_are_told_with_the_lines_that_use_them() -> None:
    product = line(7, tensor_products=512, tensor_cycles=17_408)
    heading = "\n".join(kernel_heading(kernel(product, line(6, tensor_bytes=2_097_152))))
    assert "512 products of tensor cores, 2,097,152 bytes to and from tensor memory" in heading
    assert "busy for 17.4k cycles, 0.060 us if all of a B200 work: line 7 100%" in heading


def test_sentences_name_callers_and_kernels() -> None:
    (sentence,) = costly_sentences(costly(line(5, callers=[30, 12])), several=True, columns=200)
    assert sentence.startswith("1. line 5 (called from 12, 30) of gemv, 100% of the cost: no waste")
    other = line(3, file="decode.cuh", instructions=9000)
    (sentence, _) = costly_sentences(costly(line(5), other), several=False, columns=200)
    assert sentence.startswith("1. decode.cuh:3, 90% of the cost: no waste")
