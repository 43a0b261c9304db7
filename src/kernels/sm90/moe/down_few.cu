// The second product of e4m3 experts and few rows. A CTA owns 16 columns of the output, whose weights of an
// expert lie together in memory, and its warps take the groups in turns, each a whole one: 16 weight rows
// against up to 8 activation rows by mma.m16n8k16, blocks of 128 in ascending order, as in skinny/tile.cuh.
//
// Weights come in pieces of up to four blocks, by bulk copies into a ring that the CTA's warps share: piece n
// of all lies in slot n mod stages, and the warp that has multiplied it asks for the one that follows there.
// Every piece has a barrier of its own: of one that is used again a warp could not tell which of two phases
// has ended while another warp lags.
#include <algorithm>

#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/linear/quantize.cuh"
#include "kernels/sm90/moe/grouped.cuh"

namespace godwit::sm90 {
namespace {

// With one row's eight experts and the shared one, every warp has a group.
constexpr int kWarps = 9, kThreads = 32 * kWarps;
constexpr int kOwned = 16;
constexpr int kPieceBlocks = 4, kBlock = static_cast<int>(kFp8Block), kPieceK = kPieceBlocks * kBlock;
constexpr int kStageBytes = kOwned * kPieceK, kFewestStages = 6;
constexpr int kQuantisedRows = 2;  // of so few every CTA makes the codes of the inner activations itself

// A group, as this CTA meets it.
struct Tile {
  const uint8_t* weights;  // of its first column
  const float* scales;     // of all its columns
  int32_t first, rows;     // of the group's entries
};
// What a choice counts in the sum.
struct Share {
  float weight;
  int32_t held;  // on this rank
};

// How a launch uses its shared memory: a ring of stages, then these, as offsets in bytes.
struct Plan {
  int32_t stages, most_groups, most_pieces, entries;
  int32_t full;           // [most_pieces] barriers
  int32_t codes, scales;  // of the inner rows, if made here: [T (k + 1), K], [T (k + 1), K / 128]
  int32_t tiles, shares;  // [most_groups], [T, k]
  int32_t entry_of, y;    // [T (k + 1)] by group; [T (k + 1), kOwned] by entry
};

// Pieces of a row of `inner` columns.
__host__ __device__ constexpr int pieces_of(int inner) {
  return (inner + kPieceK - 1) / kPieceK;
}

struct Ring {
  const Work& a;
  const Plan& plan;
  uint8_t* memory;
  const Tile* tiles;
  int32_t routed, all;  // groups
  int32_t routed_pieces, all_pieces;

  __device__ int inner(int group) const { return group < routed ? a.routed.inner : a.shared_width.inner; }
  __device__ int first_piece(int group) const {
    return group < routed ? group * pieces_of(a.routed.inner)
                          : routed_pieces + (group - routed) * pieces_of(a.shared_width.inner);
  }
  __device__ uint8_t* stage(int slot) const { return memory + slot * kStageBytes; }
  __device__ uint64_t* full(int piece) const {
    return reinterpret_cast<uint64_t*>(memory + plan.full) + piece;
  }

  // By a whole warp. The 16 rows of one that is all of K are one run of bytes.
  __device__ void copy(int piece, int slot) const {
    if (piece >= all_pieces) return;
    const bool is_routed = piece < routed_pieces;
    const int k = is_routed ? a.routed.inner : a.shared_width.inner, pieces = pieces_of(k);
    const auto within = static_cast<uint32_t>(is_routed ? piece : piece - routed_pieces);
    const uint32_t group = pieces == 1 ? within : within / static_cast<uint32_t>(pieces);
    const auto first = static_cast<int>(within - group * static_cast<uint32_t>(pieces)) * kPieceK;
    const uint8_t* from = tiles[group + (is_routed ? 0 : routed)].weights;
    const int lane = threadIdx.x % 32;
    const int bytes = min(kPieceK, k - first);
    if (lane == 0) mbarrier_arrive_expecting(full(piece), static_cast<uint32_t>(kOwned * bytes));
    if (pieces == 1) {
      if (lane == 0) copy_bulk(stage(slot), from, static_cast<uint32_t>(kOwned * bytes), full(piece));
    } else if (lane < kOwned) {
      copy_bulk(stage(slot) + lane * kPieceK, from + lane * k + first, static_cast<uint32_t>(bytes),
                full(piece));
    }
  }
};

// What a lane needs of a group's activation rows for a piece: 32 codes of row lane / 4 in each block, and the
// scales of the two columns of its sums.
struct Activations {
  uint4 codes[kPieceBlocks][2];
  float scales[kPieceBlocks][2];

