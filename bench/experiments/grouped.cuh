// Grouped FP8 product of the prefill family (kernels spec §4.6): rows of many experts times each expert's own
// weights, e4m3 wgmma with promotion to f32 every 128 k. Part of experiment X15.
//
// One CTA owns 128 rows x (2 x 128) columns. Two CTAs form a cluster and load what they share once, for both:
// the weights of two row tiles of an expert where experts have many rows, the rows of two column tiles where
// they have few. Warpgroup 0 feeds the ring, 1 and 2 multiply 64 rows each. Everything a row gets depends on
// K only.
#pragma once

#include <cuda.h>

#include "hopper.cuh"

namespace grouped {

constexpr int kTileRows = 128, kBlock = 128, kStages = 4, kThreads = 384, kCluster = 2;
constexpr int kConsumerWarps = 8;
constexpr int kHalfBytes = 64 * kBlock;  // the 64 rows that one CTA of a cluster loads for both

struct alignas(1024) Stage {
  uint8_t a[kTileRows * kBlock];  // 128 rows x 128 k, 128-byte swizzle
  uint8_t b[2][kBlock * kBlock];  // two blocks of 128 weight rows x 128 k
};
struct Shared {
  Stage stage[kStages];
  float a_scales[kStages][kTileRows];
  uint64_t full[kStages], empty[kStages];
};
constexpr uint32_t kStageBytes = sizeof(Stage) + kTileRows * sizeof(float);

// 128 rows of one expert; rows from `valid` on are padding, 0: all of them.
struct Tile {
  int32_t expert, valid;
  int32_t first, count;  // the row tiles of this expert
};

struct Problem {
  const Tile* tiles;  // [*tile_count]
  const int32_t* tile_count;
  int64_t rows;              // of the padded layout: stride of a_scales
  const float* a_scales;     // [K / 128, rows]
  const float* b_scales[2];  // [experts * expert_rows / 128, K / 128]; of the two column blocks
  int32_t expert_rows;       // weight rows of an expert in one map
  int32_t column_step;       // weight rows from one column tile to the next: 128 or 256
  int32_t second_block;      // weight rows from block 0 to block 1 of a tile: 0 (another map) or 128
  int32_t k_blocks, column_tiles;
};

// On the barrier of the CTA of this rank in the cluster.
__device__ inline void barrier_arrive(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline void load_tile(void* to, const CUtensorMap* map, int32_t k, int32_t row,
                                 uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(map), "r"(k), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
__device__ inline void load_tile_for_both(void* to, const CUtensorMap* map, int32_t k, int32_t row,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(k), "r"(row), "r"(shared_address(barrier)), "h"(static_cast<uint16_t>(3))
      : "memory");
}
// d[64 x 128] (+)= a[64 x 32] b[128 x 32]^T; `add` false: d is overwritten.
__device__ inline void multiply(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// Where a cluster is in the ring.
struct Cursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// What a cluster works on: neighbouring clusters take row tiles of the same weights, so that these come from
// L2.
struct Item {
  int32_t tile, column;
};
template <bool kShareWeights>
__device__ inline Item item_at(const Problem& p, int32_t work, int32_t rank) {
  const int32_t rows = kShareWeights ? kCluster : 1,
                columns = kShareWeights ? p.column_tiles : p.column_tiles / kCluster;
  const Tile t = p.tiles[work / columns * rows];
  const int32_t of_expert = work - t.first / rows * columns, count = t.count / rows;
  const int32_t row = of_expert % count, column = of_expert / count;
  if constexpr (kShareWeights) return {t.first + row * kCluster + rank, column};
  return {t.first + row, column * kCluster + rank};
}
__device__ inline int32_t items(const Problem& p) {
  return *p.tile_count * p.column_tiles / kCluster;
}

template <bool kShareWeights>
__device__ inline void feed(const Problem& p, Shared& s, const CUtensorMap* a, const CUtensorMap* b0,
                            const CUtensorMap* b1) {
  const auto rank = static_cast<int32_t>(cluster_rank());
  const int32_t work = items(p), clusters = static_cast<int32_t>(gridDim.x) / kCluster;
  Cursor at;
  for (int32_t w = static_cast<int32_t>(blockIdx.x) / kCluster; w < work; w += clusters) {
    const Item item = item_at<kShareWeights>(p, w, rank);
    const int32_t row = item.tile * kTileRows;
    const int32_t weight_row = p.tiles[item.tile].expert * p.expert_rows + item.column * p.column_step;
    const int32_t second_row = weight_row + p.second_block;
    for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
      Stage& stage = s.stage[at.stage];
      uint64_t* full = &s.full[at.stage];
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      barrier_expect(full, kStageBytes);
      if constexpr (kShareWeights) {
        load_tile(stage.a, a, k * kBlock, row, full);
        load_tile(stage.a + kHalfBytes, a, k * kBlock, row + 64, full);
        load_tile_for_both(stage.b[rank], rank == 0 ? b0 : b1, k * kBlock,
                           rank == 0 ? weight_row : second_row, full);
      } else {
        load_tile_for_both(stage.a + rank * kHalfBytes, a, k * kBlock, row + rank * 64, full);
        load_tile(stage.b[0], b0, k * kBlock, weight_row, full);
        load_tile(stage.b[1], b1, k * kBlock, second_row, full);
      }
      copy_bytes(s.a_scales[at.stage], p.a_scales + k * p.rows + row, kTileRows * 4, full);
    }
  }
}

// epilogue(first row of the tile, valid, column tile, row in tile, acc): acc[half][4 j + {0, 1}] are columns
// 8 j + 2 (lane % 4) + {0, 1} of `row`, [4 j + {2, 3}] the same of row + 8.
template <bool kShareWeights, class Epilogue>
__device__ inline void consume(const Problem& p, Shared& s, int group, const Epilogue& epilogue) {
  const auto rank = static_cast<int32_t>(cluster_rank());
  const int thread = threadIdx.x % 128;
  const int row = group * 64 + thread / 32 * 16 + thread % 32 / 4;
  const int32_t work = items(p), clusters = static_cast<int32_t>(gridDim.x) / kCluster;
  // Each warp for itself, in both CTAs: it has read its scales and its part of the products is done.
  const auto release = [&](int stage) {
    if (thread % 32 < kCluster) barrier_arrive(&s.empty[stage], threadIdx.x % 32);
  };
  Cursor at;
  for (int32_t w = static_cast<int32_t>(blockIdx.x) / kCluster; w < work; w += clusters) {
    const Item item = item_at<kShareWeights>(p, w, rank);
    const Tile t = p.tiles[item.tile];
    if (group * 64 >= t.valid) {
      for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
        barrier_wait(&s.full[at.stage], at.parity);
        release(at.stage);
      }
      continue;
    }
    const int64_t block_row = (int64_t{t.expert} * p.expert_rows + item.column * p.column_step) / kBlock;
    const float* scales[2] = {p.b_scales[0] + block_row * p.k_blocks,
                              p.b_scales[1] + (block_row + p.second_block / kBlock) * p.k_blocks};
    float acc[2][64] = {};
    float ahead[2] = {};  // weight scales of 32 blocks of k, one a lane: a load for each would wait for it
    for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
      if (k % 32 == 0 && k + thread % 32 < p.k_blocks)
        ahead[0] = __ldg(scales[0] + k + thread % 32), ahead[1] = __ldg(scales[1] + k + thread % 32);
      const float scale_b[2] = {__shfl_sync(0xffffffffu, ahead[0], k % 32),
                                __shfl_sync(0xffffffffu, ahead[1], k % 32)};
      const Stage& stage = s.stage[at.stage];
      barrier_wait(&s.full[at.stage], at.parity);
      const float scale_a[2] = {s.a_scales[at.stage][row], s.a_scales[at.stage][row + 8]};
      const uint64_t a = descriptor(stage.a + group * kHalfBytes);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t b = descriptor(stage.b[half]);
        float part[64];
        settle(part);
        products_begin();
#pragma unroll
        for (int step = 0; step < kBlock / 32; ++step) multiply(part, a + 2 * step, b + 2 * step, step > 0);
        products_commit();
        products_wait<0>();
        settle(part);
        if (half == 1) release(at.stage);
        const float upper = scale_a[0] * scale_b[half], lower = scale_a[1] * scale_b[half];
#pragma unroll
        for (int i = 0; i < 64; i += 4) {
          acc[half][i] = fmaf(part[i], upper, acc[half][i]);
          acc[half][i + 1] = fmaf(part[i + 1], upper, acc[half][i + 1]);
          acc[half][i + 2] = fmaf(part[i + 2], lower, acc[half][i + 2]);
          acc[half][i + 3] = fmaf(part[i + 3], lower, acc[half][i + 3]);
        }
      }
    }
    epilogue(int64_t{item.tile} * kTileRows, t.valid, item.column, row, acc);
  }
}

template <bool kShareWeights, class Epilogue>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    product_kernel(Problem p, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b0,
                   const __grid_constant__ CUtensorMap b1, Epilogue epilogue) {
  extern __shared__ uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], kConsumerWarps * kCluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) feed<kShareWeights>(p, s, &a, &b0, &b1);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<kShareWeights>(p, s, group - 1, epilogue);
  }
  cluster_sync();  // a CTA must not end while its peer still signals its barriers
}

}  // namespace grouped
