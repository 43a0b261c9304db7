// index_select of prompt rows (glm5_next spec §10.3, §10.4), for 32 heads of 128 over bf16 or fp8 keys. A
// block has up to eight consecutive rows of one sequence, a warp each, and walks the keys that they see, or a
// share of them: a tile lies in shared memory once for all rows. A warp has its row's query in registers,
// rounded to what meets the keys (bf16, or the codes of the turned query), scores a tile on tensor cores and
// keeps the best of its row in a list of its own: scores are never stored. Few rows have several shares; what
// is best of each is then joined by a second launch.
#include <algorithm>
#include <bit>

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/best_list.cuh"
#include "kernels/sm90/dsa/coded.cuh"
#include "kernels/sm90/dsa/pool_tiles.cuh"
#include "kernels/sm90/dsa/scores.cuh"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kRows = 8, kThreads = 32 * kRows, kBlocks = 2;  // blocks of a multiprocessor
constexpr int kHeads = 32, kDim = 128;
constexpr int kSteps = kDim / 16;                 // products of 16 values a pool and head
constexpr int kKeyPitch = 2 * kDim + 16;          // bytes of a key as the products meet it
constexpr int kMostShares = 16, kLeastTiles = 4;  // of a share

// A registers of the heads of a row: two tiles of 16.
using Query = uint32_t[kHeads / 16][kSteps][4];

struct Slice {
  Rows<const float> query;   // [T, heads dim]
  Rows<const float> weight;  // [T, heads]
  float scale;
  kernels::DsaCache cache;
  SelectRows rows;
  int32_t groups, shares;
  Rows<int32_t> pools, count;
  // Of rows with several shares, [rows, shares]: the best of each.
  uint32_t* words;  // [.., keep]
  int32_t* places;  // [.., keep]
  int32_t* listed;
};

// Rows of one sequence. Groups of a sequence follow one another from a place that its own row tells, with
// gaps between sequences.
struct Group {
  int32_t sequence, first, rows;  // no rows: nobody's
};
__device__ int32_t first_group(const StepView& step, int32_t sequence) {
  return (step.sequence[sequence].row - step.decode_rows) / kRows + sequence - step.decode_sequences;
}
__device__ Group group_of(const StepView& step, int32_t group) {
  int32_t low = step.decode_sequences, high = step.sequences;
#pragma unroll 1
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (first_group(step, middle) <= group ? low : high) = middle;
  }
  const Sequence& s = step.sequence[low];
  const int32_t before = (group - first_group(step, low)) * kRows;
  return {low, s.row + before, min(kRows, s.rows - before)};
}

// Shares of so many pools that are worth their own block.
__device__ int32_t shares_of(int32_t shares, int32_t candidates) {
  return max(1, min(shares, candidates / (kTile * kLeastTiles)));
}

__device__ uint32_t pack_bf16(float2 v) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(v.x)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(v.y))) << 16;
}

struct HalfKeys {
  static constexpr int kStages = 3, kBytes = 2 * kDim, kPitch = kKeyPitch, kStageBytes = kTile * kPitch;
  static constexpr bool kCoded = false;
  static constexpr int kRoom = 800;  // words of a list
  static constexpr int kWidenedBytes = 0;

  // What a lane (g, t) of the products has: heads 16 m + g and 8 more, values 2 t, 2 t + 1 and 8 more.
  __device__ static void prepare(Query& query, float (&)[4], const float* row, uint8_t*) {
    const int lane = threadIdx.x % 32;
    const float* own = row + lane / 4 * kDim + 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      __syncwarp();  // no more loads at once than there are registers for
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          query[m][k][r] = pack_bf16(
              *reinterpret_cast<const float2*>(own + (16 * m + 8 * (r % 2)) * kDim + 16 * k + 8 * (r / 2)));
        }
      }
    }
  }
};

