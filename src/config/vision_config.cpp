#include <fmt/format.h>

#include "config/model_config_parts.h"

namespace godwit {

Result<VisionConfig> read_vision_config(const JsonObject& object, std::string_view file,
                                        int64_t text_hidden_size) {
  constexpr int64_t kWidest = 1 << 20;
  ConfigReader in(&object, fmt::format("{}: vision_config", file));
  VisionConfig vision;
  in.expect("model_type", Json("glm5_next_vision"));
  vision.depth = in.integer("depth", 1, 1024);
  vision.hidden_size = in.integer("hidden_size", 1, kWidest);
  vision.num_heads = in.integer("num_heads", 1, 4096);
  vision.intermediate_size = in.integer("intermediate_size", 1, kWidest);
  vision.out_hidden_size = in.integer("out_hidden_size", 1, kWidest);
  vision.projection_intermediate_size = in.integer("projection_intermediate_size", 1, kWidest);
  vision.patch_size = in.integer("patch_size", 1, 256);
  vision.temporal_patch_size = in.integer("temporal_patch_size", 1, 16);
  vision.spatial_merge_size = in.integer("spatial_merge_size", 1, 16);
  vision.in_channels = in.integer("in_channels", 1, 16);
  vision.rms_norm_eps = in.real("rms_norm_eps", 1e-12, 1e-2);
  vision.swiglu_limit = in.real("swiglu_limit", 1e-3, 1e6);
  in.expect("hidden_act", Json("silu"));
  in.expect("attention_bias", Json(true));
  // Position and size come from each picture's own grid (§18.4); the rest matters in training only.
  in.ignore({"image_size", "dtype", "torch_dtype", "attention_dropout", "initializer_range"});
  in.require(vision.hidden_size % vision.num_heads == 0, "num_heads",
             fmt::format("a divisor of hidden_size ({})", vision.hidden_size));
  // Axial rope turns pairs of a height half and a width half.
  in.require(vision.hidden_size / vision.num_heads % 4 == 0, "num_heads",
             fmt::format("heads whose width is a multiple of 4 (hidden_size is {})", vision.hidden_size));
  in.require(vision.out_hidden_size == text_hidden_size, "out_hidden_size",
             fmt::format("text_config.hidden_size ({})", text_hidden_size));
  GODWIT_TRY(in.finish_refusing_unknown());
  return vision;
}

}  // namespace godwit
