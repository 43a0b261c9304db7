#include "engine/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/ledger_lines.h"
#include "model/glm5_next/arena.h"
#include "model/glm5_next/dims.h"

namespace godwit::engine {
namespace {

constexpr int64_t kPage = cache::kPageTokens;
constexpr int64_t kFewestSnapshots = 16, kMostSnapshots = 4096;
// Of the memory for prefixes, snapshots get a fifth: a prefix needs both, and a snapshot weighs as much as
// thousands of tokens of pages.
constexpr int64_t kSnapshotShare = 5;
// The plain forms of the tiny model: 133 in 8 layers, the ends included. Fast forms have fewer.
constexpr int64_t kLaunchesPerLayer = 17;

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// One ledger being made: sizes first, then the lines.
class Maker {
 public:
  Maker(const LedgerModel& model, const LedgerRequest& request, const ShardPlan& shards,
        const kernels::Ops* ops)
      : model_(model), text_(model.config.text), request_(request), shards_(shards), ops_(ops) {}

  Ledger make() {
    dims_ = model::rank_dims(text_, shards_);
    out_.memory = request_.memory;
    set_limits(request_.context > 0 ? request_.context : text_.max_position_embeddings);
    if (request_.memory > 0) {
      share_memory();
    } else {
      out_.model.pages = std::max(cache::pages_for(request_.cache_tokens), pages_of_one()) + 1;
      const int64_t wanted = out_.model.pages * out_.layout.page_bytes / (kSnapshotShare - 1) /
                             std::max<int64_t>(out_.layout.committed_bytes, 1);
      out_.model.snapshots = std::clamp(wanted, kFewestSnapshots, kMostSnapshots);
    }
    add_lines();
    return std::move(out_);
  }

 private:
  void adjust(std::string_view setting, int64_t requested, int64_t effective, std::string reason) {
    if (requested != effective)
      out_.adjustments.push_back({std::string(setting), requested, effective, std::move(reason)});
  }

  int64_t pages_of_one() const { return cache::pages_for(out_.schedule.context); }

  void set_limits(int64_t context) {
    schedule::ScheduleLimits& s = out_.schedule;
    out_.adjustments.clear();
    s.context = context;
    s.max_sequences = request_.max_sequences;
    // submit() bounds running + waiting together; all of them may arrive before the first is admitted.
    s.max_waiting = request_.max_waiting + request_.max_sequences;
    s.prefill_tokens = round_up(std::min(request_.prefill_tokens, context), kPage);
    adjust("prefill-tokens", request_.prefill_tokens, s.prefill_tokens,
           request_.prefill_tokens > context ? "no prompt is longer than the context"
                                             : "a slice is whole pages of 64 tokens");
    const int64_t rows = request_.draft + 1;
    model::ModelOptions& m = out_.model;
    m.kv_dtype = request_.kv;
    m.limits.pending_rows = rows;
    m.limits.decode_rows = s.max_sequences * rows + s.forced_rows;
    m.limits.rows = m.limits.decode_rows + s.prefill_tokens;
    m.limits.sequences = s.max_sequences;
    m.limits.context = context;
    m.limits.sampled_rows = s.max_sequences * rows;
    m.slots = s.max_sequences + 1;
    out_.layout = model::plan_state(text_, dims_, m.limits, m.kv_dtype);
    out_.token_bytes = out_.layout.page_bytes / kPage;
    set_host_tier();
  }

