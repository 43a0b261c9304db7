// The CPU filling of the table of ops. Each op's method lives with its kernels, in the file named after its
// idea; this class holds what they share: the pool, the scratch and the sizes.
#pragma once

#include <algorithm>
#include <functional>

#include "base/fault.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace godwit::cpu {

using kernels::Dims;
using kernels::StepLimits;
using kernels::StepView;

class HostMemory : public kernels::Memory {
 public:
  void* allocate(int64_t bytes) override;
  void release(void* p) override;
  void upload(void* to, const void* from_host, int64_t bytes) override;
  void download(void* to_host, const void* from, int64_t bytes) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void zero(void* p, int64_t bytes) override;
  bool host_addressable() const override { return true; }
};

// Floats each op needs, per thread or once. Pure functions of the sizes; beside the op that uses them.
int64_t mhc_thread_floats(const Dims& dims);
int64_t kda_chunk_thread_floats(const Dims& dims);
int64_t kda_step_thread_floats(const Dims& dims);
int64_t index_select_thread_floats(const Dims& dims);
int64_t index_select_shared_floats();
int64_t mla_thread_floats(const Dims& dims);
int64_t experts_thread_floats(const Dims& dims);
int64_t experts_shared_floats(const Dims& dims, const StepLimits& limits);
int64_t sample_thread_floats(const Dims& dims);

// SwiGLU of rows [first, last) on the calling thread.
void swiglu_range(const kernels::SwiGlu& a, int64_t first, int64_t last);

class CpuOps : public kernels::Ops {
 public:
  explicit CpuOps(int threads) : pool_(threads) {}

  std::string_view name() const override { return "cpu"; }
  kernels::Memory& memory() override { return memory_; }
  std::vector<kernels::ScratchEntry> scratch(const Dims& dims, const StepLimits& limits) const override;
  Result<void> prepare(const Dims& dims, const StepLimits& limits) override;

  void embed(const StepView& step, const kernels::Embed& a) override;
  void rms_norm(const kernels::RmsNorm& a) override;
  void layer_norm(const kernels::LayerNorm& a) override;
  void linear(const kernels::Linear& a) override;
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

  void latent_write(const StepView& step, const kernels::LatentWrite& a) override;
  void index_write(const StepView& step, const kernels::IndexWrite& a) override;
  void index_select(const StepView& step, const kernels::IndexSelect& a) override;
  void index_reuse(const StepView& step, const kernels::IndexReuse& a) override;
  void mla_attend(const StepView& step, const kernels::MlaAttend& a) override;
  void dsa_project(const StepView& step, const kernels::DsaProject& a) override;

  void route(const kernels::Route& a) override;
  void experts(const kernels::Experts& a) override;
  void ffn(const kernels::Ffn& a) override;

  void lm_head(const kernels::Linear& a) override;
  void history_start(const kernels::HistoryStart& a) override;
  void sample(const kernels::Sample& a) override;

 private:
  // f(first row, last row, thread) over blocks of rows; `work` = multiply-adds of one row.
  template <class F>
  void for_rows(int64_t rows, int64_t work, F&& f) {
    const int64_t wanted = rows * work < kParallelRowWork ? 1 : 4 * pool_.threads();
    const int64_t per_block = std::max<int64_t>(1, (rows + wanted - 1) / std::max<int64_t>(1, wanted));
    const int64_t blocks = (rows + per_block - 1) / per_block;
    pool_.run(blocks, rows * work, [&](int64_t block, int thread) {
      f(block * per_block, std::min(rows, (block + 1) * per_block), thread);
    });
  }

  static constexpr int64_t kParallelRowWork = 64 * 1024;

  // The areas of an op that starts. Nothing in them may be read before the op has written it: tests fill them
  // with NaN here.
  float* const* thread_scratch() {
    if (GODWIT_FAULT("cpu.poison_scratch")) poison(scratch_);
    return thread_scratch_.data();
  }
  float* shared_scratch() {
    if (GODWIT_FAULT("cpu.poison_scratch")) poison(shared_scratch_);
    return shared_scratch_.as<float>();
  }
  static void poison(Buffer& area);

  Pool pool_;
  HostMemory memory_;
  Dims dims_;
  Buffer scratch_;                      // [threads, floats of the hungriest op]
  std::vector<float*> thread_scratch_;  // [threads]
  Buffer shared_scratch_;               // [floats of the hungriest op that shares a buffer between threads]
};

}  // namespace godwit::cpu
