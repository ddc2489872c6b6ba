"""Which architectures torch and nvcc compile a source for, and which one a GPU's driver loads."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nvfp4.capture.cuda.flags import ARCHITECTURES, options, own_variable, single_words
from nvfp4.capture.device import CODE, runs_on

Capability = tuple[int, int]

_ARCH_LIST = "TORCH_CUDA_ARCH_LIST"
_VIRTUAL = re.compile(r"arch=(\w+)")
_MADE = re.compile(r"code=(?:\[([^\]]*)\]|(.*))")
OLDEST = "compute_75"
"""Default architecture of the contest's nvcc and NVRTC, CUDA 13.0, without an option."""
_OF_THE_GPU = ("native", "all", "all-major")
_SUFFIXES = ("", "f", "a")
"""Suffixes of architectures, in the order of the driver's preference, the most preferred last."""


class Image(NamedTuple):
    """A part of a fat binary."""

    virtual: str
    """The architecture that its PTX is compiled for, such as compute_100."""
    made: str
    """sm_100 for machine code, compute_100 for PTX that the driver compiles."""

    def assembled(self, capability: Capability) -> str:
        """Return the architecture that machine code is made for, by ptxas or by the driver of a
        GPU. A driver takes PTX without a suffix with as much static shared memory as ptxas takes
        with one."""
        return self.made if self.made.startswith("sm_") else "sm_{}{}a".format(*capability)


def split_architectures(words: Iterable[str]) -> tuple[list[str], list[Image]]:
    """Return nvcc's arguments without those that choose an architecture, and the images that these
    ask for, which may be native or all.

    The images are empty if the choice is left to nvcc.
    """
    others: list[str] = []
    images: list[Image] = []
    archs: list[str] = []
    codes: list[str] = []
    for name, value in options(words, ARCHITECTURES):
        made = _MADE.search(value)
        if name not in ARCHITECTURES:
            others.append(value)
        elif name in ("-code", "--gpu-code"):
            codes += value.split(",")
        elif made:
            virtual = _VIRTUAL.search(value)
            for each in (made[1] or made[2] or "").split(","):
                images.append(Image(virtual[1] if virtual else _virtual(each), each))
        else:
            archs = [value]
    if not codes:  # an architecture by itself stands for its PTX, too
        codes = [*archs, *map(_virtual, archs)]
    images += [Image(_virtual(archs[-1] if archs else each), each) for each in codes]
    return others, list(dict.fromkeys(images))


def _virtual(name: str) -> str:
    return re.sub("^(sm|lto)_", "compute_", name)


def fits(words: Iterable[str], number: int) -> bool:
    """Return whether a GPU can run what nvcc's arguments ask for; true if they name no
    architecture.

    number: the GPU's architecture, such as 90.
    """
    _, images = split_architectures(words)
    return not images or any(runs_on(each.made, divmod(number, 10)) for each in images)


def names(words: Iterable[str], number: int) -> bool:
    """Return whether nvcc's arguments name this architecture, such as 90, or none."""
    _, images = split_architectures(words)
    found = [CODE.fullmatch(each.made) for each in images]
    return not images or any(each is None or each[2] == str(number) for each in found)


def nvccs_images(words: Iterable[str], capability: Capability) -> tuple[Image, ...]:
    """Return the images that nvcc makes with these arguments on a machine with such a GPU.

    The first is the one that the GPU's driver loads, if it can run any of them. words: each may
    hold several arguments.
    """
    _, asked = split_architectures(single_words(words))
    asked = asked or [Image(OLDEST, each) for each in (OLDEST.replace("compute", "sm"), OLDEST)]
    own = "{}{}".format(*capability)
    native = Image(f"compute_{own}", f"sm_{own}")
    images = [
        native if each.made in _OF_THE_GPU else each._replace(made=each.made.replace("lto_", "sm_"))
        for each in asked
    ]
    return tuple(sorted(dict.fromkeys(images), key=lambda each: _rank(each, capability)))


def _rank(image: Image, capability: Capability) -> tuple[bool, bool, int, int]:
    """Return a sort key, less for an image that the driver prefers: machine code, for the latest
    architecture that the GPU runs, and of equal numbers the one with a suffix.

    Source: fat binaries of sm_80, sm_90 and sm_90a on an H200, CUDA 13.0, driver 580, 2026-11-24.
    """
    made = CODE.fullmatch(image.made)
    if made is None or not runs_on(image.made, capability):
        return True, True, 0, 0
    kind, number, suffix = made.groups()
    return False, kind == "compute", -int(number), -_SUFFIXES.index(suffix)


def torchs_options(words: Sequence[str], capability: Capability) -> list[str]:
    """Return the options with which torch lets nvcc compile for the GPU of this machine. Raises
    torch's ValueError.

    words: the submission's extra_cuda_cflags; if one contains "arch", torch adds nothing.
    TORCH_CUDA_ARCH_LIST counts only if the submission has set it.
    """
    asked = own_variable(_ARCH_LIST)
    if asked and asked != "native":
        from torch.utils.cpp_extension import _get_cuda_arch_flags

        return list(_get_cuda_arch_flags(list(words)))
    if any("arch" in word for word in words):
        return []
    own = "{}{}".format(*capability)
    return [f"-gencode=arch=compute_{own},code={kind}_{own}" for kind in ("compute", "sm")]


_LACKS = re.compile(
    r"not supported on \.target|too much shared data|requires? (?:\.target )?sm_\d+[af]", re.I
)


def advice(errors: str, virtual: str, capability: Capability) -> str | None:
    """Return advice on compilers' errors that are caused by an architecture without a suffix.

    virtual: the architecture of the image that the GPU loads.
    """
    number = "{}{}".format(*capability)
    if virtual.endswith("a") or not _LACKS.search(errors):
        return None
    lacks = virtual.replace("compute_", "sm_")
    own = f'extra_cuda_cflags=["-gencode=arch=compute_{number}a,code=sm_{number}a"]'
    return f"{lacks} lacks it and sm_{number}a has it: {own}"