struct CodedKeys {
  static constexpr int kStages = 3, kBytes = kDim, kPitch = kDim, kStageBytes = kTile * (kPitch + 4);
  static constexpr bool kCoded = true;
  static constexpr int kRoom = 896;
  static constexpr int kWidenedBytes = kTile * kKeyPitch;
  static_assert(BestList<kRoom>::kBytes >= sizeof(Query) * 32);

  // A lane (g, t) turns heads g, g + 8, … of the row with the three other lanes of its g: of every 16 values
  // it has 4 t … 4 t + 3, which are those that it needs. `memory` is the warp's. Scales go into the weights.
  __device__ static void prepare(Query& query, float (&weight)[4], const float* row, uint8_t* memory) {
    const int lane = threadIdx.x % 32, q4 = lane % 4;
    uint32_t* const staged = reinterpret_cast<uint32_t*>(memory);  // [m, k, lane, 4]
    const float* own = row + lane / 4 * kDim + 4 * q4;
    float scales[4];
#pragma unroll
    for (int eighth = 0; eighth < 4; ++eighth) scales[eighth] = 1;
#pragma unroll 1
    for (int eighth = 0; eighth < 4; ++eighth) {
      float x[4 * kSteps];
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const float4 v = *reinterpret_cast<const float4*>(own + 8 * eighth * kDim + 16 * k);
        x[4 * k] = v.x, x[4 * k + 1] = v.y, x[4 * k + 2] = v.z, x[4 * k + 3] = v.w;
      }
      const auto pairs = [&](int apart) {
#pragma unroll
        for (int i = 0; i < 4 * kSteps; ++i) {
          if ((i & apart) != 0) continue;
          const float sum = x[i] + x[i + apart], difference = x[i] - x[i + apart];
          x[i] = sum, x[i + apart] = difference;
        }
      };
      pairs(1), pairs(2);
#pragma unroll 1
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float sign = (q4 & lanes) != 0 ? -1.0f : 1.0f;
#pragma unroll
        for (float& v : x) v = fmaf(sign, v, __shfl_xor_sync(0xffffffffu, v, lanes));
      }
      pairs(4), pairs(8), pairs(16);
      float largest = 0;
      bool has_nan = false;
#pragma unroll
      for (float& v : x) {
        v *= 1 / sqrtf(static_cast<float>(kDim));
        largest = fmaxf(largest, fabsf(v));
        has_nan |= isnan(v);
      }
      if (has_nan) largest = NAN;
#pragma unroll 1
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, largest, lanes);
        largest = isnan(other) ? other : isnan(largest) ? largest : fmaxf(largest, other);
      }
      const float scale = turned_scale(largest), inverse = __fdiv_rn(1.0f, scale);
      // Without a scale no product is above zero.
      const float finite = scale < INFINITY ? scale : 1.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) scales[i] = i == eighth ? finite : scales[i];
      uint32_t* const to = staged + eighth / 2 * kSteps * 128 + 4 * lane + eighth % 2;
#pragma unroll
      for (int i = 0; i < 4 * kSteps; i += 2) {
        to[i / 4 * 128 + i % 4] =
            widen_low(uint32_t{code_of(x[i] * inverse)} | uint32_t{code_of(x[i + 1] * inverse)} << 8);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) weight[i] *= scales[i];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const uint4 four = reinterpret_cast<const uint4*>(staged)[(m * kSteps + k) * 32 + lane];
        query[m][k][0] = four.x, query[m][k][1] = four.y, query[m][k][2] = four.z, query[m][k][3] = four.w;
      }
    }
  }

  // Codes of a tile as f16, once for all rows: of 16 values a lane t of the products has 4 t … 4 t + 3.
  __device__ static void widen(uint8_t* to, const uint8_t* codes) {
#pragma unroll
    for (int i = threadIdx.x; i < kTile * 8; i += kThreads) {
      const uint4 four = reinterpret_cast<const uint4*>(codes)[i];
      const uint4 low = {widen_low(four.x), widen_low(four.y), widen_low(four.z), widen_low(four.w)};
      const uint4 high = {widen_high(four.x), widen_high(four.y), widen_high(four.z), widen_high(four.w)};
      uint4* const at = reinterpret_cast<uint4*>(to + i / 8 * kKeyPitch + i % 8 * 32);
      const bool swap = i % 8 >= 4;  // eight lanes write to all banks
      at[swap ? 1 : 0] = swap ? high : low;
      at[swap ? 0 : 1] = swap ? low : high;
    }
  }
};

