// Kernels of clusters, right ones and wrong ones. Each takes (const int* in, int* out), 64 threads a
// block and eight blocks in clusters of four, unless `launch` says otherwise.
//
// What stands in front of a kernel says what it is: `right: FORMULA` with the value of out[block, t],
// or `wrong: CODE`, where any one of several codes is a right answer. A message must point at one of
// the lines that end in `<- CODE` or `<- KERNEL`, if the kernel or the template that it calls has
// some. `kFault` says which mistake a template has.

#include <cooperative_groups.h>

#include <cstdint>

namespace cg = cooperative_groups;

constexpr int kThreads = 64;

__device__ uint32_t address(const void* p) { return __cvta_generic_to_shared(p); }

__device__ uint32_t there(const void* p, unsigned rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address(p)), "r"(rank));
  return mapped;
}

__device__ void init(uint64_t* barrier, int count) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
}

__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ void arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

__device__ void wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{ .reg .pred p;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again; }" ::"r"(address(barrier)),
      "r"(parity)
      : "memory");
}

__device__ void multicast(void* to, const void* from, int bytes, uint64_t* barrier, int mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(address(to)),
      "l"(from), "r"(bytes), "r"(address(barrier)), "h"((uint16_t)mask)
      : "memory");
}

__device__ void to_peer(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "r"(address(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ void store_async(uint32_t to, int value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(value), "r"(barrier)
      : "memory");
}

__device__ int own(const int* in) { return in[blockIdx.x * kThreads + threadIdx.x]; }
__device__ void put(int* out, int value) { out[blockIdx.x * kThreads + threadIdx.x] = value; }

// --- distributed shared memory -------------------------------------------------------------

enum Fault { kNone, kFirst, kSecond, kThird };

template <Fault kFault>
__device__ void sum_of_the_cluster(const int* in, int* out) {
  __shared__ int mine[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = own(in);
  if (kFault == kFirst) __syncthreads();
  else cluster.sync();
  int sum = 0;
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) {
    sum += cluster.map_shared_rank(mine, rank)[threadIdx.x];  // <- shared_race exited_peer
  }
  put(out, sum);
  if (kFault != kSecond) cluster.sync();
}

template <bool kWaits>
__device__ void pushed_to_the_block_before(const int* in, int* out) {
  __shared__ int mine[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const unsigned before = (cluster.block_rank() + 3) % 4;
  cluster.map_shared_rank(mine, before)[threadIdx.x] = own(in);  // <- exited_peer
  if (kWaits) cluster.sync();
  put(out, kWaits ? mine[threadIdx.x] : 7);
}

template <bool kClearsFirst>
__device__ void atomics_at_rank_zero(const int* in, int* out) {
  __shared__ int sum;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) sum = 0;
  if (kClearsFirst) cluster.sync();
  else __syncthreads();
  if (kClearsFirst || cluster.block_rank() > 0) {
    atomicAdd(cluster.map_shared_rank(&sum, 0), own(in));  // <- shared_race
  }
  cluster.sync();
  put(out, *cluster.map_shared_rank(&sum, 0));
  cluster.sync();
}

template <int kBuffers>
__device__ void swapped_in_pairs(const int* in, int* out) {
  __shared__ int buffer[kBuffers][kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  int value = own(in);
  cluster.sync();
  for (int step = 0; step < 3; ++step) {
    int* mine = buffer[step % kBuffers];
    cluster.map_shared_rank(mine, cluster.block_rank() ^ 1)[threadIdx.x] = value;
    cluster.sync();
    value = mine[threadIdx.x];
  }
  put(out, value);
}

// --- mbarriers of other blocks --------------------------------------------------------------

template <Fault kFault>
__device__ void arrivals_at_both_neighbours(const int* in, int* out) {
  __shared__ int left[kThreads], right[kThreads];
  __shared__ uint64_t full;
  cg::cluster_group cluster = cg::this_cluster();
  init(&full, 2 * kThreads);
  left[threadIdx.x] = -1;
  if (kFault == kSecond) __syncthreads();
  else cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % 4, before = (cluster.block_rank() + 3) % 4;
  const unsigned rank = kFault == kThird ? cluster.block_rank() : next;
  if (kFault != kSecond) cluster.map_shared_rank(left, next)[threadIdx.x] = own(in);
  if (kFault != kSecond) cluster.map_shared_rank(right, before)[threadIdx.x] = own(in);
  if (kFault == kFirst) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
        there(&full, next)));
  } else {
    arrive_at(there(&full, rank));
  }
  if (kFault != kThird) arrive_at(there(&full, before));
  wait(&full, 0);
  put(out, left[threadIdx.x] + right[threadIdx.x]);  // <- relaxed_arrivals
  if (kFault != kNone) cluster.sync();
}

// --- asynchronous stores and copies -----------------------------------------------------------

