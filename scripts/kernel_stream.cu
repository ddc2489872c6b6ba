// How fast can cold memory be read at all, and by which pattern? Plain reads of as many bytes as
// each contest shape moves, timed by an event pair a call on a cold L2 cache.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o kernel_stream kernel_stream.cu
//   ./kernel_stream [calls]
//
// "dirty" times follow a 256 MiB memset, whose lines the timed reads force back to memory; before
// "clean" ones another 256 MiB are read as well.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t error = (call);                                                   \
        if (error != cudaSuccess) {                                                   \
            std::printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

enum Hint { plain, no_allocate, evict_first, prefetch_256 };

__device__ uint64_t evict_first_policy() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#define LOAD(opcode, extra, ...)                                                  \
    asm volatile(opcode ".v4.u32 {%0, %1, %2, %3}, [%4]" extra ";"                \
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)                     \
                 : "l"(from) __VA_OPT__(, ) __VA_ARGS__)

template <Hint hint>
__device__ uint4 load(const uint4* from, uint64_t policy) {
    uint4 v;
    if (hint == plain) LOAD("ld.global.nc", "");
    if (hint == no_allocate) LOAD("ld.global.nc.L1::no_allocate", "");
    if (hint == evict_first) LOAD("ld.global.nc.L2::cache_hint", ", %5", "l"(policy));
    if (hint == prefetch_256) LOAD("ld.global.nc.L1::no_allocate.L2::256B", "");
    return v;
}

__device__ void use(uint4 v, uint32_t* sink) {
    if ((v.x ^ v.y ^ v.z ^ v.w) == 0x12345679) *sink = 1;
}

__global__ void empty_kernel() {}

// A CTA reads one contiguous stretch, every thread `count` times 16 bytes, and ends.
template <int count, Hint hint>
__global__ void once(const uint4* from, long n, uint32_t* sink) {
    uint64_t policy = hint == evict_first ? evict_first_policy() : 0;
    long first = (long)blockIdx.x * blockDim.x * count + threadIdx.x;
    uint4 v[count];
#pragma unroll
    for (int i = 0; i < count; i++) {
        long at = first + (long)i * blockDim.x;
        v[i] = at < n ? load<hint>(from + at, policy) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < count; i++) use(v[i], sink);
}

// CTAs stay and walk through memory with `count` loads a thread in flight: side by side through
// all of it, or each through a region of its own.
template <int count, bool own_region>
__global__ void persistent(const uint4* from, long n, uint32_t* sink) {
    long first = own_region ? n * blockIdx.x / gridDim.x : (long)blockIdx.x * blockDim.x;
    long end = own_region ? n * (blockIdx.x + 1) / gridDim.x : n;
    long stride = own_region ? blockDim.x : (long)gridDim.x * blockDim.x;
    uint4 v[count] = {};
#pragma unroll
    for (int i = 0; i < count; i++) {
        long at = first + threadIdx.x + i * stride;
        if (at < end) v[i] = load<no_allocate>(from + at, 0);
    }
    for (long base = first + threadIdx.x; base < end; base += count * stride) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            use(v[i], sink);
            long at = base + (count + i) * stride;
            if (at < end) v[i] = load<no_allocate>(from + at, 0);
        }
    }
}

__device__ uint32_t shared_address(const void* pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// One thread a CTA keeps `stages` bulk copies of `chunk` bytes into shared memory in flight.
template <bool own_region, bool first>
__global__ void bulk(const char* from, long bytes, int chunk, int stages, uint32_t* sink) {
    extern __shared__ __align__(128) char shared[];
    if (threadIdx.x) return;
    uint64_t* barriers = (uint64_t*)shared;
    char* ring = shared + 128;
    uint64_t policy = evict_first_policy();
    long units = bytes / 2048;
    long begin = own_region ? units * blockIdx.x / gridDim.x * 2048 : (long)blockIdx.x * chunk;
    long end = own_region ? units * (blockIdx.x + 1) / gridDim.x * 2048 : bytes;
    long stride = own_region ? chunk : (long)gridDim.x * chunk;
    for (int s = 0; s < stages; s++)
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barriers + s)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    auto issue = [&](int s, long at) {
        uint32_t size = (uint32_t)min((long)chunk, end - at);
        uint32_t barrier = shared_address(barriers + s);
        uint32_t to = shared_address(ring + (long)s * chunk);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                     "r"(size)
                     : "memory");
        if (first)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                "l"(from + at), "r"(size), "r"(barrier), "l"(policy)
                : "memory");
        else
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                " [%0], [%1], %2, [%3];" ::"r"(to),
                "l"(from + at), "r"(size), "r"(barrier)
                : "memory");
    };
    long ahead = begin;
    for (int s = 0; s < stages && ahead < end; s++, ahead += stride) issue(s, ahead);
    int s = 0;
    uint32_t phase = 0;
    for (long at = begin; at < end; at += stride) {
        asm volatile(
            "{\n.reg .pred done;\nagain:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
                shared_address(barriers + s)),
            "r"(phase)
            : "memory");
        if (ahead < end) {
            issue(s, ahead);
            ahead += stride;
        }
        if (++s == stages) {
            s = 0;
            phase ^= 1;
        }
    }
    if (*(volatile uint32_t*)ring == 0x12345679) *sink = 1;
}

