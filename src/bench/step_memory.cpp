#include "bench/step_memory.h"

#include <fmt/format.h>

#include "kernels/step.h"

namespace godwit::bench {
namespace {

double gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

}  // namespace

StepMemory memory_of(const model::ModelBytes& bytes, int64_t pages) {
  StepMemory m;
  m.tokens = pages * kernels::kPageTokens;
  m.token_bytes = pages > 0 ? bytes.pages / m.tokens : 0;
  m.states = bytes.slots + bytes.snapshots;
  m.activations = bytes.workspace;
  m.scratch = bytes.scratch;
  return m;
}

std::string refusal(const StepMemory& needed, int64_t free) {
  if (free == 0 || needed.total() <= free) return {};
  return fmt::format(
      "{:.1f} GB do not fit into the {:.1f} GB that are free: {} cached tokens of {} bytes are {:.1f} GB, "
      "states {:.1f}, activations {:.1f}, scratch {:.1f}; --kv fp8 and --shared-context take less",
      gigabytes(needed.total()), gigabytes(free), needed.tokens, needed.token_bytes,
      gigabytes(needed.cached()), gigabytes(needed.states), gigabytes(needed.activations),
      gigabytes(needed.scratch));
}

}  // namespace godwit::bench