template <Fault kFault>
__device__ void stores_that_count_themselves(const int* in, int* out) {
  __shared__ int tile[kThreads];
  __shared__ uint64_t full;
  cg::cluster_group cluster = cg::this_cluster();
  init(&full, 1);
  if (threadIdx.x == 0) expect(&full, sizeof(tile));
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % 4;
  if (kFault != kFirst || threadIdx.x < 60) {
    store_async(there(tile + threadIdx.x, next), own(in), there(&full, next));
  }
  if (kFault == kSecond) cluster.sync();
  else wait(&full, 0);
  put(out, tile[threadIdx.x]);  // <- shared_race
  if (kFault == kSecond) wait(&full, 0);
}

template <int kMask>
__device__ void one_block_loads_for_all(const int* in, int* out) {
  __shared__ alignas(128) int tile[kThreads];
  __shared__ uint64_t full;
  cg::cluster_group cluster = cg::this_cluster();
  init(&full, 1);
  if (threadIdx.x == 0) expect(&full, sizeof(tile));
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    multicast(tile, in + blockIdx.x * kThreads, sizeof(tile), &full, kMask);
  }
  wait(&full, 0);
  put(out, tile[threadIdx.x]);
}

// Each block loads a quarter of each tile and sends it to all; a block gives its tile back to all.
template <bool kGivesBack>
__device__ void quarters(const int* in, int* out) {
  __shared__ alignas(128) int tile[kThreads];
  __shared__ uint64_t full, empty;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  init(&full, 1);
  init(&empty, 4 * kThreads);
  cluster.sync();
  int sum = 0;
  for (int step = 0; step < 3; ++step) {
    if (threadIdx.x == 0) {
      if (kGivesBack && step > 0) wait(&empty, (step - 1) % 2);
      expect(&full, sizeof(tile));
      const int* from = in + (step * kThreads + rank * kThreads / 4);
      multicast(tile + rank * kThreads / 4, from, sizeof(tile) / 4, &full, 0xf);
    }
    wait(&full, step % 2);
    sum += tile[kThreads - 1 - threadIdx.x];
    if (kGivesBack) {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      for (int each = 0; each < 4; ++each) arrive_at(there(&empty, each));
    }
  }
  put(out, sum);
  cluster.sync();
}

template <Fault kFault>
__device__ void a_tile_for_the_next_block(const int* in, int* out) {
  __shared__ alignas(128) int tile[kThreads], got[kThreads];
  __shared__ uint64_t full;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % 4;
  init(&full, 1);
  if (threadIdx.x == 0) expect(&full, sizeof(tile));
  cluster.sync();
  tile[threadIdx.x] = 2 * own(in);
  if (kFault != kFirst) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t barrier = kFault == kSecond ? address(&full) : there(&full, next);
  if (threadIdx.x == 0) to_peer(there(got, next), tile, sizeof(tile), barrier);
  if (kFault == kThird) {
    __syncthreads();
    tile[threadIdx.x] = 0;
  }
  wait(&full, 0);
  put(out, got[threadIdx.x] + (kFault == kThird ? tile[threadIdx.x] : 0));
  cluster.sync();
}

