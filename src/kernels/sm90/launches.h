// The launch functions: each picks an instance and puts its kernels on the stream. Arguments are those of
// kernels/ops/*.h; all pointers are device memory; activations are f32, but for inputs of products, which may
// be bf16 (x of linear, route, experts; out of rms_norm, gated_norm, mhc_boundary, kda_mix). Bounds named
// here are checked by CudaOps::prepare.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/ops/dense.h"
#include "kernels/ops/dsa.h"
#include "kernels/ops/head.h"
#include "kernels/ops/kda.h"
#include "kernels/ops/mhc.h"
#include "kernels/ops/moe.h"

namespace godwit::sm90 {

using kernels::StepView;

// Activations as e4m3 codes: what an FP8 product reads (kernels spec §2.3).
struct Quantized {
  uint8_t* codes = nullptr;  // [rows, padded]
  float* scales = nullptr;   // [rows, padded / 128]
  int64_t padded = 0;        // columns rounded up to whole groups of 128; the rest is zero codes

  // Those of rows `first` on.
  Quantized rows_from(int64_t first) const {
    return codes ? Quantized{codes + first * padded, scales + first * (padded / kFp8Block), padded} : *this;
  }
};
constexpr int64_t padded_columns(int64_t columns) {
  return (columns + kFp8Block - 1) / kFp8Block * kFp8Block;
}

// x [rows, columns] f32 or bf16 -> codes and scales. `only_if_fp8`: a weight in device memory; nothing is
// done when it is not f8_e4m3 (the types of experts are known to the device only).
void quantize(cudaStream_t stream, const View& x, const Quantized& to, const Weight* only_if_fp8);

// linear (heads = 1) and head_linear. `x_codes` holds x when the weights are f8_e4m3.
void linear(cudaStream_t stream, const View& x, const Quantized& x_codes, const Weight& w, int64_t heads,
            const View& out);

// The decode form of linear and head_linear for rows of weights that are whole blocks of 128 bytes: up to
// kMostProducts products of equally many rows in one launch. A shape always takes the same form, whatever its
// number of rows.
struct Product {
  View x;
  Quantized codes;  // of x, when the weights are f8_e4m3
  Weight w;
  int64_t heads = 1;
  View out;
};
constexpr int kMostProducts = 8;
bool fits_skinny(const Product& p);
void skinny_linear(cudaStream_t stream, const Product* products, int count, int multiprocessors);

void embed(cudaStream_t stream, const StepView& step, const kernels::Embed& a);
void rms_norm(cudaStream_t stream, const kernels::RmsNorm& a);
void layer_norm(cudaStream_t stream, const kernels::LayerNorm& a);
void gated_norm(cudaStream_t stream, const kernels::GatedNorm& a);
void swiglu(cudaStream_t stream, const kernels::SwiGlu& a);
void add(cudaStream_t stream, const kernels::Add& a);
void gather_rows(cudaStream_t stream, const kernels::GatherRows& a);

constexpr int64_t kMaxStreams = 8;  // mHC streams a thread keeps in registers
void mhc_broadcast(cudaStream_t stream, const kernels::MhcBroadcast& a);
void mhc_collapse(cudaStream_t stream, const kernels::MhcCollapse& a);
void mhc_expand(cudaStream_t stream, const kernels::MhcExpand& a);
// Four streams, a width of whole 128s and a bf16 mapping: expand of one site (or null), then mapping and
// collapse of the next, then its norm (or null) and the codes of that (or null); either x or its normed rows
// are written. `partial` holds boundary_bytes(), of no more rows than take part at once.
constexpr int64_t kBoundaryRows = 256;
bool fits_boundary(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const View& normed);
int64_t boundary_bytes(int64_t rows, int64_t width);
void mhc_boundary(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                  const float* norm, const View& normed, const Quantized* codes, float* partial);
// The form of prompt rows.
void mhc_boundary_slice(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                        const float* norm, const View& normed);
void mhc_mean(cudaStream_t stream, const kernels::MhcMean& a);

constexpr int64_t kMaxKdaHead = 256;  // d: a tile of the state lies in shared memory
constexpr int64_t kMaxConvTaps = 8;   // a thread keeps the window of its channel
void kda_conv(cudaStream_t stream, const StepView& step, const kernels::KdaConv& a);
// Rows of the prefill family only.
void kda_conv_prefill(cudaStream_t stream, const StepView& step, const kernels::KdaConv& a);
// What kda_conv_prefill does to the windows, alone.
void kda_window(cudaStream_t stream, const StepView& step, const kernels::KdaConv& a);
// Sequences from `first` on.
void kda_replay(cudaStream_t stream, const StepView& step, const kernels::KdaReplay& a, int32_t first);
// The recurrence over sequences [first, first + count) of the step.
void kda_recur(cudaStream_t stream, const StepView& step, const kernels::KdaStep& a, int32_t first,
               int32_t count);
// kda_mix of the decode-family rows, replays of their sequences included, for heads of 128 and four taps.
bool fits_kda_mix(const kernels::KdaMix& a);
void kda_mix(cudaStream_t stream, const StepView& step, const kernels::KdaMix& a, int multiprocessors);

// The chunk form, for heads of 128; `scratch` holds chunk_bytes() of the prefill rows.
bool fits_chunk(const kernels::KdaChunk& a);
int64_t chunk_bytes(int64_t rows, int64_t sequences, int64_t heads, int64_t dim);
void kda_chunk(cudaStream_t stream, const StepView& step, const kernels::KdaChunk& a, void* scratch);
// kda_mix of the prefill rows but for their replays, where fits_kda_mix() and fits_chunk() hold.
void kda_mix_prefill(cudaStream_t stream, const StepView& step, const kernels::KdaMix& a, void* scratch);

void latent_write(cudaStream_t stream, const StepView& step, const kernels::LatentWrite& a);
void index_write(cudaStream_t stream, const StepView& step, const kernels::IndexWrite& a);
// What lies between a DSA layer's products of x and those of the query latent: the norms of both latents and
// of the index key, and the writes of the caches. The normed latent is not written back.
bool fits_dsa_front(const kernels::DsaProject& a);
void dsa_front(cudaStream_t stream, const StepView& step, const kernels::DsaProject& a);
constexpr int64_t kMaxSelectedPools = 2048;   // topk / P: candidates are sorted in shared memory
constexpr int64_t kMaxIndexQuery = 16384;     // (Hi rounded up to 8) * di: a row's queries, there too
constexpr int64_t kMaxSelectedTokens = 8192;  // topk: a row's attention scores, there too
void index_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a);
void index_reuse(cudaStream_t stream, const StepView& step, const kernels::IndexReuse& a);
void mla_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a);

