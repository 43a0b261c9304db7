#include "server/sampling_fields.h"

#include <charconv>
#include <limits>

#include "base/hash.h"

namespace godwit::server {
namespace {

constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxStopIds = 256;
constexpr int64_t kMostTimeoutMs = 86'400'000;  // a day
constexpr size_t kMaxBias = static_cast<size_t>(engine::kMaxLogitBias);

void read_stop(Fields& fields, CommonFields& out, int32_t vocabulary) {
  if (const Json* stop = fields.any("stop")) {
    const auto add = [&](const Json& item, std::string_view key) {
      if (item.is_null()) return;
      if (!item.is_string()) return fields.refuse(key, "must be a string, got " + describe(item));
      if (item.as_string().size() > kMaxStopBytes) {
        return fields.refuse(key, fmt::format("is {} bytes long, at most {} are allowed",
                                              item.as_string().size(), kMaxStopBytes));
      }
      if (!item.as_string().empty()) out.stop_strings.push_back(item.as_string());
    };
    if (!stop->is_array()) {
      add(*stop, "stop");
    } else if (const JsonArray* items = fields.array("stop", kMaxStopStrings)) {
      for (size_t i = 0; i < items->size(); ++i) add((*items)[i], fmt::format("stop[{}]", i));
    }
  }
  if (const JsonArray* ids = fields.array("stop_token_ids", kMaxStopIds)) {
    for (size_t i = 0; i < ids->size(); ++i) {
      const Json& id = (*ids)[i];
      if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= vocabulary) {
        fields.refuse(fmt::format("stop_token_ids[{}]", i),
                      fmt::format("must be an id from 0 to {}, got {}", vocabulary - 1, describe(id)));
        return;
      }
      out.stop.stop_ids.push_back(static_cast<int32_t>(id.as_integer()));
    }
  }
  out.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  out.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  out.stop.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void read_bias(Fields& fields, CommonFields& out, int32_t vocabulary) {
  const Json* bias = fields.object("logit_bias");
  if (!bias) return;
  if (bias->as_object().size() > kMaxBias) {
    return fields.refuse("logit_bias", fmt::format("has {} entries, at most {} are allowed",
                                                   bias->as_object().size(), kMaxBias));
  }
  for (const auto& [key, value] : bias->as_object()) {
    int32_t id = -1;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (ec != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary) {
      return fields.refuse("logit_bias", fmt::format("has the key {}; keys are token ids from 0 to {}",
                                                     describe(Json(key)), vocabulary - 1));
    }
    if (!value.is_number() || !(value.as_double() >= -100 && value.as_double() <= 100)) {
      return fields.refuse("logit_bias." + key, "must be a number from -100 to 100, got " + describe(value));
    }
    out.sampling.logit_bias.emplace_back(id, static_cast<float>(value.as_double()));
  }
}

void read_stream(Fields& fields, CommonFields& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (!options) return;
  if (!out.stream) return fields.refuse("stream_options", "is only allowed when stream is true");
  Fields inner(*options, "stream_options");
  out.include_usage = inner.boolean("include_usage").value_or(false);
  out.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  if (inner.error()) fields.keep(*inner.error());
}

}  // namespace

CommonFields read_common_fields(Fields& fields, const CommonLimits& limits) {
  CommonFields out;
  if (const std::string* model = fields.string("model")) out.model = *model;
  const GenerationDefaults& d = limits.defaults;
  const auto real = [&](std::string_view key, Range range, double fallback) {
    return static_cast<float>(fields.number(key, range).value_or(fallback));
  };
  engine::SamplingParams& s = out.sampling;
  s.temperature = real("temperature", {0, 2}, d.temperature.value_or(1));
  s.top_p = real("top_p", {0, 1, true}, d.top_p.value_or(1));
  s.min_p = real("min_p", {0, 1}, d.min_p.value_or(0));
  s.top_k = static_cast<int32_t>(std::max<int64_t>(
      0, fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()).value_or(d.top_k.value_or(0))));
  // Logits are divided by it: far below one they would leave the range of a float.
  s.repetition_penalty = real("repetition_penalty", {0.01, 100}, d.repetition_penalty.value_or(1));
  s.presence_penalty = real("presence_penalty", {-2, 2}, 0);
  s.frequency_penalty = real("frequency_penalty", {-2, 2}, 0);
  const auto seed =
      fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  s.seed = seed ? static_cast<uint64_t>(*seed) : limits.drawn_seed;

  const int64_t any = std::numeric_limits<int64_t>::max();
  out.stop.min_tokens = fields.integer("min_tokens", 0, limits.context).value_or(0);
  out.n = static_cast<int32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  out.priority = static_cast<int32_t>(fields.integer("priority", -1'000'000, 1'000'000).value_or(0));
  out.timeout_ms = fields.integer("timeout_ms", 1, kMostTimeoutMs).value_or(0);
  if (const std::string* salt = fields.string("cache_salt")) out.cache_salt = hash_bytes(*salt);
  const bool completion = fields.has("max_completion_tokens");
  const auto max_tokens = fields.integer("max_tokens", limits.fewest_tokens, any);
  out.stop.max_tokens =
      (completion ? fields.integer("max_completion_tokens", 1, any) : max_tokens).value_or(0);
  if (out.stop.max_tokens > 0 && out.stop.min_tokens > out.stop.max_tokens) {
    fields.refuse("min_tokens", fmt::format("is {}, more than the {} tokens allowed at most",
                                            out.stop.min_tokens, out.stop.max_tokens));
  }
  read_stop(fields, out, limits.vocabulary);
  read_bias(fields, out, limits.vocabulary);
  read_stream(fields, out);
  return out;
}

}  // namespace godwit::server
