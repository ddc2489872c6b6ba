"""Cases of NVFP4 GEMV as the judge has them."""

import bot

from nvfp4.contract.referee import CasePlan, Drawn
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
