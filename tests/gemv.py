"""Cases of NVFP4 GEMV as the judge has them."""

from typing import Any

import bot

from nvfp4.contract.referee import CasePlan, Drawn
from nvfp4.contract.tree import Leaf, Storage, Tree, packed
from nvfp4.gpu.buffers import Sizes, sizes_of
from nvfp4.problems.nvfp4_gemv.referee import Gemv
from nvfp4.records.cases import Case, parse_case

referee = Gemv()


def make_case(m: int, k: int, l: int, full: bool = False, seed: int = 1111) -> Case:
    return parse_case(bot.case(m, k, l, seed, full))


def plan_of(m: int, k: int, l: int) -> CasePlan:
    return referee.plan(make_case(m, k, l))


def sizes(m: int, k: int, l: int) -> Sizes:
    """Of the buffers of a case."""
    plan = plan_of(m, k, l)
    return sizes_of(plan.inputs, plan.room_bytes)


def drawn(case: Case, seed: int | None = None) -> Drawn:
    return referee.draw(case, case.seed if seed is None else seed)


def output_record(m: int, l: int, dtype: str = "float16") -> dict[str, Any]:
    """The tree of an output, as a worker describes it."""
    leaf = Leaf("output", 0, dtype, [m, 1, l], [l, l, 1])
    return packed(Tree({"leaf": 0}, [leaf], [Storage(0)])).to_plain()