extern "C" {

// right: data[...].sum(axis=0)[t]
__global__ void sum(const int* in, int* out) { sum_of_the_cluster<kNone>(in, out); }
// wrong: shared_race unwritten_shared
__global__ void sum_without_the_first_barrier(const int* in, int* out) { sum_of_the_cluster<kFirst>(in, out); }
// wrong: exited_peer
__global__ void sum_without_the_last_barrier(const int* in, int* out) { sum_of_the_cluster<kSecond>(in, out); }
// right: data[next][t]
__global__ void pushed(const int* in, int* out) { pushed_to_the_block_before<true>(in, out); }
// wrong: exited_peer
__global__ void pushed_and_not_waited_for(const int* in, int* out) { pushed_to_the_block_before<false>(in, out); }
// right: data[...].sum()
__global__ void atomics(const int* in, int* out) { atomics_at_rank_zero<true>(in, out); }
// wrong: shared_race unwritten_shared
__global__ void atomics_before_the_sum_is_cleared(const int* in, int* out) { atomics_at_rank_zero<false>(in, out); }
// right: data[2 * (block // 2) + (block + 1) % 2][t]
// launch: cluster=2
__global__ void swapped_step_by_step(const int* in, int* out) { swapped_in_pairs<2>(in, out); }
// wrong: shared_race
// launch: cluster=2
__global__ void swapped_by_one_buffer(const int* in, int* out) { swapped_in_pairs<1>(in, out); }
// right: data[next][t] + data[before][t]
__global__ void arrivals(const int* in, int* out) { arrivals_at_both_neighbours<kNone>(in, out); }
// wrong: shared_race
__global__ void relaxed_arrivals(const int* in, int* out) { arrivals_at_both_neighbours<kFirst>(in, out); }
// wrong: barrier_misuse shared_race
__global__ void arrivals_before_the_barrier_is_there(const int* in, int* out) { arrivals_at_both_neighbours<kSecond>(in, out); }
// wrong: deadlock
__global__ void arrivals_at_the_own_barrier(const int* in, int* out) { arrivals_at_both_neighbours<kThird>(in, out); }
// right: data[before][t]
__global__ void stores(const int* in, int* out) { stores_that_count_themselves<kNone>(in, out); }
// wrong: deadlock
__global__ void stores_that_bring_too_little(const int* in, int* out) { stores_that_count_themselves<kFirst>(in, out); }
// wrong: shared_race unwritten_shared
__global__ void stores_not_waited_for(const int* in, int* out) { stores_that_count_themselves<kSecond>(in, out); }
// right: data[4 * (block // 4)][t]
__global__ void loads_for_all(const int* in, int* out) { one_block_loads_for_all<0xf>(in, out); }
// wrong: out_of_bounds
__global__ void a_mask_for_eight(const int* in, int* out) { one_block_loads_for_all<0xff>(in, out); }
// wrong: deadlock
__global__ void a_mask_that_forgets_one(const int* in, int* out) { one_block_loads_for_all<0x7>(in, out); }
// right: data[:3].sum(axis=0)[63 - t]
__global__ void quarters_for_all(const int* in, int* out) { quarters<true>(in, out); }
// wrong: shared_race barrier_misuse
__global__ void quarters_over_those_that_others_read(const int* in, int* out) { quarters<false>(in, out); }
// right: data[before][t] * 2
__global__ void a_tile(const int* in, int* out) { a_tile_for_the_next_block<kNone>(in, out); }
// wrong: proxy_fence
__global__ void a_tile_without_a_proxy_fence(const int* in, int* out) { a_tile_for_the_next_block<kFirst>(in, out); }
// wrong: barrier_misuse
__global__ void a_tile_that_counts_at_its_sender(const int* in, int* out) { a_tile_for_the_next_block<kSecond>(in, out); }
// wrong: shared_race proxy_fence
__global__ void a_tile_overwritten_on_its_way(const int* in, int* out) { a_tile_for_the_next_block<kThird>(in, out); }

// right: data[next][t] + 1
__global__ void arrives_first_and_waits_later(const int* in, int* out) {
  __shared__ int mine[kThreads], others[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = own(in);
  auto token = cluster.barrier_arrive();
  others[threadIdx.x] = 1;
  cluster.barrier_wait(std::move(token));
  const int next = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % 4)[threadIdx.x];
  token = cluster.barrier_arrive();
  put(out, next + others[threadIdx.x]);
  cluster.barrier_wait(std::move(token));
}

// wrong: shared_race unwritten_shared
__global__ void writes_between_arrival_and_wait(const int* in, int* out) {
  __shared__ int mine[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  auto token = cluster.barrier_arrive();
  mine[threadIdx.x] = own(in);
  cluster.barrier_wait(std::move(token));
  put(out, cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % 4)[threadIdx.x]);  // <- shared_race
  cluster.sync();
}

// right: data[next][t] if t < 32 else 0
__global__ void warps_that_end_early_are_not_waited_for(const int* in, int* out) {
  __shared__ int mine[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = own(in);
  if (threadIdx.x >= 32) {
    put(out, 0);
    return;
  }
  cluster.sync();
  put(out, cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % 4)[threadIdx.x]);
  cluster.sync();
}

// wrong: deadlock
__global__ void one_warp_waits_elsewhere(const int* in, int* out) {
  cg::cluster_group cluster = cg::this_cluster();
  if (cluster.block_rank() == 0 && threadIdx.x >= 32) {
    asm volatile("bar.sync 1, 64;");
  }
  cluster.sync();
  put(out, own(in));
}

// wrong: out_of_bounds
__global__ void a_rank_too_many(const int* in, int* out) {
  __shared__ int mine[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = own(in);
  cluster.sync();
  put(out, cluster.map_shared_rank(mine, cluster.block_rank() + 1)[threadIdx.x]);  // <- out_of_bounds
  cluster.sync();
}

// wrong: out_of_bounds
__global__ void reads_another_block_as_its_own(const int* in, int* out) {
  __shared__ int mine[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = own(in);
  cluster.sync();
  int value;
  const uint32_t next = there(mine + threadIdx.x, (cluster.block_rank() + 1) % 4);
  asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(next));  // <- out_of_bounds
  put(out, value);
  cluster.sync();
}

// wrong: barrier_misuse
__global__ void waits_twice(const int* in, int* out) {
  asm volatile("barrier.cluster.arrive;");
  asm volatile("barrier.cluster.wait;");
  put(out, own(in));
  asm volatile("barrier.cluster.wait;");  // <- barrier_misuse
}

// right: block % 4 + 10 * (block // 4)
__global__ void __cluster_dims__(4, 1, 1) places(const int* in, int* out) {
  cg::cluster_group cluster = cg::this_cluster();
  unsigned id;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(id));
  put(out, cluster.block_rank() + 10 * id);
}

// wrong: exited_peer
__global__ void a_release_that_nobody_waits_for(const int* in, int* out) {
  __shared__ int tile[kThreads];
  __shared__ uint64_t empty;
  cg::cluster_group cluster = cg::this_cluster();
  init(&empty, kThreads);
  cluster.sync();
  tile[threadIdx.x] = own(in);
  __syncthreads();
  put(out, tile[kThreads - 1 - threadIdx.x]);
  arrive_at(there(&empty, (cluster.block_rank() + 1) % 4));
}

}  // extern "C"
