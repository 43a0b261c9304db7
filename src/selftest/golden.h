// Goldens: the outputs of the real transformers classes (tests/golden/data/README.md says how to compare).
#pragma once

#include <filesystem>
#include <string_view>

#include "selftest/report.h"
#include "selftest/rig.h"

namespace godwit::selftest {

// Compares a model with `data_dir`/`name`.{json,safetensors}. `kind` picks the tolerances of the manifest:
enum class GoldenKind {
  float32,          // weights as stored: float32_engine
  fp8_activations,  // FP8 weights with quantised activations: engine_with_fp8_activations
  fp8_cache,        // weights as stored over fp8 caches: what an engine of bf16 may differ by, bf16_engine
  dequantised,      // FP8 weights widened to float32 before: float32_engine_with_dequantised_weights
};
Result<Report> run_golden(const std::filesystem::path& model_dir, const std::filesystem::path& data_dir,
                          std::string_view name, GoldenKind kind, const RigOptions& options);

// The drafts of the NextN block behind each prompt: ids, logits of the first, hidden rows where the data
// holds them. float32 also shows that three mutants of the draft layer are noticed.
Result<Report> run_golden_drafts(const std::filesystem::path& model_dir,
                                 const std::filesystem::path& data_dir, std::string_view name,
                                 GoldenKind kind, const RigOptions& options);

// FP8 weights read as scale * e4m3 equal the rows the reference dequantised, exactly.
Result<Report> run_dequantised_rows(const std::filesystem::path& model_dir,
                                    const std::filesystem::path& data_dir, std::string_view name);

}  // namespace godwit::selftest