// dot[m][n][i]: heads 16 m + g + 8 (i / 2) by pools 8 n + 4 (i % 2) + t of the 16 whose first key's row for
// this lane is `key`.
template <class Keys>
__device__ void multiply(float (&dot)[2][2][4], const uint8_t* key, const Query& query) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    uint32_t b[4];
    load_tiles(b, key + 32 * k);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        if (Keys::kCoded) {
          mma_f16(dot[m][n], query[m][k], b[2 * n], b[2 * n + 1]);
        } else {
          mma_bf16(dot[m][n], query[m][k], b[2 * n], b[2 * n + 1]);
        }
      }
    }
  }
}

// Of 32 pools from `keys` on, each lane the sum over heads of its own. Lanes whose g differ have other heads:
// a bit of g at a time, they exchange sums of the pools of which the other keeps the total.
template <class Keys>
__device__ float score(const uint8_t* keys, const Query& query, const float (&weight)[4]) {
  const int lane = threadIdx.x % 32;
  const uint8_t* key = keys + (lane / 16 * 8 + lane % 2 * 4 + lane % 8 / 2) * kKeyPitch + lane / 8 % 2 * 16;
  float sums[2];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float dot[2][2][4] = {};
    multiply<Keys>(dot, key + 16 * part * kKeyPitch, query);
    float mine[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float v[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        v[n] = weight[0] * fmaxf(dot[0][n][j], 0.0f);
        v[n] = fmaf(weight[1], fmaxf(dot[0][n][2 + j], 0.0f), v[n]);
        v[n] = fmaf(weight[2], fmaxf(dot[1][n][j], 0.0f), v[n]);
        v[n] = fmaf(weight[3], fmaxf(dot[1][n][2 + j], 0.0f), v[n]);
      }
      const bool upper = (lane & 8) != 0;
      mine[j] = (upper ? v[1] : v[0]) + __shfl_xor_sync(0xffffffffu, upper ? v[0] : v[1], 8);
    }
    const bool upper = (lane & 4) != 0;
    sums[part] = (upper ? mine[1] : mine[0]) + __shfl_xor_sync(0xffffffffu, upper ? mine[0] : mine[1], 4);
  }
  const bool upper = (lane & 16) != 0;
  return (upper ? sums[1] : sums[0]) + __shfl_xor_sync(0xffffffffu, upper ? sums[0] : sums[1], 16);
}

template <class Keys>
constexpr size_t shared_bytes() {
  return Keys::kStages * Keys::kStageBytes + Keys::kWidenedBytes + kRows * BestList<Keys::kRoom>::kBytes;
}