  __device__ Activations(const uint8_t* from, const float* const (&scales_from)[2], int blocks) {
#pragma unroll
    for (int b = 0; b < kPieceBlocks; ++b) {
      if (b >= blocks) break;
      const auto* halves = reinterpret_cast<const uint4*>(from + b * kBlock);
      codes[b][0] = halves[0], codes[b][1] = halves[1];
#pragma unroll
      for (int i = 0; i < 2; ++i) scales[b][i] = scales_from[i][b];
    }
  }
};

// sums += a block of a stage whose rows are `pitch` bytes apart.
__device__ inline void multiply(const uint8_t* block, int pitch, const uint4 (&codes)[2], float weight_scale,
                                const float (&x_scales)[2], float (&sums)[4]) {
  const int lane = threadIdx.x % 32;
  const uint8_t* low_row = block + lane / 4 * pitch + 32 * (lane % 4);
  float product[4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 low = *reinterpret_cast<const uint4*>(low_row + 16 * half);
    const uint4 high = *reinterpret_cast<const uint4*>(low_row + 8 * pitch + 16 * half);
    const uint32_t l[4] = {low.x, low.y, low.z, low.w}, h[4] = {high.x, high.y, high.z, high.w};
    const uint32_t v[4] = {codes[half].x, codes[half].y, codes[half].z, codes[half].w};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t w[4] = {widen_low(l[s]), widen_low(h[s]), widen_high(l[s]), widen_high(h[s])};
      mma_f16(product, w, widen_low(v[s]), widen_high(v[s]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = fmaf(product[i], weight_scale * x_scales[i % 2], sums[i]);
}

// Codes of a group's inner rows, by the warp that needs them: eight lanes a block, 16 values of each.
__device__ inline void quantize_rows(const Work& a, const Tile& tile, const int32_t* entry_of, int inner,
                                     const Quantized& to) {
  const int lane = threadIdx.x % 32, blocks = inner / kBlock;
#pragma unroll 1
  for (int column = 0; column < tile.rows; ++column) {
    const int32_t entry = entry_of[tile.first + column];
#pragma unroll 1
    for (int first = 0; first < blocks; first += kPieceBlocks) {
      const int block = min(first + lane / 8, blocks - 1), k = block * kBlock + lane % 8 * 16;
      const auto* from = reinterpret_cast<const float4*>(a.inner(entry) + k);
      const float4 v[4] = {from[0], from[1], from[2], from[3]};
      float largest = 0;
      bool has_nan = false;
#pragma unroll
      for (const float4& four : v) {
        for (const float value : {four.x, four.y, four.z, four.w}) {
          largest = fmaxf(largest, fabsf(value));
          has_nan |= isnan(value);
        }
      }
#pragma unroll
      for (int offset = 4; offset > 0; offset /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
      }
      has_nan = (__ballot_sync(0xffffffffu, has_nan) >> (lane & 24) & 0xff) != 0;
      const float scale = scale_of(largest, has_nan);
      *reinterpret_cast<uint4*>(to.codes + entry * to.padded + k) = {
          codes_of(v[0], scale), codes_of(v[1], scale), codes_of(v[2], scale), codes_of(v[3], scale)};
      if (lane % 8 == 0) to.scales[entry * (to.padded / kBlock) + block] = scale;
    }
  }
  __syncwarp();
}

// By all threads, after all groups: the choices of a row in ascending expert id, the shared expert last.
__device__ inline void combine(const Work& a, const Share* shares, const float* y) {
  const int row = static_cast<int>(threadIdx.x) % kOwned;
  const int64_t column = int64_t{blockIdx.x} * kOwned + row;
  const int32_t shared = a.tokens * a.chosen;  // first entry of the shared expert
#pragma unroll 1
  for (int t = static_cast<int>(threadIdx.x) / kOwned; t < a.tokens; t += kThreads / kOwned) {
    float sum = 0;
#pragma unroll 4
    for (int32_t c = t * a.chosen; c < (t + 1) * a.chosen; ++c) {
      const Share share = shares[c];
      if (share.held != 0) sum = fmaf(share.weight, y[c * kOwned + row], sum);
    }
    if (a.shared_width.inner > 0) sum += y[(shared + t) * kOwned + row];
    a.out(t)[column] = sum;
  }
}

// kQuantises: every CTA makes the codes of the inner activations itself.
template <bool kQuantises>
__global__ void __launch_bounds__(kThreads, 2)
    down_few_kernel(const __grid_constant__ Work a, const __grid_constant__ Plan plan) {
  let_next_start();
  auto* const memory = dynamic_shared<uint8_t>();
  auto* const tiles = reinterpret_cast<Tile*>(memory + plan.tiles);
  auto* const shares = reinterpret_cast<Share*>(memory + plan.shares);
  auto* const entry_of = reinterpret_cast<int32_t*>(memory + plan.entry_of);
  float* const y = a.y == nullptr ? reinterpret_cast<float*>(memory + plan.y)
                                  : a.y + int64_t{blockIdx.x} * plan.entries * kOwned;
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_column = static_cast<int>(blockIdx.x) * kOwned;

  // The groups, which are older than the launch before this one; places past the last group hold anything.
  const int32_t routed = a.groups.count[0], all = routed + a.groups.count[1];
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.most_groups; i += kThreads) {
    const Group& g = a.groups.group[i];
    const int64_t k = g.expert < 0 ? a.shared_width.inner : a.routed.inner;
    tiles[i] = {static_cast<const uint8_t*>(g.down) + first_column * k,
                g.down_scales + int64_t{first_column / kBlock} * g.down_scale_stride, g.first, g.rows};
    if (i < all) prefetch(tiles[i].scales);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.entries; i += kThreads) entry_of[i] = a.groups.entry[i];
#pragma unroll 1
  for (int i = threadIdx.x; i < a.tokens * a.chosen; i += kThreads) {
    const int t = static_cast<int>(static_cast<uint32_t>(i) / static_cast<uint32_t>(a.chosen));
    const int32_t local = a.ids(t)[i - t * a.chosen] - a.first_expert;
    shares[i] = {a.weights(t)[i - t * a.chosen], local >= 0 && local < a.held};
  }
  const int32_t routed_pieces = routed * pieces_of(a.routed.inner);
  const Ring ring{
      a,      plan, memory,        tiles,
      routed, all,  routed_pieces, routed_pieces + (all - routed) * pieces_of(a.shared_width.inner)};
#pragma unroll 1
  for (int i = threadIdx.x; i < ring.all_pieces; i += kThreads) mbarrier_init(ring.full(i), 1);
  fence_products();
  __syncthreads();
#pragma unroll 1
  for (int n = warp; n < plan.stages; n += kWarps) ring.copy(n, n);
  wait_for_previous();

  const int64_t padded = a.inner_x.codes.padded;
  Quantized codes = a.inner_x.codes;
  if (kQuantises) codes = {memory + plan.codes, reinterpret_cast<float*>(memory + plan.scales), padded};
  int piece = 0, slot = 0;
#pragma unroll 1
  for (int group = warp; group < all; group += kWarps) {
    const Tile tile = tiles[group];
    const int k = ring.inner(group), pitch = min(k, kPieceK), first_piece = ring.first_piece(group);
    if (kQuantises) quantize_rows(a, tile, entry_of, k, codes);
    // Columns past the last row of the group repeat it.
    const auto entry = [&](int column) { return entry_of[tile.first + min(column, tile.rows - 1)]; };
    const uint8_t* const row = codes.codes + entry(lane / 4) * padded + 32 * (lane % 4);
    const int32_t column = 2 * (lane % 4), entries[2] = {entry(column), entry(column + 1)};
    const float* const scales_of[2] = {codes.scales + entries[0] * (padded / kBlock),
                                       codes.scales + entries[1] * (padded / kBlock)};
    slot += first_piece - piece;
    piece = first_piece;
    float sums[4] = {};
#pragma unroll 1
    for (int block = 0; block < k / kBlock; block += kPieceBlocks) {
#pragma unroll 1
      for (; slot >= plan.stages; slot -= plan.stages) continue;
      const int blocks = min(kPieceBlocks, k / kBlock - block);
      const float* const scales_from[2] = {scales_of[0] + block, scales_of[1] + block};
      const Activations x(row + block * kBlock, scales_from, blocks);
      float scales[kPieceBlocks];
#pragma unroll
      for (int b = 0; b < kPieceBlocks; ++b) scales[b] = __ldg(tile.scales + block + min(b, blocks - 1));
      mbarrier_wait(ring.full(piece), 0);
#pragma unroll
      for (int b = 0; b < kPieceBlocks; ++b) {
        if (b >= blocks) break;
        multiply(ring.stage(slot) + b * kBlock, pitch, x.codes[b], scales[b], x.scales[b], sums);
      }
      __syncwarp();
      ring.copy(piece + plan.stages, slot);
      ++piece, ++slot;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i % 2 < tile.rows) y[entries[i % 2] * kOwned + lane / 4 + 8 * (i / 2)] = sums[i];
    }
  }
  __syncthreads();
  combine(a, shares, y);
}

// Shared memory behind the ring, laid out piece by piece.
struct Room {
  int64_t used = 0;
  int32_t take(int64_t bytes) {
    const int64_t at = used;
    used += (bytes + 15) / 16 * 16;
    return static_cast<int32_t>(at);
  }
  // What fits before it and `more` bytes.
  int32_t stages(int64_t more = 0) const {
    return static_cast<int32_t>((static_cast<int64_t>(kHalfShared) - used - more) / kStageBytes);
  }
};

// What a launch over so many rows notes of them.
Plan notes_of(const Work& work, int64_t rows, Room& room) {
  const int64_t chosen = rows * work.chosen;
  Plan plan{};
  plan.entries = static_cast<int32_t>(chosen + rows);
  plan.most_groups = static_cast<int32_t>(most_groups(rows, work.chosen));
  plan.most_pieces = static_cast<int32_t>(chosen * pieces_of(work.routed.inner) +
                                          (rows + 7) / 8 * pieces_of(work.shared_width.inner));
  plan.full = room.take(plan.most_pieces * int64_t{sizeof(uint64_t)});
  plan.tiles = room.take(plan.most_groups * int64_t{sizeof(Tile)});
  plan.shares = room.take(chosen * int64_t{sizeof(Share)});
  plan.entry_of = room.take(plan.entries * int64_t{sizeof(int32_t)});
  return plan;
}

}  // namespace

bool fits_down_few(const Work& work) {
  constexpr int32_t kLeastStages = 2;
  Room room;
  notes_of(work, kNarrowRows, room);
  return room.stages() >= kLeastStages;
}

void launch_down_few(cudaStream_t stream, Work work) {
  static const bool sized = (allow_shared(down_few_kernel<true>), allow_shared(down_few_kernel<false>), true);
  static_cast<void>(sized);
  Room room;
  Plan plan = notes_of(work, work.tokens, room);
  const auto padded = static_cast<int32_t>(work.inner_x.codes.padded);
  const bool quantises = work.tokens <= kQuantisedRows && plan.entries * padded <= int32_t{24 << 10};
  if (!quantises) {
    const View inner{work.inner.data, DType::f32, plan.entries, padded, work.inner.stride};
    quantize(stream, inner, work.inner_x.codes, nullptr);
  }
  if (quantises) {
    plan.codes = room.take(plan.entries * padded);
    plan.scales = room.take(plan.entries * (padded / kBlock) * int64_t{sizeof(float)});
  }
  // The sums lie in memory if they would leave the ring few stages.
  const int64_t sums = plan.entries * int64_t{kOwned * sizeof(float)};
  if (room.stages(sums) >= kFewestStages) {
    work.y = nullptr;
    plan.y = room.take(sums);
  }
  plan.stages = std::min(room.stages(), plan.most_pieces);
  const int32_t ring = plan.stages * kStageBytes;
  for (int32_t* at :
       {&plan.full, &plan.tiles, &plan.shares, &plan.entry_of, &plan.codes, &plan.scales, &plan.y})
    *at += ring;
  launch_dependent(stream, "experts", blocks_for(work.columns, kOwned), kThreads,
                   static_cast<size_t>(ring + room.used),
                   quantises ? down_few_kernel<true> : down_few_kernel<false>, work, plan);
}

}  // namespace godwit::sm90