  // A fifth each for snapshots and for whole slots of requests that made room, at most one slot a sequence;
  // the rest for pages.
  void set_host_tier() {
    const int64_t fifth = request_.host_cache / kSnapshotShare;
    const auto fit = [](int64_t bytes, int64_t record, int64_t most) {
      return static_cast<int32_t>(std::min(bytes / std::max<int64_t>(record, 1), most));
    };
    cache::HostSizes& host = out_.model.host;
    host.slots = fit(fifth, out_.layout.slot_bytes, request_.max_sequences);
    host.snapshots = fit(fifth, out_.layout.committed_bytes, kMostSnapshots);
    const int64_t rest = request_.host_cache - host.slots * out_.layout.slot_bytes -
                         host.snapshots * out_.layout.committed_bytes;
    host.pages = fit(rest, out_.layout.page_bytes, std::numeric_limits<int32_t>::max());
    if (request_.host_cache > 0 && (host.pages == 0 || host.snapshots == 0)) {
      host = {};
      adjust("host-cache", request_.host_cache, 0, "too small for one page, snapshot and slot");
    }
  }

  // Everything but pages and snapshots is fixed; they share the rest. A context that nobody asked for shrinks
  // until one sequence of it fits.
  void share_memory() {
    const int64_t longest = out_.schedule.context;
    divide();
    if (out_.shortfall > 0 && request_.context == 0) {
      int64_t fits = 0, fails = longest / kPage;  // in pages
      while (fails - fits > 1) {
        const int64_t middle = (fits + fails) / 2;
        set_limits(middle * kPage);
        divide();
        (out_.shortfall > 0 ? fails : fits) = middle;
      }
      set_limits(fits > 0 ? fits * kPage : longest);
      divide();
      if (fits > 0)
        adjust("context", longest, out_.schedule.context, "the longest that the memory holds once");
    }
  }

  void divide() {
    out_.model.pages = pages_of_one() + 1;
    out_.model.snapshots = kFewestSnapshots;
    add_lines();
    const int64_t left = request_.memory - out_.total();
    out_.shortfall = std::max<int64_t>(0, -left);
    if (left <= 0) return;
    const int64_t page = out_.layout.page_bytes +
                         (request_.host_apart ? 0 : cache_index_bytes(1, 0, 0) + copy_queue_bytes(1, 0, {}));
    const int64_t snapshot =
        out_.layout.committed_bytes + (request_.host_apart ? 0 : cache_index_bytes(0, 0, 1));
    const int64_t pool = left + out_.model.pages * page + out_.model.snapshots * snapshot;
    out_.model.snapshots = std::clamp(pool / kSnapshotShare / snapshot, kFewestSnapshots, kMostSnapshots);
    out_.model.pages = std::max((pool - out_.model.snapshots * snapshot) / page, out_.model.pages);
    if (out_.model.pages == pages_of_one() + 1) {
      const int64_t spare = pool - out_.model.pages * page;
      out_.model.snapshots = std::clamp(spare / snapshot, kFewestSnapshots, kMostSnapshots);
    }
  }

  void add(std::string name, int64_t bytes, std::string detail, bool on_device = true) {
    if (bytes > 0)
      out_.lines.push_back({std::move(name), bytes, std::move(detail), on_device || !request_.host_apart});
  }

  void add_weights() {
    const PlacedWeights w = placed_weights(model_, request_, shards_);
    add("weights", w.main, "the main model as stored");
    add("weights widened", w.widened, "norms, biases and other small parameters kept as f32");
    add("weights draft", w.draft, "the NextN block");
    add("weights vision", w.vision, "the vision tower");
  }

