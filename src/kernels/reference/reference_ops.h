// The reference backend: every op as its definition reads, plain loops in double, rounded to the output's
// type once. One thread; it allocates as it likes. The oracle of tests/ops, never of a server.
#pragma once

#include "kernels/ops.h"

namespace godwit::kernels::reference {

class ReferenceOps final : public Ops {
 public:
  ReferenceOps();

  std::string_view name() const override { return "reference"; }
  Memory& memory() override { return *memory_; }
  std::vector<ScratchEntry> scratch(const Dims&, const StepLimits&) const override { return {}; }
  Result<void> prepare(const Dims& dims, const StepLimits& limits) override;

  void embed(const StepView& step, const Embed& a) override;
  void rms_norm(const RmsNorm& a) override;
  void layer_norm(const LayerNorm& a) override;
  void linear(const Linear& a) override;
  void head_linear(const HeadLinear& a) override;
  void swiglu(const SwiGlu& a) override;
  void add(const Add& a) override;
  void gather_rows(const GatherRows& a) override;

  void mhc_broadcast(const MhcBroadcast& a) override;
  void mhc_collapse(const MhcCollapse& a) override;
  void mhc_expand(const MhcExpand& a) override;
  void mhc_mean(const MhcMean& a) override;

  void kda_replay(const StepView& step, const KdaReplay& a) override;
  void kda_conv(const StepView& step, const KdaConv& a) override;
  void kda_chunk(const StepView& step, const KdaChunk& a) override;
  void kda_step(const StepView& step, const KdaStep& a) override;
  void gated_norm(const GatedNorm& a) override;

  void latent_write(const StepView& step, const LatentWrite& a) override;
  void index_write(const StepView& step, const IndexWrite& a) override;
  void index_select(const StepView& step, const IndexSelect& a) override;
  void index_reuse(const StepView& step, const IndexReuse& a) override;
  void mla_attend(const StepView& step, const MlaAttend& a) override;

  void route(const Route& a) override;
  void experts(const Experts& a) override;

  void lm_head(const Linear& a) override { linear(a); }
  void history_start(const HistoryStart& a) override;
  void sample(const Sample& a) override;

 private:
  std::unique_ptr<Memory> memory_;
};

}  // namespace godwit::kernels::reference
