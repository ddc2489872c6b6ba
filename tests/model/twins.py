"""Kernels, each with one that is worse in one way."""

from dataclasses import dataclass

HEADER = ".version 8.6\n.target sm_100a\n.address_size 64\n"

WORDS = 1 << 20
"""Of what kernels read; the addresses of larger grids begin again."""

MASK = (1 << 22) - 1
"""Of the input's addresses."""


def kernel(body: str, directives: str = "", before: str = "") -> str:
    """A module with one kernel `k`: %d0 input, %d1 output, %r0 thread, %r1 CTA, %r2 threads, %r3
    the number of the thread in the grid."""
    return f"""{HEADER}{before}
.visible .entry k(.param .u64 a, .param .u64 c) {directives}
{{
.reg .pred %p<8>; .reg .b32 %r<128>; .reg .b64 %d<64>; .reg .f32 %f<256>;
ld.param.u64 %d0, [a];
ld.param.u64 %d1, [c];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0;
{body}
mul.wide.u32 %d60, %r3, 4;
add.u64 %d61, %d1, %d60;
st.global.u32 [%d61], %r100;
ret;
}}
"""


def loop(times: int | str, body: str) -> str:
    """The body so often; %r99 counts. The compiler leaves it a loop."""
    return f"""
mov.u32 %r99, 0;
AGAIN:
.pragma "nounroll";
{body}
add.u32 %r99, %r99, 1;
setp.lt.u32 %p7, %r99, {times};
@%p7 bra AGAIN;
"""


@dataclass(frozen=True)
class Run:
    """A kernel with its grid and block."""

    text: str
    grid: int
    block: int


def strided(lane_bytes: int) -> str:
    """Four bytes of each thread and turn, so many bytes between neighbours."""
    turn = loop(
        16,
        f"""
        mad.lo.u32 %r10, %r99, {lane_bytes * 256 * 1184 + 32768}, %r9;
        and.b32 %r10, %r10, {MASK};
        cvt.u64.u32 %d2, %r10;
        add.u64 %d3, %d0, %d2;
        ld.global.u32 %r11, [%d3];
        add.u32 %r100, %r100, %r11;
        """,
    )
    return kernel(f"mul.lo.u32 %r9, %r3, {lane_bytes};\nmov.u32 %r100, 0;\n{turn}")


def many_sums(directives: str) -> str:
    """A hundred sums that live through a loop."""
    sums = range(100)
    begin = "\n".join(f"cvt.rn.f32.u32 %f{i}, %r3;" for i in sums)
    turn = "\n".join(f"fma.rn.f32 %f{i}, %f{i}, %f{(i + 1) % 100}, %f{i};" for i in sums)
    end = "\n".join(f"add.f32 %f0, %f0, %f{i};" for i in sums if i)
    return kernel(f"{begin}\n{loop(40, turn)}\n{end}\ncvt.rzi.u32.f32 %r100, %f0;", directives)


def turns(times: int) -> str:
    """Arithmetic alone."""
    return kernel(f"mov.u32 %r100, %r3;\n{loop(times, 'mad.lo.u32 %r100, %r100, %r3, %r99;')}")


def parted(rounds: int) -> str:
    """Arithmetic alone, in so many more rounds than in the lane before."""
    begin = f"and.b32 %r98, %r0, 31; mad.lo.u32 %r98, %r98, {rounds}, 1; mov.u32 %r100, %r3;"
    return kernel(begin + loop("%r98", "mad.lo.u32 %r100, %r100, %r3, %r99;"))


def reads(a_turn: int) -> str:
    """Sixteen loads of a thread, so many of them before the first is used."""
    loads = [f"ld.global.u32 %r{20 + i}, [%d3+{i * 65536}];" for i in range(a_turn)]
    turn = loop(
        16 // a_turn,
        f"""
        mad.lo.u32 %r10, %r99, {a_turn * 65536}, %r9;
        and.b32 %r10, %r10, {(1 << 21) - 1};
        cvt.u64.u32 %d2, %r10;
        add.u64 %d3, %d0, %d2;
        """
        + "\n".join(loads + [f"add.u32 %r100, %r100, %r{20 + i};" for i in range(a_turn)]),
    )
    return kernel(f"mul.lo.u32 %r9, %r3, 4;\nmov.u32 %r100, 0;\n{turn}")


