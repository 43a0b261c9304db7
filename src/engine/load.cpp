// From a model directory to a running engine: every byte is placed here, none after (design §8).
#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/resident.h"
#include "kernels/make_ops.h"
#include "weights/inventory.h"

namespace godwit::engine {
namespace {

Result<void> fits(int64_t needed, int64_t available, std::string_view where) {
  if (available <= 0 || needed <= available) return {};
  return make_error(ErrorCode::data_refused, "",
                    "this needs {} and {} are available {}; `godwit plan` shows what takes how much, and a "
                    "smaller --context or --max-sequences takes less",
                    readable_bytes(needed), readable_bytes(available), where);
}

ReadOptions reading(const EngineOptions& options) {
  ReadOptions reads;
  reads.stop = options.stop;
  reads.progress = [progress = options.progress](const ReadStatus& s) {
    const double done = s.bytes > 0 ? static_cast<double>(s.bytes_done) / static_cast<double>(s.bytes) : 1;
    if (progress) progress(0.3 + 0.6 * done, "reading weights: " + as_text(s));
  };
  return reads;
}

}  // namespace

Engine::Engine(ModelConfig config, Checkpoint checkpoint, const EngineOptions& options)
    : config_(std::move(config)),
      checkpoint_(std::move(checkpoint)),
      options_(options),
      log_(options.max_sequences),
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
  try {
    GODWIT_TRY(engine->load(options, has_token));
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::data_refused, "", "memory ran out while the model was placed; {} are left",
                      readable_bytes(available_memory()));
  } catch (const std::runtime_error& failure) {  // a device that stopped working
    return make_error(ErrorCode::device, "--device", "{}", failure.what());
  }
  report(1, "ready");
  engine->health_ = Health::ready;
  engine->progress();
  engine->publish();
  engine->engine_thread_ = std::thread([e = engine.get()] { e->run(); });
  engine->delivery_thread_ = std::thread([e = engine.get()] { e->deliver(); });
  engine->watchdog_thread_ = std::thread([e = engine.get()] { e->watch(); });
  return engine;
}