  void add_lines() {
    out_.lines.clear();
    const model::ModelOptions& m = out_.model;
    const model::StateLayout& l = out_.layout;
    const auto each = [](int64_t n, int64_t bytes, std::string_view what) {
      return fmt::format("{} {} of {} B", n, what, bytes);
    };
    add_weights();
    add("latent pages", m.pages * l.page_latent_bytes, each(m.pages, l.page_latent_bytes, "pages"));
    add("index pages", m.pages * l.page_pooled_bytes, each(m.pages, l.page_pooled_bytes, "pages"));
    add("state", m.slots * l.slot_state_bytes, each(m.slots, l.slot_state_bytes, "slots"));
    add("conv window", m.slots * l.slot_window_bytes, each(m.slots, l.slot_window_bytes, "slots"));
    add("pending rows", m.slots * l.slot_pending_bytes, each(m.slots, l.slot_pending_bytes, "slots"));
    add("index ring", m.slots * l.slot_ring_bytes, each(m.slots, l.slot_ring_bytes, "slots"));
    add("snapshots", m.snapshots * l.committed_bytes, each(m.snapshots, l.committed_bytes, "snapshots"));
    add("host pages", m.host.pages * l.page_bytes, each(m.host.pages, l.page_bytes, "pages"), false);
    add("host snapshots", m.host.snapshots * l.committed_bytes,
        each(m.host.snapshots, l.committed_bytes, "snapshots"), false);
    add("host slots", m.host.slots * l.slot_bytes, each(m.host.slots, l.slot_bytes, "slots"), false);
    const int64_t tokens = model::token_bytes(dims_, m.limits);
    add("token history", m.slots * tokens, each(m.slots, tokens, "slots"));
    const DType activations = ops_ ? ops_->activations(dims_) : DType::f32;
    add("activations", model::plan_workspace(dims_, text_.q_lora_rank, m.limits, activations, nullptr).bytes,
        fmt::format("{} rows a step", m.limits.rows));
    if (ops_)
      for (const kernels::ScratchEntry& e : ops_->scratch(model::op_dims(dims_, m.limits), m.limits))
        add(fmt::format("scratch {}", e.op), e.bytes, "shared by all ops, sized by this one");
    add("step buffers", step_buffer_bytes(out_.schedule, m.limits, dims_.vocab),
        "plan, draws, masks, the last steps", false);
    if (request_.host_apart)
      add("token masks", mask_bytes(m.limits, dims_.vocab), fmt::format("{} rows", m.limits.sampled_rows));
    add("cache index",
        cache_index_bytes(m.pages, m.slots, m.snapshots) + copy_queue_bytes(m.pages, m.slots, m.host) +
            cache_index_bytes(m.host.pages, m.host.slots, m.host.snapshots),
        "prefix trees, free lists, copies that wait", false);
    if (request_.host_apart) add_device_lines();
    add("runtime reserve", request_.reserve,
        ops_ ? "threads, log, requests in flight" : "scratch of the ops, NCCL: an estimate", !ops_);
  }

  // What a GPU holds beside our buffers.
  void add_device_lines() {
    // Weights and step arrays each end in a slab that is not full.
    add("slab ends", 2 * model::kSlabBytes, "of small tensors, at most");
    const bool known = request_.context_bytes > 0;
    add("driver context", known ? request_.context_bytes : kDriverContext,
        known ? "in use when the device was opened" : "driver and kernels: an estimate");
    add("cuBLASLt", kLibraryBytes, "the library's own: an estimate");
    const auto recordings = static_cast<int64_t>(model::recorded_rows(out_.model.limits).size());
    const int64_t launches = static_cast<int64_t>(text_.layers.size()) * kLaunchesPerLayer;
    add("recorded steps", recordings * launches * kGraphNodeBytes,
        fmt::format("{} of about {} launches of {} B: an estimate", recordings, launches, kGraphNodeBytes));
  }

