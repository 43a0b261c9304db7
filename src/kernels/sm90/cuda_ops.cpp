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

struct ScratchBytes {
  int64_t codes, inner, inner_codes;
};
ScratchBytes scratch_bytes(const Dims& d, const StepLimits& limits) {
  const int64_t assignments = limits.rows * d.experts_topk;
  return {quantized_bytes(limits.rows, widest_input(d)),
          assignments * ((d.expert_inner + 3) / 4 * 4) * int64_t{sizeof(float)},
          quantized_bytes(assignments, d.expert_inner)};
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
  for (Area* area : {&codes_, &inner_, &inner_codes_}) {
    if (area->base) memory_.release(area->base);
    *area = {};
  }
}

std::vector<kernels::ScratchEntry> CudaOps::scratch(const Dims& dims, const StepLimits& limits) const {
  const ScratchBytes s = scratch_bytes(dims, limits);
  return {{"linear", s.codes}, {"experts", s.inner + s.inner_codes}};
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
  GODWIT_TRY(refuse_above("index_topk", dims.index_topk, kMaxSelectedTokens));
  GODWIT_TRY(refuse_above("index_topk / index_kpool", pools, kMaxSelectedPools));
  GODWIT_TRY(refuse_above("index_n_heads * index_head_dim", (dims.index_heads + 7) / 8 * 8 * dims.index_dim,
                          kMaxIndexQuery));
  GODWIT_TRY(refuse_above("n_routed_experts", dims.experts, kMaxExperts));
  GODWIT_TRY(refuse_above("num_experts_per_tok", dims.experts_topk, dims.experts));
  release_scratch();
  dims_ = dims;
  const ScratchBytes s = scratch_bytes(dims, limits);
  const auto area = [&](int64_t bytes) {
    return Area{static_cast<std::byte*>(memory_.allocate(bytes)), bytes};
  };
  codes_ = area(s.codes);
  inner_ = area(s.inner);
  inner_codes_ = area(s.inner_codes);
  return {};
}

Quantized CudaOps::codes_in(const Area& area, int64_t rows, int64_t columns) const {
  GODWIT_ASSERT(quantized_bytes(rows, columns) <= area.bytes);
  const int64_t padded = padded_columns(columns);
  void* scales = area.base + rows * padded;
  return {reinterpret_cast<uint8_t*>(area.base), static_cast<float*>(scales), padded};
}

void CudaOps::linear(const kernels::Linear& a) {
  GODWIT_ASSERT(a.x.dtype == DType::f32 && a.out.dtype == DType::f32);
  Quantized codes;
  if (a.w.data.dtype == DType::f8_e4m3) {
    codes = codes_in(codes_, a.x.rows, a.x.cols);
    quantize(device_.stream(), a.x, codes, nullptr);
  }
  sm90::linear(device_.stream(), a.x, codes, a.w, 1, a.out);
}

void CudaOps::head_linear(const kernels::HeadLinear& a) {
  GODWIT_ASSERT(a.w.dtype != DType::f8_e4m3);
  sm90::linear(device_.stream(), a.x, {}, Weight{a.w}, a.heads, a.out);
}

void CudaOps::kda_chunk(const StepView& step, const kernels::KdaChunk& a) {
  sm90::kda_recur(device_.stream(), step, {a.qkv, a.gates, a.state, a.out}, step.decode_sequences,
                  step.sequences - step.decode_sequences);
}

void CudaOps::kda_step(const StepView& step, const kernels::KdaStep& a) {
  sm90::kda_recur(device_.stream(), step, a, 0, step.decode_sequences);
}

void CudaOps::route(const kernels::Route& a) {
  linear({a.x, a.w, a.logits});
  sm90::route(device_.stream(), a);
}

void CudaOps::experts(const kernels::Experts& a) {
  // The table of experts lies on the device, their inner width is known from prepare(); narrower ones are
  // padded with zeros.
  const int64_t inner = dims_.expert_inner;
  const int64_t assignments = a.x.rows * a.ids.cols;
  ExpertScratch s;
  s.inner = reinterpret_cast<float*>(inner_.base);
  s.inner_width = inner;
  s.inner_stride = (inner + 3) / 4 * 4;
  GODWIT_ASSERT(assignments * s.inner_stride * int64_t{sizeof(float)} <= inner_.bytes);
  s.x = codes_in(codes_, a.x.rows, a.x.cols);
  s.inner_codes = codes_in(inner_codes_, assignments, inner);
  sm90::experts(device_.stream(), a, s);
}

// The rest is one launch function each.
void CudaOps::embed(const StepView& step, const kernels::Embed& a) {
  sm90::embed(device_.stream(), step, a);
}
void CudaOps::rms_norm(const kernels::RmsNorm& a) {
  sm90::rms_norm(device_.stream(), a);
}
void CudaOps::layer_norm(const kernels::LayerNorm& a) {
  sm90::layer_norm(device_.stream(), a);
}
void CudaOps::swiglu(const kernels::SwiGlu& a) {
  sm90::swiglu(device_.stream(), a);
}
void CudaOps::add(const kernels::Add& a) {
  sm90::add(device_.stream(), a);
}
void CudaOps::gather_rows(const kernels::GatherRows& a) {
  sm90::gather_rows(device_.stream(), a);
}
void CudaOps::mhc_broadcast(const kernels::MhcBroadcast& a) {
  sm90::mhc_broadcast(device_.stream(), a);
}
void CudaOps::mhc_collapse(const kernels::MhcCollapse& a) {
  sm90::mhc_collapse(device_.stream(), a);
}
void CudaOps::mhc_expand(const kernels::MhcExpand& a) {
  sm90::mhc_expand(device_.stream(), a);
}
void CudaOps::mhc_mean(const kernels::MhcMean& a) {
  sm90::mhc_mean(device_.stream(), a);
}
void CudaOps::kda_replay(const StepView& step, const kernels::KdaReplay& a) {
  sm90::kda_replay(device_.stream(), step, a);
}
void CudaOps::kda_conv(const StepView& step, const kernels::KdaConv& a) {
  sm90::kda_conv(device_.stream(), step, a);
}
void CudaOps::gated_norm(const kernels::GatedNorm& a) {
  sm90::gated_norm(device_.stream(), a);
}
void CudaOps::latent_write(const StepView& step, const kernels::LatentWrite& a) {
  sm90::latent_write(device_.stream(), step, a);
}
void CudaOps::index_write(const StepView& step, const kernels::IndexWrite& a) {
  sm90::index_write(device_.stream(), step, a);
}
void CudaOps::index_select(const StepView& step, const kernels::IndexSelect& a) {
  sm90::index_select(device_.stream(), step, a);
}
void CudaOps::mla_attend(const StepView& step, const kernels::MlaAttend& a) {
  sm90::mla_attend(device_.stream(), step, a);
}
void CudaOps::history_start(const kernels::HistoryStart& a) {
  sm90::history_start(device_.stream(), a);
}
void CudaOps::sample(const kernels::Sample& a) {
  sm90::sample(device_.stream(), a);
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
