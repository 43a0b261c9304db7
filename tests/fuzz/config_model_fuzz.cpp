// config.json, then after a zero byte generation_config.json: whatever is accepted must be usable as it
// stands.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "config/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool is_quiet = (godwit::start_logging("off"), true);
  (void)is_quiet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  const std::string_view generation = zero == text.npos ? std::string_view() : text.substr(zero + 1);
  const auto config = godwit::parse_model_config(text.substr(0, zero), generation);
  if (!config.ok()) {
    if (config.error().code != godwit::ErrorCode::data_refused || config.error().message.empty())
      std::abort();
    return 0;
  }
  const godwit::TextConfig& t = config->text;
  const bool is_sound = t.layers.size() == static_cast<size_t>(t.num_hidden_layers) &&
                        t.num_experts_per_tok <= t.n_routed_experts && t.index_topk % t.index_kpool == 0 &&
                        config->image_token_id < t.vocab_size &&
                        config->vision.hidden_size % config->vision.num_heads == 0;
  if (!is_sound) std::abort();
  return 0;
}
