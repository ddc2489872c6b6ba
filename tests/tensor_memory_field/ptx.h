// What the CUDA C++ kernels of this corpus share: each PTX instruction under its own name.
#pragma once
#include <stdint.h>
#define DEVICE static __device__ __forceinline__

DEVICE uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE uint32_t rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEVICE uint32_t mapa(uint32_t address, uint32_t cta) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(cta));
  return r;
}
DEVICE bool elect() {
  uint32_t yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}

// mbarriers
#define mbarrier_init(bar, count) \
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory")
#define fence_mbarrier_init() \
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define fence_proxy_async() \
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define arrive(bar) \
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory")
#define arrive_remote(bar) \
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory")
#define expect(bar, bytes) \
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory")
#define wait(bar, parity) \
  asm volatile("{ .reg .pred p;\n" \
  "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n" \
  "@!p bra again; }" ::"r"(bar), "r"(parity) : "memory")
#define wait_cluster(bar, parity) \
  asm volatile("{ .reg .pred p;\n" \
  "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n" \
  "@!p bra again; }" ::"r"(bar), "r"(parity) : "memory")

// clusters
#define cluster_arrive() \
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory")
#define cluster_arrive_relaxed() \
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define cluster_wait() \
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory")
#define cluster_sync() do { cluster_arrive(); cluster_wait(); } while (0)
#define load_remote(v, address) \
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory")
#define store_remote(address, v) \
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory")
#define st_async(address, v, bar) \
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address), \
  "f"(v), "r"(bar) : "memory")

// copies
#define bulk_load(to, from, bytes, bar) \
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), \
  "l"(from), "r"(bytes), "r"(bar) : "memory")
#define bulk_load_multicast(to, from, bytes, bar, ctas) \
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster " \
  "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "h"((uint16_t)(ctas)) : "memory")
#define bulk_to_peer(to, from, bytes, bar) \
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), \
  "r"(from), "r"(bytes), "r"(bar) : "memory")
#define tile_load(to, map, x, y, bar) \
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes " \
  "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory")
#define tile_load_multicast(to, map, x, y, bar, ctas) \
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster " \
  "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(bar), "h"((uint16_t)(ctas)) : "memory")

// tensor memory
#define alloc(to, columns) \
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(to)), "r"(columns) \
  : "memory")
#define relinquish() \
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;")
#define dealloc(tmem, columns) \
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns) : "memory")
#define wait_ld() \
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory")
#define wait_st() \
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory")
#define fence_before() \
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory")
#define fence_after() \
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory")
#define commit(bar) \
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory")

#define LD1(shape, v, at) \
  asm volatile("tcgen05.ld.sync.aligned." shape ".b32 {%0}, [%1];" : "=r"((v)[0]) : "r"(at) : "memory")
#define LD2(shape, v, at) \
  asm volatile("tcgen05.ld.sync.aligned." shape ".b32 {%0, %1}, [%2];" : "=r"((v)[0]), "=r"((v)[1]) : "r"(at) : "memory")
#define LD4(shape, v, at) \
  asm volatile("tcgen05.ld.sync.aligned." shape ".b32 {%0, %1, %2, %3}, [%4];" \
               : "=r"((v)[0]), "=r"((v)[1]), "=r"((v)[2]), "=r"((v)[3]) : "r"(at) : "memory")
#define LD8(shape, v, at) \
  asm volatile("tcgen05.ld.sync.aligned." shape ".b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];" \
               : "=r"((v)[0]), "=r"((v)[1]), "=r"((v)[2]), "=r"((v)[3]), \
                 "=r"((v)[4]), "=r"((v)[5]), "=r"((v)[6]), "=r"((v)[7]) : "r"(at) : "memory")
#define ST1(shape, at, v) \
  asm volatile("tcgen05.st.sync.aligned." shape ".b32 [%0], {%1};" ::"r"(at), "r"((v)[0]) : "memory")
#define ST2(shape, at, v) \
  asm volatile("tcgen05.st.sync.aligned." shape ".b32 [%0], {%1, %2};" ::"r"(at), "r"((v)[0]), "r"((v)[1]) : "memory")
#define ST4(shape, at, v) \
  asm volatile("tcgen05.st.sync.aligned." shape ".b32 [%0], {%1, %2, %3, %4};" ::"r"(at), \
               "r"((v)[0]), "r"((v)[1]), "r"((v)[2]), "r"((v)[3]) : "memory")
#define ST8(shape, at, v) \
  asm volatile("tcgen05.st.sync.aligned." shape ".b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(at), \
               "r"((v)[0]), "r"((v)[1]), "r"((v)[2]), "r"((v)[3]), \
               "r"((v)[4]), "r"((v)[5]), "r"((v)[6]), "r"((v)[7]) : "memory")
#define CP(shape, at, desc) \
  asm volatile("tcgen05.cp.cta_group::1." shape " [%0], %1;" ::"r"(at), "l"(desc) : "memory")
#define MMA(kind, d, a, b, idesc, adds) \
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0;\n" \
               "tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, p; }" \
               ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"((uint32_t)(adds)) : "memory")
#define MMA_TS(kind, d, a, b, idesc, adds) \
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0;\n" \
               "tcgen05.mma.cta_group::1.kind::" kind " [%0], [%1], %2, %3, p; }" \
               ::"r"(d), "r"(a), "l"(b), "r"(idesc), "r"((uint32_t)(adds)) : "memory")
#define MMA_SCALED(kind, d, a, b, idesc, sfa, sfb, adds) \
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %6, 0;\n" \
               "tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, [%4], [%5], p; }" \
               ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(sfa), "r"(sfb), "r"((uint32_t)(adds)) : "memory")

// A matrix in shared memory: offsets in bytes; swizzle 0 none, 2 of 128, 4 of 64, 6 of 32 bytes.
DEVICE uint64_t matrix(uint32_t address, uint32_t leading, uint32_t stride, uint32_t swizzle) {
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
         1ull << 46 | (uint64_t)swizzle << 61;
}
