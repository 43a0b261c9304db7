// From a model directory to a running engine: every byte is placed here, none after (design §8).
#include <algorithm>

#include "base/log.h"
#include "engine/engine.h"
#include "model/glm5_next/dims.h"
#include "weights/inventory.h"

namespace godwit::engine {
namespace {

constexpr int64_t kGrid = kernels::kPageTokens;

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// A quarter as many bytes for state snapshots as for pages: a prefix needs both, and a snapshot weighs as
// much as thousands of tokens of pages.
int64_t snapshots_for(const TextConfig& text, const ShardPlan& shards, const model::ModelOptions& m) {
  const model::StateLayout layout =
      model::plan_state(text, model::rank_dims(text, shards), m.limits, m.kv_dtype);
  constexpr int64_t kFewest = 16, kMost = 4096;
  return std::clamp(m.pages * layout.page_bytes / 4 / std::max<int64_t>(layout.committed_bytes, 1), kFewest,
                    kMost);
}

}  // namespace

Engine::Engine(ModelConfig config, Checkpoint checkpoint, const EngineOptions& options)
    : config_(std::move(config)),
      checkpoint_(std::move(checkpoint)),
      inbox_(static_cast<size_t>(options.max_waiting + options.max_sequences)),
      outbox_(static_cast<size_t>(4 * (options.max_waiting + options.max_sequences))) {}

Result<std::unique_ptr<Engine>> Engine::start(const EngineOptions& options,
                                              const std::vector<bool>& has_token) {
  const auto report = [&](double fraction, std::string_view what) {
    if (options.progress) options.progress(fraction, what);
  };
  report(0, "reading config.json");
  GODWIT_ASSIGN(ModelConfig config, read_model_config(options.model_dir));
  report(0.05, "reading tensor headers");
  GODWIT_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.model_dir));
  report(0.2, "checking every tensor");
  GODWIT_ASSIGN(const CheckReport checked,
                check_checkpoint(checkpoint, make_inventory(config), NextnUse::optional));
  if (!checked.nextn_missing.empty())
    log_warn("the draft (NextN) block lacks {} tensors, the first is {}; the engine does not draft",
             checked.nextn_missing.size(), checked.nextn_missing.front());
  std::unique_ptr<Engine> engine(new Engine(std::move(config), std::move(checkpoint), options));
  report(0.3, "placing weights and caches");
  GODWIT_TRY(engine->load(options, has_token));
  report(1, "ready");
  engine->health_ = Health::ready;
  engine->publish();
  engine->engine_thread_ = std::thread([e = engine.get()] { e->run(); });
  engine->delivery_thread_ = std::thread([e = engine.get()] { e->deliver(); });
  return engine;
}

Result<void> Engine::load(const EngineOptions& options, const std::vector<bool>& has_token) {
  const TextConfig& text = config_.text;
  GODWIT_ASSIGN(const ShardPlan shards, ShardPlan::make(text, 1, 1));
  ops_ = kernels::make_cpu_ops(options.threads);

  const int64_t context = options.context > 0 ? options.context : text.max_position_embeddings;
  if (context > text.max_position_embeddings)
    return make_error(ErrorCode::usage, "--context",
                      "--context {} is more than the model's {} positions; lower it", context,
                      text.max_position_embeddings);
  const int64_t cache_tokens = round_up(std::max(options.cache_tokens, context), kGrid);

  schedule::ScheduleLimits limits;
  limits.context = context;
  limits.max_sequences = options.max_sequences;
  // submit() bounds running + waiting together; all of them may arrive before the first is admitted.
  limits.max_waiting = options.max_waiting + options.max_sequences;
  limits.prefill_tokens = round_up(options.prefill_tokens, kGrid);

  model::ModelOptions m;
  m.limits.decode_rows = limits.max_sequences + limits.forced_rows;
  m.limits.rows = m.limits.decode_rows + limits.prefill_tokens;
  m.limits.sequences = limits.max_sequences;
  m.limits.context = context;
  m.limits.sampled_rows = limits.max_sequences;
  m.pages = cache_tokens / kGrid + 1;
  m.slots = limits.max_sequences + 1;
  m.snapshots = snapshots_for(text, shards, m);
  GODWIT_ASSIGN(model_, model::Model::load(checkpoint_, config_, shards, *ops_, comm_, m));

  std::vector<int32_t> stop_ids(config_.eos_token_ids.begin(), config_.eos_token_ids.end());
  model_->set_vocabulary(has_token, stop_ids);
  cache_ = std::make_unique<cache::Cache>(cache::CacheSizes{
      static_cast<int32_t>(m.pages), static_cast<int32_t>(m.slots), static_cast<int32_t>(m.snapshots)});
  scheduler_ = std::make_unique<schedule::Scheduler>(limits, *cache_, stop_ids, clock_,
                                                     static_cast<schedule::Listener&>(*this));
  scheduler_->prepare(plan_);

  plan_.sequences.reserve(static_cast<size_t>(limits.max_sequences));
  plan_.ids.reserve(static_cast<size_t>(m.limits.rows));
  // One step can list every page of every running sequence, at most all pages there are.
  plan_.pages.reserve(static_cast<size_t>(m.pages));
  plan_.samples.reserve(static_cast<size_t>(limits.max_sequences));
  plan_.restores.reserve(static_cast<size_t>(limits.max_sequences));
  plan_.saves.reserve(static_cast<size_t>(limits.max_sequences));
  drawn_.resize(static_cast<size_t>(limits.max_sequences));

  const model::ModelBytes bytes = model::price(text, shards, m, *ops_);
  info_.backend = ops_->name();
  info_.kv_dtype = "f32";
  info_.context = context;
  info_.max_sequences = limits.max_sequences;
  info_.max_waiting = options.max_waiting;
  info_.pages = m.pages - 1;
  info_.prefill_tokens = limits.prefill_tokens;
  info_.weight_bytes = model_->weight_bytes();
  info_.cache_bytes = bytes.pages + bytes.slots + bytes.snapshots;
  info_.workspace_bytes = bytes.workspace + bytes.scratch;
  info_.stop_ids = stop_ids;
  return {};
}

}  // namespace godwit::engine
