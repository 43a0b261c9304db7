// Ops: the one table of what a model may ask of a backend (design §6). Three fillings: `reference` (plain
// loops, double accumulation, the definition), `cpu`, `sm90`. The model is written once against it.
//
// Contract of every op: views are in this backend's memory; nothing is allocated; a row's result does not
// depend on the other rows of the step; reads past T or positions past a row's own never happen. A backend
// may refuse a shape when it is prepared (Result), never miscompute it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/ops/dense.h"
#include "kernels/ops/dsa.h"
#include "kernels/ops/head.h"
#include "kernels/ops/kda.h"
#include "kernels/ops/mhc.h"
#include "kernels/ops/moe.h"
#include "kernels/staging.h"

namespace godwit::kernels {

// Where a backend's tensors live.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(
      int64_t bytes) = 0;  // 64-byte aligned or better; contents undefined; before ready only
  virtual void release(void* p) = 0;
  virtual void upload(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void download(void* to_host, const void* from, int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* p, int64_t bytes) = 0;
  virtual bool host_addressable() const = 0;  // weights may stay where the checkpoint is mapped
  // Bytes allocate() can still give; 0 = the host's, which the operating system tells.
  virtual int64_t available() const { return 0; }
  // Bytes there are in all, whoever has them; 0 likewise.
  virtual int64_t size() const { return 0; }
  // For one thread that loads: buffers of `bytes` each, copies from which overlap with the host where they
  // can. It must not outlive this.
  virtual std::unique_ptr<Staging> staging(int64_t bytes);
};

struct ScratchEntry {
  std::string_view op;
  int64_t bytes = 0;
};

// What ops put on a device's stream, to be put there again as a whole.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string_view name() const = 0;
  virtual Memory& memory() = 0;
  // Scratch of each op as a pure function of sizes: what `godwit plan` prices and prepare() allocates.
  virtual std::vector<ScratchEntry> scratch(const Dims& dims, const StepLimits& limits) const = 0;
  // Checks that every shape is supported and allocates the scratch. Once, before the first op.
  virtual Result<void> prepare(const Dims& dims, const StepLimits& limits) = 0;
  // What products with bf16 weights read of the inputs of sublayers, of KDA's output and of the head's: bf16
  // on a GPU at the shapes of real models, else f32 (glm5_next spec §23).
  virtual DType activations(const Dims& dims) const {
    static_cast<void>(dims);
    return DType::f32;
  }
  // Whether there are kernels for caches of this format (kernels/cache_format.h).
  virtual bool holds(DType format) const {
    static_cast<void>(format);
    return true;
  }

  // Records the ops that `issue` calls instead of running them: arguments and addresses are those of the
  // recording, what the addresses hold is that of the replay. Null where launches cost nothing.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& issue) {
    static_cast<void>(issue);
    return nullptr;
  }

  virtual void embed(const StepView& step, const Embed& a) = 0;
  virtual void rms_norm(const RmsNorm& a) = 0;
  virtual void layer_norm(const LayerNorm& a) = 0;
  virtual void linear(const Linear& a) = 0;
  // Products of which none reads what another writes; a backend may put them into one launch.
  virtual void linears(std::span<const Linear> all);
  virtual void head_linear(const HeadLinear& a) = 0;
  virtual void swiglu(const SwiGlu& a) = 0;
  virtual void add(const Add& a) = 0;
  virtual void gather_rows(const GatherRows& a) = 0;

  virtual void mhc_broadcast(const MhcBroadcast& a) = 0;
  virtual void mhc_collapse(const MhcCollapse& a) = 0;
  virtual void mhc_expand(const MhcExpand& a) = 0;
  virtual void mhc_mean(const MhcMean& a) = 0;

  virtual void kda_replay(const StepView& step, const KdaReplay& a) = 0;
  virtual void kda_conv(const StepView& step, const KdaConv& a) = 0;
  virtual void kda_chunk(const StepView& step, const KdaChunk& a) = 0;
  virtual void kda_step(const StepView& step, const KdaStep& a) = 0;
  virtual void gated_norm(const GatedNorm& a) = 0;

  virtual void latent_write(const StepView& step, const LatentWrite& a) = 0;
  virtual void index_write(const StepView& step, const IndexWrite& a) = 0;
  virtual void index_select(const StepView& step, const IndexSelect& a) = 0;
  virtual void index_reuse(const StepView& step, const IndexReuse& a) = 0;
  virtual void mla_attend(const StepView& step, const MlaAttend& a) = 0;

  virtual void route(const Route& a) = 0;
  virtual void experts(const Experts& a) = 0;

  virtual void lm_head(const Linear& a) = 0;
  virtual void history_start(const HistoryStart& a) = 0;
  virtual void sample(const Sample& a) = 0;

  // Composite entries; a backend overrides the ones its launches fuse across.
  virtual void mhc_boundary(const MhcBoundary& a);
  virtual void kda_mix(const StepView& step, const KdaMix& a);
  virtual void dsa_project(const StepView& step, const DsaProject& a);
  virtual void ffn(const Ffn& a);
  virtual void moe(const Moe& a);
};

// usage, naming --kv and what it may be, when `ops` has no kernels for caches of this format.
Result<void> check_cache_format(const Ops& ops, DType format);

// The plain definition of every op, double accumulation, one thread. The oracle of tests/ops; never serves.
std::unique_ptr<Ops> make_reference_ops();
// Highway kernels with run-time dispatch (AVX2, AVX-512), `threads` threads including the caller (0 = all
// cores).
std::unique_ptr<Ops> make_cpu_ops(int threads);

}  // namespace godwit::kernels
