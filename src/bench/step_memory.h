// What a case of a bench needs besides the weights, and whether it fits: asked before anything is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "model/glm5_next/model.h"

namespace godwit::bench {

struct StepMemory {
  int64_t tokens = 0, token_bytes = 0;  // cached, and of each over all layers
  int64_t states = 0;                   // slots and their copies
  int64_t activations = 0, scratch = 0;

  int64_t cached() const { return tokens * token_bytes; }
  int64_t workspace() const { return activations + scratch; }
  int64_t total() const { return cached() + states + workspace(); }
};

StepMemory memory_of(const model::ModelBytes& bytes, int64_t pages);

// Empty when it fits into `free` bytes, or when nobody knows how many are free (0); else what needs how much.
std::string refusal(const StepMemory& needed, int64_t free);

}  // namespace godwit::bench
