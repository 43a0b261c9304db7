// Weights of one rank without a checkpoint: random values of a size that keeps activations finite, every
// tensor in memory of its own, so that a step reads as many bytes as with the real ones.
#pragma once

#include <memory>

#include "model/glm5_next/state.h"
#include "model/glm5_next/weights.h"

namespace godwit::bench {

// Random bytes in a backend's memory, to copy from. Every 16-bit half is a small bf16, so that they are
// finite as bf16 and as f32; `codes` are e4m3.
class Noise {
 public:
  static constexpr float kValue = 1.0f / 64;  // of a bf16: K = 4096 gives products of about 1
  static constexpr float kCode = 32;          // of an e4m3 code, with scales that make it kValue
  explicit Noise(kernels::Memory& memory);
  ~Noise();
  Noise(const Noise&) = delete;
  Noise& operator=(const Noise&) = delete;

  void fill(void* to, int64_t bytes);
  void fill_codes(void* to, int64_t bytes);

 private:
  void copy_from(const std::byte* pool, void* to, int64_t bytes);

  kernels::Memory& memory_;
  std::byte* values_ = nullptr;
  std::byte* codes_ = nullptr;
  uint64_t next_ = 0;  // where the next copy begins, so that no two tensors are alike
};

// Cached tokens that were never computed, in pages [0, pages) of `state`; `kv` is their format.
void fill_pages(const model::RankState& state, int64_t pages, DType kv, const kernels::Dims& dims,
                kernels::Memory& memory, Noise& noise);

std::unique_ptr<model::ModelWeights> make_weights(const ModelConfig& config, const ShardPlan& plan,
                                                  int64_t rank, kernels::Memory& memory, Noise& noise,
                                                  bool draft = false);

}  // namespace godwit::bench
