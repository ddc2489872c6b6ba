"""Architectures that PTX is rewritten for, and the instructions of later ones that have no
replacement there, by name."""

import re
from collections.abc import Callable
from functools import lru_cache

from nvfp4.records.base import Record

_NAME = re.compile(r"sm_(\d+)([af]?)")
# Architectures with features of their own, which PTX asks for by the suffix.
_SPECIFIC = (90, 100, 101, 103, 110, 120, 121)


class Target(Record):
    """An architecture such as sm_90a: number 90, suffix "a"."""

    number: int
    suffix: str = ""
    ptx: tuple[int, int] = (99, 0)
    """The version of PTX that the text is written in, which may be older than the target."""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def has(self, number: int, ptx: tuple[int, int]) -> bool:
        """Whether the target has what an architecture and a version of PTX introduced."""
        return self.number >= number and self.ptx >= ptx


def parse_target(name: str) -> Target:
    """Return the target of a name such as sm_90a. Raises ValueError for one before sm_80."""
    matched = _NAME.fullmatch(name)
    if matched is None or int(matched[1]) < 80:
        raise ValueError(f"{name} is not an architecture from sm_80 on, such as sm_80 or sm_90a")
    return Target(int(matched[1]), matched[2])


def target_of(capability: tuple[int, int]) -> Target:
    """Return the target of a device's compute capability, with all its features. Raises ValueError
    for one before sm_80."""
    number = 10 * capability[0] + capability[1]
    if number < 80:
        raise ValueError(f"sm_{number} is older than sm_80, the first that PTX is rewritten for")
    return Target(number, "a" if number in _SPECIFIC else "")


Having = Callable[[Target], bool]


_MATRICES = "products of block-scaled and 4 and 6-bit matrices by mma exist on sm_120a only"
_BULK_FORM = "this form of a bulk copy starts with sm_100"
_ENGINE = "copies by the engine (TMA) start with sm_90"
_ATOMICS = "atomics on vectors, on bf16 and on 128 bits start with sm_90"
_BF16 = "before sm_90 bf16 converts from and to f32 only"
_SM_90, _SM_100 = "it starts with sm_90", "it starts with sm_100"


def _from(number: int) -> Having:
    return lambda target: target.number >= number


def _own(first: int, end: int) -> Having:
    """Whether a target is one of a family, with its own features."""
    return lambda target: first <= target.number < end and bool(target.suffix)


_hopper, tensor_memory, _rtx_blackwell = _own(90, 91), _own(100, 120), _own(120, 1000)


# (opcode, targets that have it, reason for the refusal)
_ONLY: tuple[tuple[str, Having, str], ...] = (
    (r"tcgen05\.", tensor_memory, "tensor memory and its tensor cores exist on sm_100a only"),
    (r"wgmma\.", _hopper, "wgmma exists on sm_90a only"),
    (r"mma\..*(kind::|block_scale|mxf|e2m1|e2m3|e3m2)", _rtx_blackwell, _MATRICES),
    (r"redux\..*f32", tensor_memory, "a warp's extreme of f32 exists on sm_100a only"),
    (r"mma\..*\.(e4m3|e5m2)\.", _from(89), "tensor cores take 8-bit floats from sm_89 on"),
    (r"clusterlaunchcontrol\.", _from(100), "a running CTA asks for another from sm_100 on"),
    (r"cp\.async\.bulk\..*(gather4|scatter4|im2col::w|cta_group::2)", tensor_memory, _BULK_FORM),
    (r"(cp\.async\.bulk|cp\.reduce\.async|st\.async|red\.async|tensormap)\b", _from(90), _ENGINE),
    (r"(atom|red)\..*(b128|\.v[248]\b|add\..*bf16)", _from(90), _ATOMICS),
    (r"(st|red)\.async\..*mmio|st\.bulk|cvt\.rn\.(\w+\.)*satfinite\.tf32", _from(100), _SM_100),
    (r"(ldmatrix|stmatrix)\..*(m16n16|m8n16|m16n8)", _from(100), _SM_100),
    (r"multimem\.|stmatrix\.|elect\.|fma\..*oob|cvt\.(rn|rz)\.(\w+\.)*tf32", _from(90), _SM_90),
    (r"mbarrier\..*(expect_tx|complete_tx|cluster)", _from(90), _SM_90),
    (r"barrier\.cluster", _from(90), "clusters start with sm_90"),
    (r"(add|sub|min|max)\..*[us]16x2", _from(90), "pairs of integers start with sm_90"),
    (r"(setp|set|tanh|ex2)\..*bf16", _from(90), "bf16 has it from sm_90 on"),
    (r"cvt\.(?!f32\.)(\w+\.)*bf16\.(?!f32$)\w+$", _from(90), _BF16),
    (r"cvt\.(?!f32\.bf16$)(\w+\.)*bf16$", _from(90), _BF16),
    (r"(min|max)\..*xorsign", _from(86), "it starts with sm_86"),
    (r"(mapa|getctarank|.*shared::cluster)", _from(90), "clusters start with sm_90"),
)


@lru_cache(maxsize=4096)
def refusal(opcode: str, target: Target) -> str | None:
    """Return why an instruction has no replacement on the target; None if no rule excludes one."""
    missing = (why for regex, has, why in _ONLY if re.match(regex, opcode) and not has(target))
    return next(missing, None)
