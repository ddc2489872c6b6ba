#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Blackwell's tensor cores: TMA brings tiles to shared memory, tcgen05.mma multiplies them.

Idea: the blueprint that nobody built. One thread asks the copy engine for tiles of 256 elements of
128 rows of a and 8 rows of b, and for their scales, four stages ahead. One thread copies scales to
tensor memory (tcgen05.cp) and issues a tcgen05.mma for every 64 elements; while the tensor core
works with one set of scales, the next goes to the other half of their columns. At the end every
thread reads one sum. Two warps look for negative scales, whose sign the hardware ignores: that of
sfb goes to b's elements, and negative ones of sfa stand in a tensor of their own, with which a
second product is subtracted.
Buys: no thread decodes anything, so that hardly an instruction is left. Published for the like in
CuTe DSL: 21.78 us, where plain loads took 21.6: what is saved was not what the time went to.
Costs: the smallest product has N = 8. Seven of eight columns are thrown away here: they multiply
a with rows 1 to 7 of b, which are padding. Vectors of other batches cannot take their place, as the
blueprint has it, because each batch has an a of its own. And M is 128: 7168 rows are 56 CTAs, where
there are 148 multiprocessors. The blueprint errs elsewhere, too: one scale for 16 elements means
scale_vec::4X (.block16), not 2X, and 32x128b.warpx4 copies them, since each warp's lanes want a
copy of their own.
"""

from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

cpp_source = """
void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);
"""

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>
#include <cuda.h>
#include <cuda_fp16.h>

constexpr uint32_t rows = 128, columns = 8;     // M and N of a product
constexpr uint32_t tile_bytes = 128;            // of a row in a stage: 256 elements
constexpr uint32_t step_bytes = 32;             // of a row in a product: 64 elements
constexpr uint32_t steps = tile_bytes / step_bytes;
constexpr uint32_t scale_bytes = 512;           // the scales of 128 rows in a product
constexpr uint32_t stages = 4;
constexpr uint32_t a_bytes = rows * tile_bytes, b_bytes = columns * tile_bytes;
constexpr uint32_t scales_bytes = steps * scale_bytes;
constexpr uint32_t stage_bytes = a_bytes + b_bytes + 3 * scales_bytes;  // sfa, sfb, -sfa
constexpr uint32_t shared_bytes = stages * stage_bytes + 1024;

// Columns of tensor memory: the sums, then two sets of scales: sfa, sfb and -sfa of each step.
constexpr uint32_t scale_column = 32, scale_columns = 4, step_columns = 3 * scale_columns;
constexpr uint32_t all_columns = 128;

// E2M1 times E2M1, scales UE4M3, K-major; a second one negates b.
constexpr uint32_t adds = 1 << 7 | 1 << 10 | columns / 8 << 17 | rows / 128 << 27;
constexpr uint32_t subtracts = adds | 1 << 14;
constexpr uint32_t signs = 0x80808080;

__device__ void init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "WAITING: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra WAITING;\n}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ void load_tile(uint32_t target, const CUtensorMap* map, int byte, int row, int batch,
                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];"
        ::"r"(target), "l"(map), "r"(byte), "r"(row), "r"(batch), "r"(barrier) : "memory");
}

__device__ void load_bytes(uint32_t target, const uint8_t* source, uint32_t bytes,
                           uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(target), "l"(source), "r"(bytes), "r"(barrier) : "memory");
}

// 8 rows of 128 bytes stand together, swizzled; the next 8 follow.
__device__ uint64_t swizzled(uint32_t address) {
    return address >> 4 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 46 | uint64_t(2) << 61;
}

// 8 rows of 16 bytes stand together.
__device__ uint64_t plain(uint32_t address) {
    return address >> 4 | uint64_t(128 >> 4) << 32 | uint64_t(1) << 46;
}

__device__ void copy_scales(uint32_t column, uint32_t address) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
                 ::"r"(column), "l"(plain(address)) : "memory");
}

__device__ void multiply(uint32_t sums, uint32_t a, uint32_t b, uint32_t instruction, uint32_t sfa,
                         uint32_t sfb, uint32_t has_sums) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 "
        "[%0], %1, %2, %3, [%4], [%5], p;\n}"
        ::"r"(sums), "l"(swizzled(a)), "l"(swizzled(b)), "r"(instruction), "r"(sfa), "r"(sfb),
          "r"(has_sums) : "memory");
}

// Arrives once all that this thread has issued is complete.
__device__ void commit(uint32_t barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                 ::"r"(barrier) : "memory");
}

// Negative ones of four scales become zeros, or all others do and their signs are dropped.
__device__ uint32_t positive(uint32_t scales) { return scales & ~((scales & signs) / 128 * 255); }
__device__ uint32_t negative(uint32_t scales) {
    return scales & ((scales & signs) / 128 * 127);
}

// Thread `t` of 64 splits sfa, and gives the signs of sfb to row 0 of b. Whether there were any.
__device__ bool split_signs(uint8_t* stage, uint32_t bytes, int t) {
    uint4* sfa = reinterpret_cast<uint4*>(stage + a_bytes + b_bytes);
    const uint8_t* sfb = stage + a_bytes + b_bytes + scales_bytes;
    uint32_t found = 0;
    for (uint32_t i = t; i < bytes / 16; i += 64) {
        const uint4 x = sfa[i];
        found |= (x.x | x.y | x.z | x.w) & signs;
        sfa[i] = {positive(x.x), positive(x.y), positive(x.z), positive(x.w)};
        sfa[i + 2 * scales_bytes / 16] = {negative(x.x), negative(x.y), negative(x.z),
                                          negative(x.w)};
    }
    // Row 0 is not swizzled. A block of 16 elements is 8 bytes, and has every fourth byte's scale.
    uint64_t* b = reinterpret_cast<uint64_t*>(stage + a_bytes);
    if (t < 4 * bytes / scale_bytes && sfb[t / 4 * scale_bytes + t % 4] & 128)
        b[t] ^= 0x8888888888888888;
    return found;
}

__global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
           const uint8_t* sfa, const uint8_t* sfb, __half* c, int m, int k) {
    extern __shared__ uint8_t unaligned[];
    __shared__ alignas(8) uint64_t barriers[3 * stages + 1];
    __shared__ bool has_negative[stages][2];
    __shared__ uint32_t slot;
    const uint32_t shared = (uint32_t(__cvta_generic_to_shared(unaligned)) + 1023) & ~1023;
    const uint32_t full = __cvta_generic_to_shared(barriers), split = full + 8 * stages;
    const uint32_t empty = split + 8 * stages, done = empty + 8 * stages;
    const int row = blockIdx.x * rows, batch = blockIdx.y, products = k / 64;
    const int tiles = (products + steps - 1) / steps, warp = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < stages; ++stage) {
            init(full + 8 * stage, 1);
            init(split + 8 * stage, 64);
            init(empty + 8 * stage, 1);
        }
        init(done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == 1) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
                     ::"r"(uint32_t(__cvta_generic_to_shared(&slot))), "n"(all_columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t sums = slot;

    if (threadIdx.x == 0) {
        sfa += (size_t(batch) * gridDim.x + blockIdx.x) * products * scale_bytes;
        sfb += size_t(batch) * products * scale_bytes;
        for (int tile = 0; tile < tiles; ++tile) {
            const uint32_t stage = tile % stages, filled = full + 8 * stage;
            const uint32_t at = shared + stage * stage_bytes, scales = at + a_bytes + b_bytes;
            const uint32_t bytes = min(steps, products - tile * steps) * scale_bytes;
            if (tile >= stages) wait(empty + 8 * stage, (tile / stages - 1) % 2);
            expect(filled, a_bytes + b_bytes + 2 * bytes);
            load_tile(at, &a, tile * tile_bytes, row, batch, filled);
            load_tile(at + a_bytes, &b, tile * tile_bytes, 0, batch, filled);
            load_bytes(scales, sfa + tile * steps * scale_bytes, bytes, filled);
            load_bytes(scales + scales_bytes, sfb + tile * steps * scale_bytes, bytes, filled);
        }
    } else if (threadIdx.x == 32) {
        for (int tile = 0; tile < tiles; ++tile) {
            const uint32_t stage = tile % stages;
            const uint32_t at = shared + stage * stage_bytes, scales = at + a_bytes + b_bytes;
            const uint32_t set = sums + scale_column + tile % 2 * steps * step_columns;
            const uint32_t count = min(steps, products - tile * steps);
            wait(split + 8 * stage, tile / stages % 2);
            const bool signed_scales = has_negative[stage][0] || has_negative[stage][1];
            const int kinds = signed_scales ? 3 : 2;
            for (uint32_t step = 0; step < count; ++step)
                for (int kind = 0; kind < kinds; ++kind)
                    copy_scales(set + step * step_columns + kind * scale_columns,
                                scales + kind * scales_bytes + step * scale_bytes);
            for (uint32_t step = 0; step < count; ++step) {
                const uint32_t sfa = set + step * step_columns, sfb = sfa + scale_columns;
                const uint32_t x = at + step * step_bytes, y = x + a_bytes;
                multiply(sums, x, y, adds, sfa, sfb, tile + step);
                if (signed_scales) multiply(sums, x, y, subtracts, sfb + scale_columns, sfb, 1);
            }
            commit(empty + 8 * stage);
        }
        commit(done);
    } else if (warp >= 2) {
        for (int tile = 0; tile < tiles; ++tile) {
            const uint32_t stage = tile % stages;
            wait(full + 8 * stage, tile / stages % 2);
            uint8_t* at = unaligned + (shared - uint32_t(__cvta_generic_to_shared(unaligned)));
            const bool found = split_signs(at + stage * stage_bytes,
                                           min(steps, products - tile * steps) * scale_bytes,
                                           threadIdx.x - 64);
            const bool any = __any_sync(0xffffffff, found);
            if (threadIdx.x % 32 == 0) has_negative[stage][warp - 2] = any;
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            arrive(split + 8 * stage);
        }
    }
    __syncwarp();

    wait(done, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    float sum;  // of this thread's row with b's first
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];\n"
                 "tcgen05.wait::ld.sync.aligned;"
                 : "=f"(sum) : "r"(sums + (warp << 21)) : "memory");
    c[size_t(batch) * m + row + threadIdx.x] = __float2half(sum);

    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 1) {
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"
                     ::"r"(sums), "n"(all_columns));
    }
}

// Tiles of so many rows and 128 bytes of a tensor [batches, rows, bytes], swizzled.
CUtensorMap tensor_map(const torch::Tensor& tensor, uint32_t tile_rows) {
    static const auto encode = [] {
        void* entry = nullptr;
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &found);
        TORCH_CHECK(entry, "the driver has no cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    }();
    const cuuint64_t m = tensor.size(0), bytes = tensor.size(1), l = tensor.size(2);
    const cuuint64_t extents[] = {bytes, m, l}, strides[] = {bytes, m * bytes};
    const cuuint32_t box[] = {tile_bytes, tile_rows, 1}, every[] = {1, 1, 1};
    CUtensorMap map;
    const CUresult status = encode(
        &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, tensor.data_ptr(), extents, strides, box, every,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled: ", int(status));
    return map;
}

void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c) {
    const int m = a.size(0), k = 2 * a.size(1), l = a.size(2);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    kernel<<<dim3(m / rows, l), 128, shared_bytes, at::cuda::getCurrentCUDAStream()>>>(
        tensor_map(a, rows), tensor_map(b, columns), static_cast<const uint8_t*>(sfa.data_ptr()),
        static_cast<const uint8_t*>(sfb.data_ptr()), static_cast<__half*>(c.data_ptr()), m, k);
}
"""

module = load_inline(
    name="nvfp4_gemv_tcgen05",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data: input_t) -> output_t:
    a, b, _, _, sfa, sfb, c = data
    module.gemv(a, b, sfa, sfb, c)
    return c
