"""Instructions of a warp, barriers, fences and launch control."""

from __future__ import annotations

from nvfp4.emulator.ptx.syntax import Name, Pair
from nvfp4.retarget.reading import shown
from nvfp4.retarget.sequence import Sequence, rule
from nvfp4.retarget.targets import Target

_LAST, _FIRST = 0x7FFFFFFF, -0x80000000
_NAN = 0x7FFFFFFF


@rule("redux")
def redux_of_floats(s: Sequence, target: Target) -> bool:
    """min or max of f32 as that of integers which sort as the floats do, NaN at one end."""
    if target.has_tensor_memory or not s.has("f32"):
        return False
    smallest = s.has("min")
    value = s.held(1)
    size = s.value("and.b32", value, 0x7FFFFFFF)
    bits = size if s.has("abs") else value
    # Negative numbers: the more, the less.
    flipped = s.value("and.b32", s.value("shr.s32", bits, 31), 0x7FFFFFFF)
    key = s.value("xor.b32", bits, flipped)
    nan = s.value("setp.gt.u32", size, 0x7F800000, kind="pred")
    # NaN is chosen first of all with .NaN, last without.
    end = _FIRST if smallest == s.has("NaN") else _LAST
    key = s.value("selp.b32", end, key, nan)
    found = s.register()
    s.perform(f"redux.sync.{'min' if smallest else 'max'}.s32", found, key, s.operand(2))
    flipped = s.value("and.b32", s.value("shr.s32", found, 31), 0x7FFFFFFF)
    value = s.value("xor.b32", found, flipped)
    nan = s.value("setp.eq.s32", found, end, kind="pred")
    s.perform("selp.b32", s.operand(0), _NAN, value, nan)
    return True


@rule("elect")
def leader(s: Sequence, target: Target) -> bool:
    """The lowest of the members that are there."""
    if target.number >= 90:
        return False
    here, always = s.register(), s.register("pred")
    s.compute("setp.eq.u32", always, 0, 0)
    s.perform("vote.sync.ballot.b32", here, always, s.operand(1))
    lowest = s.value("and.b32", here, s.value("neg.s32", here))
    lane = s.value("bfind.u32", lowest)
    wanted = s.operands[0]
    lane_out, flag_out = (
        (wanted.first, wanted.second) if isinstance(wanted, Pair) else (wanted, Name("_"))
    )
    if shown(flag_out) != "_":
        s.perform("setp.eq.u32", shown(flag_out), s.value("mov.u32", "%laneid"), lane)
    if shown(lane_out) != "_":
        s.perform("mov.b32", shown(lane_out), lane)
    return True


@rule("griddepcontrol", "setmaxnreg")
def launch_control(s: Sequence, target: Target) -> bool:
    """Launches follow one another and registers are split evenly: there is nothing to say."""
    if s.parts[0] == "griddepcontrol":
        return target.number < 90
    return target.number < 90 or not target.suffix


@rule("fence")
def fence(s: Sequence, target: Target) -> bool:
    """Before sm_90 there is no asynchronous proxy, and a CTA is alone in its cluster."""
    if target.number >= 90:
        return False
    if s.has("mbarrier_init") or any(part.startswith("async") for part in s.parts):
        return True
    return _wider_scope(s)


@rule("ld", "st", "atom", "red")
def cluster_scope(s: Sequence, target: Target) -> bool:
    """Before sm_90 the scope of the GPU holds for the cluster, too."""
    return target.number < 90 and _wider_scope(s)


def _wider_scope(s: Sequence) -> bool:
    if not s.has("cluster"):
        return False
    opcode = ".".join("gpu" if part == "cluster" else part for part in s.parts)
    s.perform(opcode, *(s.operand(index) for index in range(len(s.operands))))
    return True


@rule("mbarrier")
def polled_wait(s: Sequence, target: Target) -> bool:
    """Before sm_90 test_wait for try_wait, which may give up at any time."""
    if target.number >= 90 or not s.has("try_wait"):
        return False
    opcode = s.node.opcode.replace("try_wait", "test_wait")
    s.perform(opcode, *(s.operand(index) for index in range(3)))
    return True


_ALONE = {
    "%cluster_ctarank": "0",
    "%cluster_nctarank": "1",
    **{f"%cluster_ctaid.{axis}": "0" for axis in "xyz"},
    **{f"%cluster_nctaid.{axis}": "1" for axis in "xyz"},
    **{f"%clusterid.{axis}": f"%ctaid.{axis}" for axis in "xyz"},
    **{f"%nclusterid.{axis}": f"%nctaid.{axis}" for axis in "xyz"},
}


@rule("mov")
def cluster_registers(s: Sequence, target: Target) -> bool:
    """Before sm_90 a CTA is alone in its cluster."""
    if target.number >= 90 or len(s.operands) != 2:
        return False
    source = _ALONE.get(s.operand(1))
    if source is None:
        return False
    s.perform(s.node.opcode, s.operand(0), source)
    return True


@rule("mapa", "getctarank")
def only_member(s: Sequence, target: Target) -> bool:
    """Before sm_90 a CTA is alone in its cluster: its own addresses, and rank 0."""
    if target.number >= 90:
        return False
    source = s.operand(1) if s.parts[0] == "mapa" else "0"
    kind = "b64" if s.parts[0] == "mapa" and s.has("u64") else "b32"
    s.perform(f"mov.{kind}", s.operand(0), source)
    return True
