// The decode dot product of bf16 weights (kernels spec §2.2): few rows of activations against weights that
// are read once.
//
// A CTA is two warpgroups. A chunk is up to 64 weight rows. Where a row has an even number of blocks above
// four, the warpgroups share a chunk, one the even and one the odd blocks, and the two sums are added in that
// order; otherwise each has chunks of its own. So the order of a sum depends on K only, and nothing of it on
// how many rows there are. A warpgroup keeps its weights in a ring of its own, filled by cp.async across
// chunks.
#pragma once

#include "kernels/sm90/stream/stage.cuh"

namespace godwit::sm90::stream {

// How the blocks of a row are shared.
struct Split {
  bool halves;
  int32_t stages;  // of a warpgroup in a chunk
};
inline Split split_of(int64_t blocks) {
  const bool halves = blocks > 4 && blocks % 2 == 0;
  return {halves, static_cast<int32_t>(halves ? blocks / 2 : blocks)};
}

// Weight rows that lie side by side, as they meet rows of activations.
struct Chunk {
  const uint8_t* weights;
  const uint8_t* x;  // row 0
  int32_t first, rows;
  bool valid;
};
// A CTA's chunks:
//   Work::first(), next(chunk)        in order
//   Work::split, ring                 how K is shared, and the stages, of all chunks
//   Work::stride, x_stride            bytes between rows of weights, of activations
//   Work::columns                     rows of activations
//   Work::store(chunk, sum, thread, threads)
//                                     writes what a chunk gives; sum(slot, column)

// A place in the walk of a warpgroup.
template <class Work>
struct Cursor {
  Chunk chunk;
  int stage = 0;

  __device__ Cursor(const Work& work, int group) : chunk(work.first()) {
    if (!work.split.halves && group > 0 && chunk.valid) work.next(chunk);
  }
  __device__ bool begins() const { return stage == 0; }
  __device__ uint32_t block(const Work& work, int group) const {
    return static_cast<uint32_t>(work.split.halves ? kGroups * stage + group : stage);
  }
  __device__ void advance(const Work& work, int stages) {
    if (!chunk.valid || (stage += stages) < work.split.stages) return;
    stage = 0;
    work.next(chunk);
    if (!work.split.halves && chunk.valid) work.next(chunk);
  }
};

template <int kColumns, class Work>
__device__ inline void run(const Work& work) {
  using F = Form<kColumns>;
  uint8_t* const memory = align_tiles<uint8_t>(dynamic_shared<uint8_t>());
  // The same in all lanes, and the compiler is to know it: operands of products are.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / kGroupThreads), 0);
  const int thread = threadIdx.x % kGroupThreads;
  uint8_t* const ring = memory + group * F::kRingBytes;
  // Partial sums lie where only products of the last stage read, and what they read there is not stored.
  float* const partials = reinterpret_cast<float*>(memory + kGroups * F::kRingBytes);
  float* const own = partials + group * F::kPartialFloats;
  const Ring& size = work.ring;
  const int stages = size.turns * size.together;

  Cursor<Work> now(work, group), ahead = now;  // of products, of copies
  Copies<kSlots> weights;
  Copies<kColumns> rows;
  int slot = 0;  // that copies fill
  const auto copy_turn = [&](Cursor<Work>& at, bool of_weights, bool of_rows) {
    if (at.chunk.valid && at.begins()) {
      if (of_weights) weights.aim(at.chunk.weights, work.stride, at.chunk.rows, thread);
      if (of_rows) rows.aim(at.chunk.x, work.x_stride, work.columns, thread);
    }
    if (at.chunk.valid) {
      const uint32_t block = at.block(work, group), step = work.split.halves ? kGroups : 1;
#pragma unroll 1
      for (int i = 0; i < size.together; ++i) {
        uint8_t* const stage = ring + (slot + i) * size.stage_bytes;
        if (of_weights) weights.issue(stage, block + i * step, thread);
        if (of_rows) rows.issue(stage + size.weight_bytes, block + i * step, thread);
      }
      at.advance(work, size.together);
    }
    if (of_rows) commit_copies();
    slot = slot + size.together == stages ? 0 : slot + size.together;
  };
  // Weights are asked for before the wait, the activations they meet after it: the first of these groups of
  // copies has all the weights so far.
#pragma unroll 1
  for (int i = 1; i < size.turns; ++i) copy_turn(ahead, true, false);
  wait_for_previous();
  Cursor<Work> again = now;
  slot = 0;
#pragma unroll 1
  for (int i = 1; i < size.turns; ++i) copy_turn(again, false, true);

  const uint64_t first = wgmma_operand(ring);
  int at = 0;
#pragma unroll 1
  while (now.chunk.valid) {
    const Chunk chunk = now.chunk;
    Sums<kColumns> sums;
    sums.clear();
#pragma unroll 1
    do {
      wait_copies(size.turns - 2);
      fence_products();
      meet_group(group);  // all have what they copied, and have left the turn before
      sums.settle();
      wgmma_begin();
#pragma unroll 1
      for (int i = 0; i < size.together; ++i) {
        const uint64_t stage = wgmma_moved(first, (at + i) * size.stage_bytes);
        sums.multiply(stage, wgmma_moved(stage, size.weight_bytes));
      }
      wgmma_commit();
      copy_turn(ahead, true, true);
      wgmma_wait();
      sums.settle();
      at = at + size.together == stages ? 0 : at + size.together;
      now.advance(work, size.together);
    } while (now.chunk.valid && !now.begins());

    const int row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < Sums<kColumns>::kTiles; ++i) {
#pragma unroll
      for (int v = 0; v < Sums<kColumns>::kValues; ++v) {
        const int column = 32 * i + 8 * (v / 4) + 2 * (thread % 4) + v % 2;
        own[column * F::kPitch + row + 8 * (v / 2 % 2)] = sums.of[i][v];
      }
    }
    if (work.split.halves) {
      __syncthreads();
      const auto sum = [&](int s, int column) {
        const float* of = partials + column * F::kPitch + s;
        return of[0] + of[F::kPartialFloats];
      };
      work.store(chunk, sum, static_cast<int>(threadIdx.x), kThreads);
      __syncthreads();
    } else {
      meet_group(group);
      const auto sum = [&](int s, int column) { return own[column * F::kPitch + s]; };
      work.store(chunk, sum, thread, kGroupThreads);
      meet_group(group);
    }
  }
}

}  // namespace godwit::sm90::stream