__global__ void read_all(const uint4* from, long n, uint32_t* sink) {
    long stride = (long)gridDim.x * blockDim.x;
    for (long at = (long)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += stride)
        use(from[at], sink);
}

using Launch = std::function<void(const char*, long, uint32_t*)>;
struct Variant {
    std::string name;
    Launch launch;
    float median_us[2][3];  // [dirty, clean][shape]
};

template <int count, Hint hint>
Variant once_variant(const char* hint_name, int threads) {
    char name[96];
    std::snprintf(name, sizeof name, "once, %d x 16 B a thread, %d threads, %s", count, threads,
                  hint_name);
    return {name, [=](const char* from, long bytes, uint32_t* sink) {
                long n = bytes / 16, cta = (long)count * threads;
                once<count, hint><<<(n + cta - 1) / cta, threads>>>((const uint4*)from, n, sink);
            }};
}

template <int count, bool own_region>
Variant persistent_variant(int ctas, int threads) {
    char name[96];
    std::snprintf(name, sizeof name, "persistent, %d in flight, %d CTAs of %d, %s", count, ctas,
                  threads, own_region ? "own region" : "side by side");
    return {name, [=](const char* from, long bytes, uint32_t* sink) {
                persistent<count, own_region>
                    <<<ctas, threads>>>((const uint4*)from, bytes / 16, sink);
            }};
}

template <bool own_region, bool first>
Variant bulk_variant(int chunk, int stages) {
    int shared = 128 + chunk * stages;
    CHECK(cudaFuncSetAttribute(bulk<own_region, first>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               227 * 1024));
    char name[96];
    std::snprintf(name, sizeof name, "bulk copies, %d of %d KiB in flight, %s%s", stages,
                  chunk / 1024, own_region ? "own region" : "side by side",
                  first ? ", evict_first" : "");
    return {name, [=](const char* from, long bytes, uint32_t* sink) {
                bulk<own_region, first><<<132, 32, shared>>>(from, bytes, chunk, stages, sink);
            }};
}

int main(int argc, char** argv) {
    int calls = argc > 1 ? std::atoi(argv[1]) : 40;
    const size_t buffer_bytes = (size_t)2 << 30, flush_bytes = (size_t)256 << 20;
    const long sizes[3] = {66060288, 132120576, 33030144};
    char *buffer, *written, *read;
    uint32_t* sink;
    CHECK(cudaMalloc(&buffer, buffer_bytes));
    CHECK(cudaMalloc(&written, flush_bytes));
    CHECK(cudaMalloc(&read, flush_bytes));
    CHECK(cudaMalloc(&sink, 4));
    CHECK(cudaMemset(buffer, 0x5a, buffer_bytes));
    CHECK(cudaMemset(read, 0x5a, flush_bytes));

    std::vector<Variant> variants = {
        {"empty kernel", [](const char*, long, uint32_t*) { empty_kernel<<<1, 32>>>(); }},
        {"empty kernel, 4000 CTAs",
         [](const char*, long, uint32_t*) { empty_kernel<<<4000, 256>>>(); }},
        once_variant<1, no_allocate>("no_allocate", 512),
        once_variant<1, no_allocate>("no_allocate", 64),
        once_variant<2, no_allocate>("no_allocate", 512),
        once_variant<4, no_allocate>("no_allocate", 512),
        once_variant<8, no_allocate>("no_allocate", 512),
        once_variant<1, plain>("no hint", 512),
        once_variant<1, evict_first>("L2 evict_first", 512),
        once_variant<1, prefetch_256>("no_allocate, L2::256B", 512),
        persistent_variant<4, false>(132, 1024),
        persistent_variant<4, true>(132, 1024),
        persistent_variant<2, false>(264, 512),
        bulk_variant<false, true>(16384, 4),
        bulk_variant<false, true>(16384, 12),
        bulk_variant<false, false>(16384, 4),
        bulk_variant<true, true>(16384, 12),
        bulk_variant<false, true>(4096, 8),
    };
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    for (int clean = 0; clean < 2; clean++)
        for (int shape = 0; shape < 3; shape++) {
            std::vector<std::vector<float>> times(variants.size());
            for (int call = -1; call < calls; call++)
                for (size_t i = 0; i < variants.size(); i++) {
                    CHECK(cudaMemsetAsync(written, call, flush_bytes));
                    if (clean)
                        read_all<<<1056, 512>>>((const uint4*)read, flush_bytes / 16, sink);
                    CHECK(cudaEventRecord(start));
                    variants[i].launch(buffer, sizes[shape], sink);
                    CHECK(cudaEventRecord(end));
                    CHECK(cudaEventSynchronize(end));
                    float ms;
                    CHECK(cudaEventElapsedTime(&ms, start, end));
                    if (call >= 0) times[i].push_back(ms * 1e3f);
                }
            for (size_t i = 0; i < variants.size(); i++) {
                std::sort(times[i].begin(), times[i].end());
                variants[i].median_us[clean][shape] = times[i][times[i].size() / 2];
            }
        }
    std::printf("%-62s %25s   %25s\n", "median us", "dirty L2: 66, 132, 33 MB", "clean L2");
    for (const Variant& v : variants) {
        std::printf("%-62s", v.name.c_str());
        for (int clean = 0; clean < 2; clean++) {
            for (int shape = 0; shape < 3; shape++) std::printf(" %7.2f", v.median_us[clean][shape]);
            std::printf("    ");
        }
        std::printf("\n");
    }
}