def exchanged(stride_words: int) -> str:
    """Each warp reads a column of shared memory, again and again."""
    turn = loop(
        64, "ld.shared.u32 %r11, [%r10];\nadd.u32 %r100, %r100, %r11;\nst.shared.u32 [%r10], %r100;"
    )
    begin = f"""
        and.b32 %r9, %r0, 31;
        mov.u32 %r8, room;
        mad.lo.u32 %r10, %r9, {4 * stride_words}, %r8;
        mov.u32 %r100, 0;
        st.shared.u32 [%r10], %r0;
        bar.sync 0;
    """
    return kernel(begin + turn, before=".shared .align 16 .b8 room[8448];")


def divided(by: str) -> str:
    """Two ways of a few hundred instructions; `by` sets %r9 to 0 or 1."""
    ways = []
    for way, factor in enumerate((3, 5)):
        chain = "\n".join(f"mad.lo.u32 %r100, %r100, %r3, {factor * i};" for i in range(1, 200))
        ways.append(f"WAY{way}:\n{chain}\nbra MEET;")
    begin = f"{by}\nsetp.eq.u32 %p1, %r9, 0;\nmov.u32 %r100, %r3;\n@%p1 bra WAY1;\n"
    return kernel(begin + "\n".join(ways) + "\nMEET:")


def of_warps(instruction: str) -> str:
    return kernel(f"mov.u32 %r100, %r3;\n{loop(50, 8 * instruction)}")


def shifted(bits: int) -> str:
    """Shifts and logic on numbers of so many bits: two instructions each, if they have 64."""
    steps = (("shl", 13), ("shr", 7), ("shl", 17))
    turn = "\n".join(
        f"{name}.b{bits} %x2, %x1, {by};\nxor.b{bits} %x1, %x1, %x2;" for name, by in steps
    )
    begin = f".reg .b{bits} %x<3>;\ncvt.u{bits}.u32 %x1, %r3;"
    return kernel(f"{begin}\n{loop(500, turn)}\ncvt.u32.u{bits} %r100, %x1;")


def unrolled(rounds: int) -> str:
    """One load and one store, and a loop of arithmetic that the compiler unrolls completely."""
    chain = 8 * "ex2.approx.f32 %f0, %f0;\nadd.f32 %f0, %f0, 0f3F000000;\n"
    turn = loop(rounds, chain).replace('.pragma "nounroll";', "")
    return kernel(f"ld.global.f32 %f0, [%d0];\n{turn}\ncvt.rzi.u32.f32 %r100, %f0;")


TWINS = {
    "uncoalesced": (Run(strided(4), 1184, 256), Run(strided(128), 1184, 256)),
    "spilling": (Run(many_sums(""), 148, 256), Run(many_sums(".maxnreg 40"), 148, 256)),
    "few CTAs": (Run(turns(64), 592, 256), Run(turns(64 * 37), 16, 256)),
    "one load in flight": (Run(reads(8), 148, 64), Run(reads(1), 148, 64)),
    "sums over warps": (
        Run(of_warps("shfl.sync.bfly.b32 %r100, %r100, 1, 31, -1;"), 148, 1024),
        Run(of_warps("redux.sync.add.u32 %r100, %r100, -1;"), 148, 1024),
    ),
    "64 bits": (Run(shifted(32), 1184, 256), Run(shifted(64), 1184, 256)),
    "long loops of lanes": (Run(parted(10), 148, 256), Run(parted(100), 148, 256)),
    "a long chain": (Run(unrolled(5), 148, 256), Run(unrolled(25), 148, 256)),
    "bank conflicts": (Run(exchanged(33), 148, 256), Run(exchanged(32), 148, 256)),
    "divergent": (
        Run(divided("bfe.u32 %r9, %r0, 5, 1;"), 296, 512),
        Run(divided("and.b32 %r9, %r0, 1;"), 296, 512),
    ),
}
"""By what is worse: the good one, the bad one."""
