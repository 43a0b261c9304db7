// What a warpgroup of a streamed product holds: stages of bf16 weights in shared memory, and the activations
// that meet them.
//
// A stage is a block of 128 bytes (64 values) of up to 64 weight rows, its slots, and behind it of up to 8,
// 32 or 64 activation rows, its columns. The product is wgmma.m64nNk16, which reads both where they lie. Of a
// stage of fewer slots it reads what lies behind as well: a slot's sums are its own, and those of slots
// without a row are not stored.
#pragma once

#include <algorithm>

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90::stream {

constexpr int kBlockBytes = 128;
constexpr int kGroupThreads = 128, kGroups = 2, kThreads = kGroups * kGroupThreads;
constexpr int kSlots = 64;  // of a product

// Shared memory of a CTA: the rings of its warpgroups, of as many stages as have room, what is read behind
// the last of them, and partial sums.
template <int kColumns>
struct Form {
  static constexpr int kXBytes = kColumns * kBlockBytes;
  static constexpr int kPitch = kSlots + 1;  // floats between columns of partial sums
  static constexpr int kPartialFloats = kColumns * kPitch;
  static constexpr int kPartialBytes = kGroups * kPartialFloats * int{sizeof(float)};
  static constexpr int kBehind = std::max(kSlots * kBlockBytes, kPartialBytes);
  // Few rows wait for little else than weights: two launches fit an SM, so that the second fills its rings
  // while the first ends.
  static constexpr int kSharedBytes = kColumns == 8 ? 113 << 10 : 226 << 10;
  static constexpr int kUsed = kSharedBytes - 1024;  // tiles begin at multiples of 1,024 bytes
  static constexpr int kRingBytes = (kUsed - kBehind) / kGroups / 1024 * 1024;
};

// The stages of a ring for chunks of `rows` weight rows. A turn multiplies `together` of them: so many as
// divide a chunk's stages and leave most of the ring to the copies, since a turn costs a barrier.
struct Ring {
  int32_t weight_bytes, stage_bytes, turns, together;  // turns: that it holds
};
template <int kColumns>
Ring ring_of(int64_t rows, int32_t stages_of_chunk) {
  constexpr int kFewestTurns = 4, kMostTurns = kMostPending + 2;
  using F = Form<kColumns>;
  const auto weights = static_cast<int32_t>((rows + 7) / 8 * 8 * kBlockBytes);
  const int32_t stage = weights + F::kXBytes, stages = F::kRingBytes / stage;
  int32_t together = 4;
  while (together > 1 && (stages_of_chunk % together != 0 || stages < kFewestTurns * together)) together /= 2;
  return {weights, stage, std::min(stages / together, kMostTurns), together};
}

// The threads of a warpgroup.
__device__ inline void meet_group(int group) {
  if (group == 0) {
    named_barrier<1, kGroupThreads>();
  } else {
    named_barrier<2, kGroupThreads>();
  }
}

// Where 16-byte piece `piece` of row `row` of a tile lies.
__device__ inline int piece_at(int row, int piece) {
  return row * kBlockBytes + ((piece ^ row % 8) << 4);
}

// A thread's part of the copies of rows of 128 bytes: piece thread % 8 of rows thread / 8 + 16 i of kRows.
// Rows that do not exist are not copied.
template <int kRows>
struct Copies {
  static constexpr int kEach = (kRows + 15) / 16;
  const uint8_t* from = nullptr;  // of row thread / 8
  int64_t step = 0;               // bytes, 16 rows on
  int32_t present = 0;            // how many of a thread's rows exist

  __device__ void aim(const uint8_t* data, int64_t stride, int rows, int thread) {
    from = data + thread / 8 * stride + 16 * (thread % 8);
    step = 16 * stride;
    present = (rows - thread / 8 + 15) >> 4;
  }
  __device__ void issue(uint8_t* tile, uint32_t block, int thread) const {
    uint8_t* to = tile + piece_at(thread / 8, thread % 8);
    const uint8_t* at = from + block * kBlockBytes;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i < present) copy_async(to + i * 16 * kBlockBytes, at + step * i);
    }
  }
};

// Sums of a lane: [i][4 j + v] is slot 16 warp + lane / 4 + 8 (v / 2), column 32 i + 8 j + 2 (lane % 4) + v
// % 2.
template <int kColumns>
struct Sums {
  static constexpr int kTiles = kColumns <= 32 ? 1 : kColumns / 32, kValues = kColumns / kTiles / 2;
  static constexpr int kTileBytes = kColumns / kTiles * kBlockBytes;
  float of[kTiles][kValues];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int v = 0; v < kValues; ++v) of[i][v] = 0;
    }
  }
  __device__ void settle() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) wgmma_settle(of[i]);
  }
  // += a stage of weights times its columns, both as operands.
  __device__ void multiply(uint64_t weights, uint64_t x) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        wgmma_bf16(of[i], wgmma_moved(weights, 32 * k), wgmma_moved(x, i * kTileBytes + 32 * k), true);
      }
    }
  }
};

}  // namespace godwit::sm90::stream