Result<void> Engine::load(const EngineOptions& options, const std::vector<bool>& has_token) {
  const TextConfig& text = config_.text;
  GODWIT_ASSIGN(const ShardPlan shards, ShardPlan::make(text, 1, 1));
  const bool finds_device = options.device == "auto" && kernels::cuda_devices() > 0;
  const std::string_view backend = finds_device               ? "cuda"
                                   : options.device == "auto" ? "cpu"
                                                              : std::string_view(options.device);
  GODWIT_ASSIGN(ops_, kernels::make_ops(backend, options.threads));
  const bool on_device = !ops_->memory().host_addressable();
  const LedgerModel priced{config_, found_inventory(checkpoint_, make_inventory(config_)), Form::fp8};
  LedgerRequest request{options};
  request.reserve = kRuntimeReserve;
  request.kv = options.kv.value_or(on_device ? DType::bf16 : DType::f32);
  GODWIT_TRY(kernels::check_cache_format(*ops_, request.kv));
  options_.kv = request.kv;
  request.host_apart = on_device;
  request.memory = on_device ? options.device_memory : 0;
  const kernels::Memory& memory = ops_->memory();
  const int64_t free_before = memory.available();
  // What others have of a shared device is not ours to count.
  if (on_device) request.context_bytes = std::clamp<int64_t>(memory.size() - free_before, 0, kDriverContext);
  GODWIT_ASSIGN(const Ledger ledger, make_ledger(priced, request, ops_.get()));
  if (ledger.shortfall > 0)
    return make_error(ErrorCode::data_refused, "--gpu-memory",
                      "--gpu-memory {} is {} short of one sequence of {} tokens; `godwit plan` shows what "
                      "takes how much",
                      readable_bytes(request.memory), readable_bytes(ledger.shortfall),
                      ledger.schedule.context);
  GODWIT_TRY(on_device
                 ? fits(ledger.total() - ledger.bytes_of("driver context"), free_before, "on the device")
                 : fits(ledger.total(), available_memory(), "in memory"));
  if (on_device) GODWIT_TRY(fits(ledger.host_total(), available_memory(), "in host memory"));
  for (const Adjustment& a : ledger.adjustments)
    log_warn("--{} {} was asked for, {} is in force: {}", a.setting, a.requested, a.effective, a.reason);

  const model::ModelOptions& m = ledger.model;
  schedule::ScheduleLimits limits = ledger.schedule;
  limits.itl_target_ns = options.itl_target_ms * 1'000'000;
  std::vector<TensorSpec> bound = priced.inventory;
  std::erase_if(bound, [](const TensorSpec& t) { return t.nextn || t.component == Component::vision; });
  const ReadIn read = on_device ? ReadIn::nothing : ReadIn::what_stays;
  GODWIT_ASSIGN(const ReadStatus status, read_ahead(checkpoint_, bound, read, reading(options)));
  log_info("weights   {:.2f} GB of {} shards read in {:.1f} s, {:.2f} GB/s",
           static_cast<double>(status.bytes) * 1e-9, status.files, status.seconds,
           status.bytes_per_second() * 1e-9);
  GODWIT_ASSIGN(model_, model::Model::load(checkpoint_, config_, shards, *ops_, comm_, m, reading(options)));
  GODWIT_TRY(settle_weights(checkpoint_, bound, read));
  GODWIT_TRY(check_scales(checkpoint_, bound));  // now that they are read: one byte in 4,096

  std::vector<int32_t> stop_ids(config_.eos_token_ids.begin(), config_.eos_token_ids.end());
  has_token_ = has_token;
  has_token_.resize(static_cast<size_t>(text.vocab_size));
  model_->set_vocabulary(has_token, stop_ids);
  if (on_device) {
    const int64_t before = memory.available();
    model_->record_steps();
    const int64_t free_after = memory.available();
    log_info(
        "recorded {} decode steps, {} of device memory with what a first slice loads ({} priced); {} are "
        "free",
        model_->recorded_steps(), readable_bytes(before - free_after),
        readable_bytes(ledger.bytes_of("recorded steps") + ledger.bytes_of("cuBLASLt")),
        readable_bytes(free_after));
    const std::string broken = broken_promise(ledger, free_before, free_after);
    if (!broken.empty()) log_warn("{}", broken);
  }
  const model::StateLayout& layout = model_->layout();
  cache_ = std::make_unique<cache::Cache>(
      cache::CacheSizes{.pages = static_cast<int32_t>(m.pages),
                        .slots = static_cast<int32_t>(m.slots),
                        .snapshots = static_cast<int32_t>(m.snapshots),
                        .host = m.host,
                        .record_bytes = {layout.page_bytes, layout.committed_bytes, layout.slot_bytes}});
  scheduler_ = std::make_unique<schedule::Scheduler>(limits, *cache_, stop_ids, clock_,
                                                     static_cast<schedule::Listener&>(*this));
  scheduler_->prepare(plan_);
  masks_ = std::make_unique<StepMasks>(m.limits.sampled_rows, text.vocab_size);
  drawn_.resize(static_cast<size_t>(m.limits.logits_rows()));

  info_.backend = ops_->name();
  info_.kv_dtype = kernels::cache_format_name(request.kv);
  info_.context = limits.context;
  info_.max_sequences = limits.max_sequences;
  info_.max_waiting = options.max_waiting;
  info_.pages = m.pages - 1;
  info_.prefill_tokens = limits.prefill_tokens;
  info_.snapshots = m.snapshots;
  info_.host_pages = m.host.pages;
  info_.itl_target_ms = options.itl_target_ms;
  info_.weight_bytes = model_->weight_bytes();
  info_.cache_bytes = model_->state_bytes();
  info_.workspace_bytes = ledger.bytes_of("activations");
  info_.vocabulary = text.vocab_size;
  info_.stop_ids = stop_ids;
  info_.ledger = ledger.lines;
  info_.adjustments = ledger.adjustments;
  return {};
}

}  // namespace godwit::engine