// Forms for bf16 and fp8 caches; scratch as priced below, for `rows` rows at once, more rows take turns.
constexpr int64_t kRowsAtOnce = 64;
bool fits_split_attend(const kernels::MlaAttend& a);
int64_t attend_bytes(int64_t rows, int64_t heads, int64_t width, int64_t topk, int64_t pool);
// Rows of the decode family only.
void split_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a, void* scratch,
                  int64_t rows);
// Rows of the prefill family, wherever split_attend fits.
void slice_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a);
bool fits_split_select(const kernels::IndexSelect& a, int64_t most_pools);
int64_t select_bytes(int64_t rows, int64_t most_pools);
// Rows of the decode family only.
void split_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, void* scratch,
                  int64_t rows, int64_t most_pools);
// Rows of the prefill family, wherever split_select fits; `keep` = topk / P.
int64_t slice_select_bytes(int64_t rows, int64_t keep, int multiprocessors);
void slice_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, void* scratch,
                  int multiprocessors);

constexpr int64_t kMaxExperts = 4096;
// Logits and choice for bf16 weights of up to 4,096 columns; and the choice alone, from a.logits.
bool fits_router(const kernels::Route& a);
void route(cudaStream_t stream, const kernels::Route& a, int multiprocessors);
void choose(cudaStream_t stream, const kernels::Route& a);
struct ExpertScratch {
  float* inner = nullptr;    // [T k, inner_stride]
  int64_t inner_stride = 0;  // floats
  int64_t inner_width = 0;   // at least I of every expert
  Quantized x, inner_codes;
};
void experts(cudaStream_t stream, const kernels::Experts& a, const ExpertScratch& scratch);

// The decode form, for experts whose rows are whole blocks of 128 bytes: `shared` is computed along when
// given, and out = routed + shared.
struct GroupedScratch {
  void* groups = nullptr;    // group_bytes(), 16-byte aligned
  int32_t* ended = nullptr;  // a counter of route_to_groups(); 0 at first
  Quantized x, inner_codes;
  float* inner = nullptr;    // [T (k + 1), inner_stride]
  int64_t inner_stride = 0;  // floats, a multiple of 4
  int64_t inner_width = 0;   // I of the routed experts
  float* y = nullptr;        // [T (k + 1), D], D rounded up to 32
};
int64_t group_bytes(int64_t rows, int64_t chosen);
bool fits_grouped(const kernels::Experts& a, int64_t inner);
// route(), the groups of grouped_experts() and the codes of x; of few rows in one launch. False: nothing
// done.
bool route_to_groups(cudaStream_t stream, const kernels::Route& a, const kernels::Experts& experts,
                     const kernels::Ffn* shared, const GroupedScratch& scratch, int multiprocessors);
void grouped_experts(cudaStream_t stream, const kernels::Experts& a, const kernels::Ffn* shared,
                     bool is_grouped, const View& out, const GroupedScratch& scratch, int multiprocessors);

// The prefill form, for e4m3 experts whose sides are whole blocks: out = routed + `shared` when given.
struct SliceScratch {
  void* places = nullptr;    // place_bytes(), 128-byte aligned
  Quantized x, inner_codes;  // [T k]; scales are [columns / 128, T k] here
  float* y = nullptr;        // [T k, D]
};
int64_t place_bytes(int64_t rows, int64_t chosen, int64_t experts);
bool fits_slice(const kernels::Experts& a);
void slice_experts(cudaStream_t stream, const kernels::Experts& a, const View* shared, const View& out,
                   const SliceScratch& scratch, int multiprocessors);

void history_start(cudaStream_t stream, const kernels::HistoryStart& a);
// `scratch` holds sample_bytes() of `most_rows`, zero before the first draw.
int64_t sample_bytes(int64_t most_rows, int64_t vocab);
void sample(cudaStream_t stream, const kernels::Sample& a, std::byte* scratch, int64_t most_rows);

}  // namespace godwit::sm90