template <class Keys>
__global__ void __launch_bounds__(kThreads, kBlocks)
    slice_kernel(StepView step, const __grid_constant__ Slice a) {
  begin_dependent();
  using Tiles = PoolTiles<Keys, kThreads>;
  constexpr int kAhead = Tiles::kAhead;
  static_assert(Keys::kRoom - kTile >= kMostKept);
  uint8_t* const memory = dynamic_shared<uint8_t>();
  uint8_t* const widened = memory + Keys::kStages * Keys::kStageBytes;
  __shared__ int32_t ids[Tiles::kPageTiles * kPageTokens];
  // The last rows of a prompt see most: they begin first.
  const auto share = static_cast<int32_t>(blockIdx.x % a.shares);
  const Group group = group_of(step, a.groups - 1 - static_cast<int32_t>(blockIdx.x / a.shares));
  if (group.rows <= 0) return;
  const Sequence& s = step.sequence[group.sequence];
  const int32_t seen = candidates_of(a.rows, s, group.first + group.rows - 1);  // by the last row
  const int32_t shares = shares_of(a.shares, seen);
  if (share >= shares) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, keep = a.rows.keep;
  const int64_t t = group.first + warp;
  const int32_t candidates = warp < group.rows ? candidates_of(a.rows, s, t) : 0;
  const bool scored = candidates > keep;
  if (warp < group.rows && share == 0) {
    if (lane == 0) *a.count(t) = min(candidates, keep);
#pragma unroll 1
    for (int i = lane; i < keep && !scored; i += 32) a.pools(t)[i] = i < candidates ? i : -1;
  }
  if (seen <= keep) return;
  const int32_t all = (seen + kTile - 1) / kTile, first_tile = all * share / shares;
  const int32_t tiles = all * (share + 1) / shares - first_tile, begin = first_tile * kTile;
  const Tiles ring{a.cache, a.rows.pool_shift, step.pages + s.page_offset, memory, ids, seen};
#pragma unroll 1
  for (int i = 0; i < min(tiles, 2 * kAhead); ++i) ring.look_up(i, begin + i * kTile);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < kAhead; ++i) {
    if (i < tiles) ring.tile(i, begin + i * kTile, seen);
    commit_copies();
  }
  uint8_t* const own = widened + Keys::kWidenedBytes + warp * BestList<Keys::kRoom>::kBytes;
  Query query = {};
  float weight[4] = {};
  if (scored) {
#pragma unroll
    for (int i = 0; i < 4; ++i) weight[i] = a.scale * a.weight(t)[8 * i + lane / 4];
    Keys::prepare(query, weight, a.query(t), own);
  }
  BestList<Keys::kRoom> list(own, keep);
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    wait_copies<kAhead - 1>();
    __syncthreads();  // the tile is there, and all are done with the one before
    const int ahead = i + kAhead;
    if (ahead < tiles) ring.tile(ahead, begin + ahead * kTile, seen);
    if (ahead + kAhead < tiles) ring.look_up(ahead + kAhead, begin + (ahead + kAhead) * kTile);
    commit_copies();
    const uint8_t* const stage = ring.stage(i);
    if constexpr (Keys::kCoded) {
      Keys::widen(widened, stage);
      __syncthreads();
    }
    if (!scored) continue;
    const uint8_t* const keys = Keys::kCoded ? widened : stage;
#pragma unroll 1
    for (int at = 0; at < kTile; at += 32) {
      float value = score<Keys>(keys + at * kKeyPitch, query, weight);
      if (Keys::kCoded) {
        const float scale = reinterpret_cast<const float*>(stage + kTile * Keys::kPitch)[at + lane];
        value *= scale < INFINITY ? scale : 0.0f;
      }
      const int32_t p = begin + i * kTile + at + lane;
      list.add(p < candidates ? order_of(value) : 0, p);
    }
    if (list.listed > (i + 1 == tiles ? keep : Keys::kRoom - kTile)) list.cut();
  }
  if (!scored) return;
  __syncwarp();
  if (shares == 1) {
#pragma unroll 1
    for (int i = lane; i < keep; i += 32) a.pools(t)[i] = list.places()[i];
    return;
  }
  const int64_t entry = (t - a.rows.first) * a.shares + share;
  if (lane == 0) a.listed[entry] = list.listed;
#pragma unroll 1
  for (int i = lane; i < list.listed; i += 32) {
    a.words[entry * keep + i] = list.words[i];
    a.places[entry * keep + i] = list.places()[i];
  }
}

