// Tiles of a sequence's pooled keys in shared memory, a ring that asynchronous copies fill.
#pragma once

#include "kernels/sm90/dsa/paged.cuh"

namespace godwit::sm90 {

constexpr int kTile = 64;  // pools

// Brings keys of a sequence into the ring: eight threads take 128 bytes of a key, and a thread has parts of
// keys kApart from each other. Their pages come by a ring of their own, as far ahead of the keys as those are
// of their use: a load would wait behind the copies that are under way. Keys: kStages of kStageBytes, each
// kTile rows of kBytes, kPitch apart, and if they are kCoded their scales.
template <class Keys, int kThreads>
struct PoolTiles {
  static constexpr int kApart = kThreads / 8, kParts = kTile / kApart;
  static constexpr int kAhead = Keys::kStages - 1, kPageTiles = 2 * Keys::kStages;

  const kernels::DsaCache& cache;
  int32_t pool_shift;    // log2 P
  const int32_t* pages;  // of the sequence
  uint8_t* ring;
  int32_t* ids;  // [kPageTiles, P]: a tile has P pages
  int32_t candidates;

  struct Place {
    const std::byte* key;
    const float* scale;
  };
  __device__ int shift() const { return 6 - pool_shift; }  // log2 of the pools of a page
  __device__ Place place(int32_t p, int32_t its_page) const {
    static_assert(kPageTokens == 1 << 6);
    const std::byte* keys = cache.base + int64_t{its_page} * cache.page_stride + cache.pooled_offset;
    const int in_page = p & ((1 << shift()) - 1);
    return {keys + in_page * Keys::kBytes,
            reinterpret_cast<const float*>(keys + (Keys::kBytes << shift())) + in_page};
  }
  __device__ uint8_t* stage(int tile) const {
    return ring + static_cast<unsigned>(tile) % Keys::kStages * Keys::kStageBytes;
  }

  __device__ int32_t* ids_of(int tile) const {
    return ids + (static_cast<unsigned>(tile) % kPageTiles << pool_shift);
  }
  // Pages of the tile that begins at pool `first`.
  __device__ void look_up(int tile, int32_t first) const {
    const int32_t p = first + (static_cast<int>(threadIdx.x) << shift());
    if (static_cast<int>(threadIdx.x) >> pool_shift == 0 && p < candidates)
      copy_word_async(ids_of(tile) + threadIdx.x, pages + (p >> shift()));
  }
  // Pools below `limit` of it, whose pages have come; zeros for the others.
  __device__ void tile(int tile, int32_t first, int32_t limit) const {
    const int row = static_cast<int>(threadIdx.x) / 8, piece = threadIdx.x % 8 * 16;
    uint8_t* const to = stage(tile) + row * Keys::kPitch + piece;
    const int32_t* const its_ids = ids_of(tile);
    const std::byte* from[kParts];
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const int r = row + kApart * j;
      from[j] = place(r, first + r < limit ? its_ids[r >> shift()] : 0).key + piece;
    }
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const bool present = first + row + kApart * j < limit;
#pragma unroll
      for (int at = 0; at < Keys::kBytes; at += 128)
        copy_async(to + kApart * j * Keys::kPitch + at, from[j] + at, present);
    }
    if (Keys::kCoded && threadIdx.x < kTile / 4) {
      const int r = 4 * static_cast<int>(threadIdx.x);
      const bool present = first + r < limit;
      copy_async(stage(tile) + kTile * Keys::kPitch + 4 * r,
                 place(r, present ? its_ids[r >> shift()] : 0).scale, present);
    }
  }
  // Pools [begin, end) of it by the thread itself: what launches before this one have written.
  __device__ void late(int tile, int32_t first, int32_t begin, int32_t end) const {
    uint8_t* to = stage(tile);
#pragma unroll 1
    for (int32_t p = begin + static_cast<int>(threadIdx.x) / 8; p < end; p += kApart) {
      const Place from = place(p, ids_of(tile)[(p - first) >> shift()]);
      for (int at = threadIdx.x % 8 * 16; at < Keys::kBytes; at += 128) {
        *reinterpret_cast<uint4*>(to + (p - first) * Keys::kPitch + at) =
            *reinterpret_cast<const uint4*>(from.key + at);
      }
      if (Keys::kCoded) reinterpret_cast<float*>(to + kTile * Keys::kPitch)[p - first] = *from.scale;
    }
  }
};

}  // namespace godwit::sm90
