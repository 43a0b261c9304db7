// The best of many words, kept by one warp in shared memory of its own: no barrier of the block is needed.
#pragma once

#include <cstdint>

#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

constexpr int kListDigitBits = 8, kListDigits = 1 << kListDigitBits;

// Words of order_of() with the places they come from, which ascend: of equal words the first are the better.
// Once more than `keep` have been listed, cut() leaves the best `keep` of them in their order. After that a
// word is only listed when it is above the least of those: an equal one comes later than all that are kept.
template <int kRoom>
struct BestList {
  static constexpr size_t kBytes = size_t{8} * kRoom + kListDigits * sizeof(uint32_t);

  uint32_t* words;  // [kRoom], and behind them the rest of kBytes, 16-byte aligned
  int keep, listed = 0;
  uint32_t least = 0;  // nothing at or below it is listed

  __device__ BestList(void* memory, int kept) : words(static_cast<uint32_t*>(memory)), keep(kept) {}
  __device__ int32_t* places() const { return reinterpret_cast<int32_t*>(words) + kRoom; }

  // All lanes must call; places ascend with lanes and calls. A word of 0 is nobody's.
  __device__ void add(uint32_t word, int32_t place) {
    const bool wanted = word > least;
    const uint32_t all = __ballot_sync(0xffffffffu, wanted);
    const int at = listed + __popc(all & ((1u << threadIdx.x % 32) - 1));
    if (wanted) words[at] = word, places()[at] = place;
    listed += __popc(all);
  }

  // The largest `keep` words are those whose bits from `shift` on are above `prefix`, and the first `equal`
  // of those whose bits are `prefix`.
  struct Cut {
    uint32_t prefix;
    int shift;
    uint32_t equal;
  };
  // Digit by digit, from the highest bit in which words differ.
  __device__ Cut find_cut() const {
    const int lane = threadIdx.x % 32;
    uint32_t largest = 0, smallest = 0xffffffffu;
#pragma unroll 1
    for (int i = lane; i < listed; i += 32)
      largest = max(largest, words[i]), smallest = min(smallest, words[i]);
    largest = __reduce_max_sync(0xffffffffu, largest);
    smallest = __reduce_min_sync(0xffffffffu, smallest);
    Cut c{0, 32 - __clz(static_cast<int>(largest ^ smallest)), static_cast<uint32_t>(keep)};
    if (c.shift < 32) c.prefix = largest >> c.shift;
    uint32_t* const counts = words + 2 * kRoom;
    uint4* const own = reinterpret_cast<uint4*>(counts) + 2 * (31 - lane);  // the largest digits are lane 0's
#pragma unroll 1
    while (c.shift > 0) {
      const int bits = min(c.shift, kListDigitBits);
      c.shift -= bits;
      own[0] = own[1] = {0, 0, 0, 0};
      __syncwarp();
      const uint32_t base = c.prefix << bits;
#pragma unroll 4
      for (int i = lane; i < listed; i += 32) {
        const uint32_t digit = (words[i] >> c.shift) - base;
        if (digit < 1u << bits) atomicAdd(counts + digit, 1u);
      }
      __syncwarp();
      const uint4 low = own[0], high = own[1];
      const uint32_t each[8] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};
      uint32_t sum = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += each[j];
      uint32_t before = sum;
#pragma unroll 1
      for (int o = 1; o < 32; o *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, before, o);
        if (lane >= o) before += other;
      }
      before -= sum;
      const bool mine = before < c.equal && before + sum >= c.equal;
      uint32_t digit = 0, wanted = 0, there = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (before < c.equal && before + each[j] >= c.equal) {
          digit = static_cast<uint32_t>(8 * (31 - lane) + 7 - j);
          wanted = c.equal - before;
          there = each[j];
        }
        before += each[j];
      }
      const int decides = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, mine))) - 1;
      c.prefix = base | __shfl_sync(0xffffffffu, digit, decides);
      c.equal = __shfl_sync(0xffffffffu, wanted, decides);
      if (__shfl_sync(0xffffffffu, there, decides) == c.equal) break;  // all words of the prefix are wanted
    }
    return c;
  }

  // listed > keep. All lanes must call.
  __device__ void cut() {
    __syncwarp();  // what other lanes have listed
    const Cut c = find_cut();
    const int lane = threadIdx.x % 32;
    const uint32_t before_me = (1u << lane) - 1;
    uint32_t smallest = 0xffffffffu;
    int kept = 0;
    uint32_t equal = 0;
#pragma unroll 1
    for (int first = 0; first < listed; first += 32) {
      const int i = first + lane;
      const uint32_t word = i < listed ? words[i] : 0;  // never the cut's: words are above 0
      const int32_t place = i < listed ? places()[i] : 0;
      const uint32_t bits = word >> c.shift;
      const uint32_t equals = __ballot_sync(0xffffffffu, word > 0 && bits == c.prefix);
      const bool stays =
          bits > c.prefix || (word > 0 && bits == c.prefix && equal + __popc(equals & before_me) < c.equal);
      const uint32_t all = __ballot_sync(0xffffffffu, stays);
      __syncwarp();  // all have read theirs; nobody's place is behind its own
      if (stays) {
        const int at = kept + __popc(all & before_me);
        words[at] = word, places()[at] = place;
        smallest = min(smallest, word);
      }
      kept += __popc(all);
      equal += __popc(equals);
    }
    least = __reduce_min_sync(0xffffffffu, smallest);
    listed = keep;
    __syncwarp();
  }
};

}  // namespace godwit::sm90