// A warp a row: the best of what its shares have listed, in their order.
constexpr int kJoinRows = 4, kJoinRoom = 1024, kBatch = 8;
static_assert(kJoinRoom - 32 * kBatch >= kMostKept);
__global__ void __launch_bounds__(32 * kJoinRows)
    join_kernel(StepView step, const __grid_constant__ Slice a) {
  begin_dependent();
  __shared__ uint4 memory[kJoinRows][BestList<kJoinRoom>::kBytes / sizeof(uint4)];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, keep = a.rows.keep;
  const int64_t row = int64_t{blockIdx.x} * kJoinRows + warp, t = a.rows.first + row;
  if (row >= a.rows.count) return;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const auto in_sequence = static_cast<int32_t>(t - s.row);
  const int32_t last = s.row + min(in_sequence / kRows * kRows + kRows, s.rows) - 1;
  const int32_t shares = shares_of(a.shares, candidates_of(a.rows, s, last));
  if (shares == 1 || candidates_of(a.rows, s, t) <= keep) return;
  BestList<kJoinRoom> list(memory[warp], keep);
#pragma unroll 1
  for (int share = 0; share < shares; ++share) {
    const int64_t entry = row * a.shares + share;
    const int count = a.listed[entry];
#pragma unroll 1
    for (int first = 0; first < count; first += 32 * kBatch) {
      uint32_t words[kBatch];
      int32_t places[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int i = first + 32 * j + lane;
        words[j] = i < count ? a.words[entry * keep + i] : 0;
        places[j] = i < count ? a.places[entry * keep + i] : 0;
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) list.add(words[j], places[j]);
      const bool ends = share + 1 == shares && first + 32 * kBatch >= count;
      if (list.listed > (ends ? keep : kJoinRoom - 32 * kBatch)) list.cut();
    }
  }
  __syncwarp();
  for (int i = lane; i < keep; i += 32) a.pools(t)[i] = list.places()[i];
}

template <class Keys>
void launch(cudaStream_t stream, const StepView& step, const Slice& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(slice_kernel<Keys>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes<Keys>())),
          "index_select");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "index_select", blocks_for(int64_t{a.groups} * a.shares, 1), kThreads,
                   shared_bytes<Keys>(), slice_kernel<Keys>, step, a);
}

// Blocks of two rounds, where there are too few groups for that.
int64_t most_blocks(int multiprocessors) {
  return int64_t{2} * kBlocks * multiprocessors;
}
int64_t entry_bytes(int64_t keep) {
  return (2 * keep + 1) * int64_t{sizeof(uint32_t)};
}

}  // namespace

int64_t slice_select_bytes(int64_t rows, int64_t keep, int multiprocessors) {
  return std::min(most_blocks(multiprocessors) * kRows, rows * kMostShares) * entry_bytes(keep);
}

void slice_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, void* scratch,
                  int multiprocessors) {
  Slice s{};
  s.query = rows_of<const float>(a.query);
  s.weight = rows_of<const float>(a.weight);
  s.scale = a.scale;
  s.cache = a.cache;
  s.rows = {step.decode_rows, step.rows - step.decode_rows, std::countr_zero(static_cast<uint32_t>(a.pool)),
            a.topk / a.pool};
  s.groups = s.rows.count / kRows + step.sequences - step.decode_sequences;
  s.shares =
      static_cast<int32_t>(std::clamp<int64_t>(most_blocks(multiprocessors) / s.groups, 1, kMostShares));
  s.pools = rows_of<int32_t>(a.pools);
  s.count = rows_of<int32_t>(a.count);
  // With more than one share, rows x shares <= kRows groups x shares <= kRows most_blocks().
  const int64_t entries = int64_t{s.rows.count} * s.shares, keep = s.rows.keep;
  s.words = static_cast<uint32_t*>(scratch);
  s.places = static_cast<int32_t*>(scratch) + entries * keep;
  s.listed = static_cast<int32_t*>(scratch) + 2 * entries * keep;
  if (a.cache.pooled_dtype == DType::bf16) {
    launch<HalfKeys>(stream, step, s);
  } else {
    launch<CodedKeys>(stream, step, s);
  }
  if (s.shares == 1) return;
  launch_dependent(stream, "index_select", blocks_for(s.rows.count, kJoinRows), 32 * kJoinRows, 0,
                   join_kernel, step, s);
}

}  // namespace godwit::sm90
