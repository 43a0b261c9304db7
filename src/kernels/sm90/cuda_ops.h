// The CUDA backend. Every op has one plain form for any shape; f32 or bf16 activations, weights f32 | bf16 |
// f8_e4m3 blocks, caches of every format. See README.md.
#pragma once

#include <memory>
#include <span>

#include "kernels/ops.h"
#include "kernels/sm90/dense/library.h"
#include "kernels/sm90/dense/operands.h"
#include "kernels/sm90/launches.h"
#include "kernels/sm90/memory.h"

namespace godwit::sm90 {

using kernels::Dims;
using kernels::StepLimits;

// In front of the groups: the counter of route_to_groups().
constexpr int64_t kCounterBytes = 256;

inline bool same_rows(const View& a, const View& b) {
  return a.data == b.data && a.rows == b.rows && a.stride == b.stride && a.cols == b.cols;
}
// Rows [first, first + count), all of one family.
kernels::Ffn part_of(kernels::Ffn a, int64_t first, int64_t count);
// Scratch for the operands of a prefill product of so many rows and columns.
int64_t dense_operand_bytes(int64_t rows, int64_t columns);

class CudaOps final : public kernels::Ops {
 public:
  explicit CudaOps(int device) : device_(device), memory_(device_) {}
  ~CudaOps() override;

  std::string_view name() const override { return "cuda"; }
  kernels::Memory& memory() override { return memory_; }
  std::vector<kernels::ScratchEntry> scratch(const Dims& dims, const StepLimits& limits) const override;
  Result<void> prepare(const Dims& dims, const StepLimits& limits) override;
  DType activations(const Dims& dims) const override;
  std::unique_ptr<kernels::Recording> record(const std::function<void()>& issue) override;

  void embed(const StepView& step, const kernels::Embed& a) override;
  void rms_norm(const kernels::RmsNorm& a) override;
  void layer_norm(const kernels::LayerNorm& a) override;
  void linear(const kernels::Linear& a) override;
  void linears(std::span<const kernels::Linear> all) override;
  void head_linear(const kernels::HeadLinear& a) override;
  void swiglu(const kernels::SwiGlu& a) override;
  void add(const kernels::Add& a) override;
  void gather_rows(const kernels::GatherRows& a) override;

  void mhc_broadcast(const kernels::MhcBroadcast& a) override;
  void mhc_collapse(const kernels::MhcCollapse& a) override;
  void mhc_expand(const kernels::MhcExpand& a) override;
  void mhc_mean(const kernels::MhcMean& a) override;
  void mhc_boundary(const kernels::MhcBoundary& a) override;

  void kda_replay(const StepView& step, const kernels::KdaReplay& a) override;
  void kda_conv(const StepView& step, const kernels::KdaConv& a) override;
  void kda_chunk(const StepView& step, const kernels::KdaChunk& a) override;
  void kda_step(const StepView& step, const kernels::KdaStep& a) override;
  void gated_norm(const kernels::GatedNorm& a) override;
  void kda_mix(const StepView& step, const kernels::KdaMix& a) override;

  void latent_write(const StepView& step, const kernels::LatentWrite& a) override;
  void index_write(const StepView& step, const kernels::IndexWrite& a) override;
  void index_select(const StepView& step, const kernels::IndexSelect& a) override;
  void index_reuse(const StepView& step, const kernels::IndexReuse& a) override;
  void mla_attend(const StepView& step, const kernels::MlaAttend& a) override;

  void route(const kernels::Route& a) override;
  void experts(const kernels::Experts& a) override;

  void dsa_project(const StepView& step, const kernels::DsaProject& a) override;
  void ffn(const kernels::Ffn& a) override;
  void moe(const kernels::Moe& a) override;

  void lm_head(const kernels::Linear& a) override { linear(a); }
  void history_start(const kernels::HistoryStart& a) override;
  void sample(const kernels::Sample& a) override;

 private:
  // Scratch: the codes of the activations in front of FP8 weights; of experts, their groups, what they keep
  // between their products, and what each choice of a row gives.
  struct Area {
    std::byte* base = nullptr;
    int64_t bytes = 0;
  };
  Quantized codes_in(const Area& area, int64_t rows, int64_t columns) const;
  GroupedScratch grouped_scratch(const kernels::Experts& a, int64_t shared_inner) const;
  SliceScratch slice_scratch(const kernels::Experts& a) const;
  float* partial(const kernels::MhcCollapse& a) const;
  // The codes of rows that mhc_boundary has normalised and quantised, or null. They are forgotten when the
  // rows are written again, by an op or from outside.
  const Quantized* ready_codes(const View& x) const;
  void forget_codes(const View& written);
  // Products of equally many rows, as few launches as they allow.
  void multiply(std::span<const Product> products);
  // Products by family: the first `decode_rows` rows of each, and prefill's.
  struct Families;
  void sort_rows(const Product& p, int64_t decode_rows, Families& to);
  void multiply(const Families& f);
  void boundary(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const float* norm,
                const View& normed, bool feeds_fp8);
  // Experts of rows that take the decode form, and those with the shared expert.
  void decode_experts(const kernels::Experts& a);
  void decode_moe(const kernels::Moe& a);
  // Prefill rows by the library (prefill.cpp).
  bool fits_dense(const Product& p);
  void multiply_dense(std::span<const Product> products);
  void multiply_halves(const Product& p, bool fresh);
  void multiply_codes(const Product& p, const DenseCodes& codes, std::byte* y);
  // The FFN of FP8 weights whose sides the library takes; `result` [rows, D] bf16 lies in the scratch, a.out
  // is left alone. False: nothing done.
  bool dense_ffn(const kernels::Ffn& a, View* result);
  void release_scratch();

  Device device_;
  DeviceMemory memory_;
  Dims dims_;
  struct {
    View rows;
    Quantized codes;
    int64_t writes = 0;  // of memory_, when they were made
  } ready_;
  int64_t context_ = 0, decode_rows_at_once_ = 0, most_drawn_ = 0;
  std::unique_ptr<DenseLibrary> dense_;
  int64_t dense_columns_ = 0, dense_results_ = 0;  // that an operand may have, and an FP8 result
  Area codes_, inner_, inner_codes_, groups_, choices_, partial_, attend_, select_, sample_;
  Area normed_codes_;
  Area chunks_;
  Area operand_, rest_, result_, workspace_;  // of prefill products; rest_: rows of no whole multiple
};

// How many devices there are; 0 without a driver.
int device_count();
// The process ends when a CUDA call fails after this (design §6).
Result<std::unique_ptr<kernels::Ops>> make_cuda_ops(int device);

}  // namespace godwit::sm90