  const LedgerModel& model_;
  const TextConfig& text_;
  const LedgerRequest& request_;
  const ShardPlan& shards_;
  const kernels::Ops* ops_;
  kernels::Dims dims_;
  Ledger out_;
};

}  // namespace

int64_t Ledger::total() const {
  int64_t sum = 0;
  for (const LedgerLine& line : lines)
    if (line.on_device) sum += line.bytes;
  return sum;
}

int64_t Ledger::host_total() const {
  int64_t sum = 0;
  for (const LedgerLine& line : lines)
    if (!line.on_device) sum += line.bytes;
  return sum;
}

int64_t Ledger::bytes_of(std::string_view name) const {
  int64_t sum = 0;
  for (const LedgerLine& line : lines)
    if (line.name == name) sum += line.bytes;
  return sum;
}

int64_t Ledger::sequences_at(int64_t tokens) const {
  return shortfall > 0 ? 0 : (model.pages - 1) / cache::pages_for(tokens);
}

Result<Ledger> make_ledger(const LedgerModel& model, const LedgerRequest& request, const kernels::Ops* ops) {
  const TextConfig& text = model.config.text;
  if (request.context > text.max_position_embeddings)
    return make_error(ErrorCode::usage, "--context",
                      "--context {} is more than the model's {} positions; lower it", request.context,
                      text.max_position_embeddings);
  if (request.draft > 0 && text.num_nextn_predict_layers == 0)
    return make_error(ErrorCode::usage, "--speculate",
                      "--speculate {} needs a draft block, and this model has none", request.draft);
  GODWIT_ASSIGN(const ShardPlan shards, ShardPlan::make(text, request.tp, request.ep));
  GODWIT_TRY(check_fp8_cuts(shards, model.form == Form::fp8 ? model.inventory : std::vector<TensorSpec>()));
  return Maker(model, request, shards, ops).make();
}

std::vector<std::string> remedies(const LedgerModel& model, const LedgerRequest& request,
                                  const kernels::Ops* ops) {
  std::vector<std::string> out;
  const auto fits = [&](const LedgerRequest& changed) {
    const auto ledger = make_ledger(model, changed, ops);
    return ledger.ok() && ledger->shortfall == 0;
  };
  LedgerRequest changed = request;
  changed.context = 0;  // the longest that fits is then the answer
  if (const auto ledger = make_ledger(model, changed, ops); ledger.ok() && ledger->shortfall == 0)
    out.push_back(fmt::format("--context {}", ledger->schedule.context));
  changed = request;
  for (changed.max_sequences /= 2; changed.max_sequences > 0; changed.max_sequences /= 2)
    if (fits(changed)) {
      out.push_back(fmt::format("--max-sequences {}", changed.max_sequences));
      break;
    }
  changed = request;
  for (const DType narrower : {DType::bf16, DType::f8_e4m3}) {
    // Without the ops of the device nobody knows what it holds, and nothing is promised.
    if (!ops || !ops->holds(narrower) || size_of(narrower) >= size_of(request.kv)) continue;
    changed.kv = narrower;
    if (!fits(changed)) continue;
    out.push_back(fmt::format("--kv {}", kernels::cache_format_name(narrower)));
    break;
  }
  changed = request;
  if (request.host_apart) {
    for (changed.tp *= 2; changed.tp <= 64; changed.tp *= 2) {
      changed.ep = std::min(request.ep * changed.tp / request.tp, changed.tp);
      if (fits(changed)) {
        out.push_back(fmt::format("--gpus {}", changed.tp));
        break;
      }
    }
  }
  return out;
}

std::string broken_promise(const Ledger& ledger, int64_t free_before, int64_t free_after) {
  constexpr int64_t kTolerance = 50;  // one part in so many
  const int64_t promised = ledger.total() - ledger.bytes_of("driver context");
  const int64_t taken = free_before - free_after;
  const int64_t over = taken - promised;
  if (over <= promised / kTolerance) return {};
  return fmt::format(
      "the ledger promised that {} of the device would be free, and {} are: loading and recording took {} "
      "where {} are priced. Something else uses the device, or a line of the ledger is too small. Nothing "
      "more is allocated, but a start with less to spare would fail: give --gpu-memory {} less",
      readable_bytes(free_before - promised), readable_bytes(free_after), readable_bytes(taken),
      readable_bytes(promised), readable_bytes(over));
}

std::string readable_bytes(int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  if (mebibytes < 1024) return fmt::format("{:.2f} MiB", mebibytes);
  return fmt::format("{:.2f} GiB", mebibytes / 1024);
}

}  // namespace godwit::engine
