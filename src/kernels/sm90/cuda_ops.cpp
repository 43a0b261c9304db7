#include "kernels/sm90/cuda_ops.h"

#include <algorithm>
#include <cstdlib>

namespace godwit::sm90 {
namespace {

// Codes and scales of `rows` rows.
int64_t quantized_bytes(int64_t rows, int64_t columns) {
  const int64_t padded = padded_columns(columns);
  return rows * (padded + padded / kFp8Block * int64_t{sizeof(float)});
}

// The widest row in front of an FP8 product.
int64_t widest_input(const Dims& d) {
  return std::max({d.hidden, d.widest_inner, d.mla_heads * d.value, d.kda_heads * d.kda_key});
}

// The widest row in front of a prefill product, and behind one.
int64_t widest_operand(const Dims& d) {
  return std::max(widest_input(d), d.mla_heads * std::max(d.latent, d.nope));
}
int64_t widest_output(const Dims& d) {
  return std::max({d.hidden, 2 * d.widest_inner, d.experts, 3 * d.kda_heads * d.kda_key,
                   d.index_heads * d.index_dim, d.mla_heads * std::max({d.latent, d.nope, d.value})});
}

// Behind FP8 weights; gate and up lie side by side.
int64_t widest_result(const Dims& d) {
  return std::max({d.hidden, 2 * d.widest_inner, d.mla_heads * d.nope, d.index_heads * d.index_dim});
}

struct ScratchBytes {
  int64_t codes, inner, inner_codes, groups, choices, partial, attend, select, sample, operand, rest, result,
      chunks, normed_codes;
};
ScratchBytes scratch_bytes(const Dims& d, const StepLimits& limits, int multiprocessors) {
  const int64_t choices = limits.rows * (d.experts_topk + 1);  // the shared expert is one of a row's
  const int64_t inner = std::max(d.expert_inner, d.shared_inner);
  const int64_t decode_rows = std::min(limits.decode_rows, kRowsAtOnce);
  return {quantized_bytes(limits.rows, widest_input(d)),
          choices * ((inner + 3) / 4 * 4) * int64_t{sizeof(float)},
          quantized_bytes(choices, inner),
          kCounterBytes + std::max(group_bytes(limits.rows, d.experts_topk),
                                   place_bytes(limits.rows, d.experts_topk, d.experts)),
          choices * ((d.hidden + 31) / 32 * 32) * int64_t{sizeof(float)},
          boundary_bytes(std::min(limits.rows, kBoundaryRows), d.hidden),
          d.index_pool > 0 ? attend_bytes(decode_rows, d.mla_heads, d.latent, d.index_topk, d.index_pool) : 0,
          d.index_pool > 0
              ? std::max(select_bytes(decode_rows, limits.context / d.index_pool),
                         slice_select_bytes(limits.rows, d.index_topk / d.index_pool, multiprocessors))
              : 0,
          sample_bytes(limits.sampled_rows, d.vocab),
          dense_operand_bytes(limits.rows, widest_operand(d)),
          kDenseRows * widest_output(d) * int64_t{sizeof(float)},
          padded_rows(limits.rows) * widest_result(d) * size_of(DType::bf16),
          chunk_bytes(limits.rows, std::min(limits.rows, limits.sequences), d.kda_heads, d.kda_key),
          quantized_bytes(limits.rows, d.hidden)};
}

Result<void> refuse_above(const char* field, int64_t value, int64_t limit) {
  if (value <= limit) return {};
  return make_error(ErrorCode::data_refused, field, "{} {} is above the {} the CUDA backend supports", field,
                    value, limit);
}

}  // namespace

CudaOps::~CudaOps() {
  release_scratch();
}

void CudaOps::release_scratch() {
  for (Area* area : {&codes_, &inner_, &inner_codes_, &groups_, &choices_, &partial_, &attend_, &select_,
                     &sample_, &operand_, &rest_, &result_, &workspace_, &chunks_, &normed_codes_}) {
    if (area->base) memory_.release(area->base);
    *area = {};
  }
}

std::vector<kernels::ScratchEntry> CudaOps::scratch(const Dims& dims, const StepLimits& limits) const {
  const ScratchBytes s = scratch_bytes(dims, limits, device_.multiprocessors());
  return {{"linear", s.codes + s.operand + s.rest + s.result + kDenseWorkspace},
          {"experts", s.inner + s.inner_codes + s.groups + s.choices},
          {"kda_chunk", s.chunks},
          {"mhc_boundary", s.partial + s.normed_codes},
          {"mla_attend", s.attend},
          {"index_select", s.select},
          {"sample", s.sample}};
}

Result<void> CudaOps::prepare(const Dims& dims, const StepLimits& limits) {
  if (dims.index_pool > 0 &&
      (kernels::kPageTokens % dims.index_pool != 0 || dims.index_topk % dims.index_pool != 0))
    return make_error(ErrorCode::data_refused, "index_kpool",
                      "index_kpool {} must divide the page of {} tokens and index_topk {}", dims.index_pool,
                      kernels::kPageTokens, dims.index_topk);
  const int64_t pools = dims.index_pool > 0 ? dims.index_topk / dims.index_pool : 0;
  GODWIT_TRY(refuse_above("hc_mult", dims.streams, kMaxStreams));
  GODWIT_TRY(refuse_above("linear_head_dim", dims.kda_key, kMaxKdaHead));
  GODWIT_TRY(refuse_above("linear_conv_kernel_dim", dims.conv_taps, kMaxConvTaps));
  GODWIT_TRY(refuse_above("index_topk", dims.index_topk, kMaxSelectedTokens));
  GODWIT_TRY(refuse_above("index_topk / index_kpool", pools, kMaxSelectedPools));
  GODWIT_TRY(refuse_above("index_n_heads * index_head_dim", (dims.index_heads + 7) / 8 * 8 * dims.index_dim,
                          kMaxIndexQuery));
  GODWIT_TRY(refuse_above("n_routed_experts", dims.experts, kMaxExperts));
  GODWIT_TRY(refuse_above("num_experts_per_tok", dims.experts_topk, dims.experts));
  device_.bind();
  if (!dense_) {
    GODWIT_ASSIGN(dense_, open_dense_library());
  }
  release_scratch();
  dims_ = dims;
  const ScratchBytes s = scratch_bytes(dims, limits, device_.multiprocessors());
  const auto area = [&](int64_t bytes) {
    return Area{static_cast<std::byte*>(memory_.allocate(bytes)), bytes};
  };
  codes_ = area(s.codes);
  inner_ = area(s.inner);
  inner_codes_ = area(s.inner_codes);
  groups_ = area(s.groups);
  memory_.zero(groups_.base, s.groups);
  choices_ = area(s.choices);
  partial_ = area(s.partial);
  attend_ = area(s.attend);
  select_ = area(s.select);
  sample_ = area(s.sample);
  normed_codes_ = area(s.normed_codes);
  ready_ = {};
  memory_.zero(sample_.base, s.sample);
  operand_ = area(s.operand);
  rest_ = area(s.rest);
  result_ = area(s.result);
  workspace_ = area(kDenseWorkspace);
  chunks_ = area(s.chunks);
  dense_columns_ = widest_operand(dims);
  dense_results_ = widest_result(dims);
  context_ = limits.context;
  most_drawn_ = limits.sampled_rows;
  decode_rows_at_once_ = std::min(limits.decode_rows, kRowsAtOnce);
  return {};
}

// Small models keep f32, and with it what the reference implementation gives to 1e-5.
DType CudaOps::activations(const Dims& dims) const {
  constexpr int64_t kWide = 1024;
  const bool whole = dims.hidden % kFp8Block == 0 && dims.kda_heads * dims.kda_key % kFp8Block == 0;
  return whole && dims.hidden >= kWide ? DType::bf16 : DType::f32;
}

Quantized CudaOps::codes_in(const Area& area, int64_t rows, int64_t columns) const {
  GODWIT_ASSERT(quantized_bytes(rows, columns) <= area.bytes);
  const int64_t padded = padded_columns(columns);
  void* scales = area.base + rows * padded;
  return {reinterpret_cast<uint8_t*>(area.base), static_cast<float*>(scales), padded};
}

void CudaOps::kda_chunk(const StepView& step, const kernels::KdaChunk& a) {
  const int64_t sequences = step.sequences - step.decode_sequences;
  if (!fits_chunk(a)) {
    return sm90::kda_recur(device_.stream(), step, {a.qkv, a.gates, a.state, a.out}, step.decode_sequences,
                           static_cast<int32_t>(sequences));
  }
  GODWIT_ASSERT(chunk_bytes(step.rows - step.decode_rows, sequences, a.gates.beta.cols, dims_.kda_key) <=
                chunks_.bytes);
  sm90::kda_chunk(device_.stream(), step, a, chunks_.base);
}

void CudaOps::kda_step(const StepView& step, const kernels::KdaStep& a) {
  sm90::kda_recur(device_.stream(), step, a, 0, step.decode_sequences);
}

void CudaOps::route(const kernels::Route& a) {
  const int64_t rows = a.x.rows, first = std::clamp<int64_t>(a.decode_rows, 0, rows);
  const auto part = [&a](int64_t begin, int64_t count) {
    kernels::Route r = a;
    for (View* v : {&r.x, &r.logits, &r.ids, &r.weights}) *v = v->row_range(begin, count);
    return r;
  };
  const kernels::Route decode = part(0, first), prefill = part(first, rows - first);
  if (first > 0 && fits_router(decode)) {
    sm90::route(device_.stream(), decode, device_.multiprocessors());
  } else if (first > 0) {
    linear({decode.x, a.w, decode.logits});
    sm90::choose(device_.stream(), decode);
  }
  if (first == rows) return;
  linear({prefill.x, a.w, prefill.logits, 0});
  sm90::choose(device_.stream(), prefill);
}

// The rest is one launch function each.
void CudaOps::embed(const StepView& step, const kernels::Embed& a) {
  forget_codes(a.out);
  sm90::embed(device_.stream(), step, a);
}
void CudaOps::rms_norm(const kernels::RmsNorm& a) {
  forget_codes(a.out);
  sm90::rms_norm(device_.stream(), a);
}
void CudaOps::layer_norm(const kernels::LayerNorm& a) {
  forget_codes(a.out);
  sm90::layer_norm(device_.stream(), a);
}
void CudaOps::swiglu(const kernels::SwiGlu& a) {
  forget_codes(a.out);
  sm90::swiglu(device_.stream(), a);
}
void CudaOps::add(const kernels::Add& a) {
  forget_codes(a.out);
  sm90::add(device_.stream(), a);
}
void CudaOps::gather_rows(const kernels::GatherRows& a) {
  forget_codes(a.out);
  sm90::gather_rows(device_.stream(), a);
}
void CudaOps::mhc_broadcast(const kernels::MhcBroadcast& a) {
  sm90::mhc_broadcast(device_.stream(), a);
}
void CudaOps::mhc_expand(const kernels::MhcExpand& a) {
  sm90::mhc_expand(device_.stream(), a);
}
void CudaOps::mhc_mean(const kernels::MhcMean& a) {
  forget_codes(a.out);
  sm90::mhc_mean(device_.stream(), a);
}
void CudaOps::kda_replay(const StepView& step, const kernels::KdaReplay& a) {
  sm90::kda_replay(device_.stream(), step, a, 0);
}
void CudaOps::kda_conv(const StepView& step, const kernels::KdaConv& a) {
  sm90::kda_conv(device_.stream(), step, a);
}
void CudaOps::gated_norm(const kernels::GatedNorm& a) {
  forget_codes(a.out);
  sm90::gated_norm(device_.stream(), a);
}
void CudaOps::latent_write(const StepView& step, const kernels::LatentWrite& a) {
  sm90::latent_write(device_.stream(), step, a);
}
void CudaOps::index_write(const StepView& step, const kernels::IndexWrite& a) {
  sm90::index_write(device_.stream(), step, a);
}
void CudaOps::index_select(const StepView& step, const kernels::IndexSelect& a) {
  const int64_t pools = context_ / a.pool;
  if (!fits_split_select(a, pools)) return sm90::index_select(device_.stream(), step, a);
  if (step.decode_rows > 0) {
    GODWIT_ASSERT(decode_rows_at_once_ > 0 && select_bytes(decode_rows_at_once_, pools) <= select_.bytes);
    split_select(device_.stream(), step, a, select_.base, decode_rows_at_once_, pools);
  }
  if (step.decode_rows == step.rows) return;
  GODWIT_ASSERT(slice_select_bytes(step.rows - step.decode_rows, a.topk / a.pool,
                                   device_.multiprocessors()) <= select_.bytes);
  slice_select(device_.stream(), step, a, select_.base, device_.multiprocessors());
}
void CudaOps::index_reuse(const StepView& step, const kernels::IndexReuse& a) {
  sm90::index_reuse(device_.stream(), step, a);
}
void CudaOps::mla_attend(const StepView& step, const kernels::MlaAttend& a) {
  if (!fits_split_attend(a)) return sm90::mla_attend(device_.stream(), step, a);
  if (step.decode_rows > 0) {
    GODWIT_ASSERT(decode_rows_at_once_ > 0 &&
                  attend_bytes(decode_rows_at_once_, a.heads, a.query.cols / a.heads, a.pools.cols * a.pool,
                               a.pool) <= attend_.bytes);
    split_attend(device_.stream(), step, a, attend_.base, decode_rows_at_once_);
  }
  slice_attend(device_.stream(), step, a);
}
void CudaOps::history_start(const kernels::HistoryStart& a) {
  sm90::history_start(device_.stream(), a);
}
void CudaOps::sample(const kernels::Sample& a) {
  GODWIT_ASSERT(sample_bytes(a.logits.rows, a.logits.cols) <= sample_.bytes && a.logits.rows <= most_drawn_);
  sm90::sample(device_.stream(), a, sample_.base, most_drawn_);
}

int device_count() {
  // Every kernel is loaded when the device is opened, not at its first launch (design §1).
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<std::unique_ptr<kernels::Ops>> make_cuda_ops(int device) {
  const int count = device_count();
  if (device < 0 || device >= count)
    return make_error(ErrorCode::device, "--device", "CUDA device {} is not there; this machine has {}",
                      device, count);
  return std::unique_ptr<kernels::Ops>(std::make_unique<CudaOps>(device));
}

}  // namespace godwit::sm90
