# expect: pass may=unset_register
"""One thread a row; both scales of a block travel in one word whose other half nobody sets.

mov packs two half registers, one of them unset; prmt takes the bytes that are set.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Uint8
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_ptr
from cutlass.cutlass_dsl import T, dsl_user_op

# $1 and $2: one E4M3 each. The selector takes bytes 0 and 1 of the word, and bytes of zero.
SCALE_PRODUCT = """{
.reg .b16 pair, unset, shifted, low, high;
.reg .b32 word, both;
.reg .f32 f, g;
shl.b16 shifted, $2, 8;
or.b16 pair, $1, shifted;
mov.b32 word, {pair, unset};
prmt.b32 word, word, 0, 0x5410;
cvt.u16.u32 pair, word;
cvt.rn.f16x2.e4m3x2 both, pair;
mov.b32 {low, high}, both;
cvt.f32.f16 f, low;
cvt.f32.f16 g, high;
mul.rn.f32 $0, f, g;
}"""


@dsl_user_op
def scale_product(x: Uint8, y: Uint8, *, loc=None, ip=None) -> Float32:
    halves = [cutlass.Uint16(v).ir_value(loc=loc, ip=ip) for v in (x, y)]
    return Float32(
        llvm.inline_asm(T.f32(), halves, SCALE_PRODUCT, "=f,h,h", asm_dialect=0, loc=loc, ip=ip)
    )


class Gemv:
    def __init__(self, threads: int = 128):
        self.threads = threads

    @cute.jit
    def __call__(self, a, b, sfa, sfb, c, m: Int32, k: Int32, l: Int32):
        k = cute.assume(k, divby=64)

        def k_major(pointer, rows, columns):
            shape = (columns, rows, l)
            stride = (1, columns, cute.assume(rows * columns, divby=4))
            return cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))

        mA, mB = k_major(a, m, k), k_major(b, 128, k)
        mSFA, mSFB = k_major(sfa, m, k // 16), k_major(sfb, 128, k // 16)
        mC = cute.make_tensor(c, cute.make_layout((m, l)))
        self.kernel(mA, mB, mSFA, mSFB, mC).launch(
            grid=[m // self.threads, l, 1], block=[self.threads, 1, 1]
        )

    @cute.kernel
    def kernel(self, mA: cute.Tensor, mB: cute.Tensor, mSFA: cute.Tensor, mSFB: cute.Tensor, mC):
        thread, _, _ = cute.arch.thread_idx()
        block, batch, _ = cute.arch.block_idx()
        row = block * self.threads + thread
        total = Float32(0.0)
        for j in range(mSFA.shape[0]):
            a = cute.local_tile(mA[None, row, batch], (16,), (j,)).load().to(Float32)
            b = cute.local_tile(mB[None, 0, batch], (16,), (j,)).load().to(Float32)
            dot = (a * b).reduce(cute.ReductionOp.ADD, 0.0, 0)
            total += dot * scale_product(mSFA[j, row, batch], mSFB[j, 0, batch])
        mC[row, batch] = total.to(cutlass.Float16)


gemv = Gemv()
cache = {}


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    size = (a.shape[0], a.shape[1] * 2, a.shape[2])

    def ptr(dtype, tensor):
        return make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)

    args = [ptr(cutlass.Float4E2M1FN, a), ptr(cutlass.Float4E2M1FN, b)]
    args += [ptr(Uint8, sfa), ptr(Uint8, sfb), ptr(cutlass.Float16, c)]
    if not cache:
        cache["gemv"] = cute.compile(gemv, *args, *size)
    cache["gemv"](*args, *size)
    return c
