// Weights of one rank without a checkpoint: random values of a size that keeps activations finite, every
// tensor in memory of its own, so that a step reads as many bytes as with the real ones.
#pragma once

#include <memory>

#include "model/glm5_next/weights.h"

namespace godwit::bench {

// Random bytes in a backend's memory, to copy from. Every 16-bit half is a small bf16, so that they are
// finite as bf16 and as f32; `codes` are e4m3.
class Noise {
 public:
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

std::unique_ptr<model::ModelWeights> make_weights(const ModelConfig& config, const ShardPlan& plan,
                                                  int64_t rank, kernels::Memory& memory, Noise& noise);

}  // namespace godwit::bench
