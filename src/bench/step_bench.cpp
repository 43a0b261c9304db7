#include "bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <set>

#include "bench/shape.h"
#include "bench/step_plans.h"
#include "bench/step_work.h"
#include "bench/synthetic.h"
#include "kernels/cache_format.h"
#include "kernels/make_ops.h"
#include "model/glm5_next/dims.h"
#include "model/glm5_next/model.h"

namespace godwit::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A rank whose peers are not there: what it would receive stays what it was.
class Unconnected final : public comm::Comm {
 public:
  Unconnected(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  void all_reduce(const View&) override {}
  void all_gather(const View&, const View&) override {}

 private:
  int64_t rank_, size_;
};

// Counts the experts of this rank that each MoE layer of a step touches.
class ExpertCounter final : public model::Observer {
 public:
  ExpertCounter(Range experts) : experts_(experts) {}
  void after_layer(int, const View&) override {}
  void after_select(int, const View&, const View&) override {}
  void after_route(int, const View& ids, const View&) override {
    std::set<int32_t> touched;
    for (int64_t t = 0; t < ids.rows; ++t)
      for (int64_t i = 0; i < ids.cols; ++i) {
        const int32_t e = ids.row<int32_t>(t)[i];
        if (e < experts_.begin || e >= experts_.end) continue;
        touched.insert(e);
        ++choices_;
      }
    distinct_ += static_cast<double>(touched.size());
    ++layers_;
  }
  void before_sample(const View&, const View&) override {}
  double distinct() const { return layers_ > 0 ? distinct_ / layers_ : 0; }
  double choices() const { return layers_ > 0 ? choices_ / layers_ : 0; }

 private:
  Range experts_;
  double distinct_ = 0, choices_ = 0;
  int layers_ = 0;
};

constexpr int64_t kMostTokens = 1 << 20;  // of a sequence
constexpr int64_t kMostSequences = 4096;
constexpr int64_t kMostPromptRows = 16384;  // of a step
// Steps behind a slice: one more is the first.
constexpr int64_t kSteadySteps = 32;
static_assert(kSteadySteps < kernels::kPageTokens);

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class Bench {
 public:
  static Result<std::unique_ptr<Bench>> make(const StepCase& asked) {
    auto b = std::make_unique<Bench>();
    b->asked_ = asked;
    GODWIT_ASSIGN(b->config_, read_shape(asked.shape));
    GODWIT_ASSIGN(ShardPlan shards, ShardPlan::make(b->config_.text, asked.tp, asked.ep));
    b->shards_ = std::make_unique<ShardPlan>(shards);
    if (asked.rank < 0 || asked.rank >= asked.tp)
      return make_error(ErrorCode::usage, "--rank", "--rank {} is not below --tp {}", asked.rank, asked.tp);
    const bool decodes = asked.prefill == 0;
    if (!decodes && asked.shared_context)
      return make_error(ErrorCode::usage, "--prefill",
                        "--prefill times slices of prompts of their own: leave --shared-context out");
    if (asked.whole && asked.prefill < kernels::kPageTokens)
      return make_error(ErrorCode::usage, "--whole",
                        "--whole cuts prompts into slices that begin on pages: --prefill {} is below {} rows",
                        asked.prefill, kernels::kPageTokens);
    if (asked.draft && (asked.rows != 1 || asked.prefill != 0))
      return make_error(ErrorCode::usage, "--draft",
                        "--draft times one row of each sequence: leave --rows and --prefill out");
    if (asked.draft && b->config_.text.num_nextn_predict_layers == 0)
      return make_error(ErrorCode::usage, "--draft", "--draft needs a draft block, and {} has none",
                        asked.shape);
    for (const int64_t batch : asked.batches)
      if (batch < 1 || batch > kMostSequences)
        return make_error(ErrorCode::usage, "--batch", "--batch {} is not between 1 and {}", batch,
                          kMostSequences);
      else if (batch * asked.prefill > kMostPromptRows)
        return make_error(ErrorCode::usage, "--prefill",
                          "--batch {} of --prefill {} are more than the {} prompt rows of a step", batch,
                          asked.prefill, kMostPromptRows);
    for (const int64_t context : asked.contexts)
      if (context < 0 || context + b->step_tokens() > kMostTokens)
        return make_error(ErrorCode::usage, "--context",
                          "--context {} and the {} rows of a step are not within {} tokens", context,
                          b->step_tokens(), kMostTokens);
    GODWIT_ASSIGN(b->ops_, kernels::make_ops(asked.device, 0));
    b->kv_ = kernels::cache_format_of(asked.kv).value_or(asked.device == "cuda" ? DType::bf16 : DType::f32);
    GODWIT_TRY(kernels::check_cache_format(*b->ops_, b->kv_));
    b->comm_ = std::make_unique<Unconnected>(asked.rank, asked.tp);
    return b;
  }

  Result<StepResult> run(int64_t batch, int64_t context) {
    StepResult out;
    out.batch = batch;
    out.context = context;
    out.kv = kernels::cache_format_name(kv_);
    out.rows = asked_.prefill > 0 ? asked_.prefill : asked_.rows;
    const StepShape shape{
        batch, context, out.rows, asked_.prefill > 0, asked_.shared_context, asked_.draft ? 1 : 0};
    const model::ModelOptions options = sizes(shape);
    const kernels::Dims dims = model::rank_dims(config_.text, *shards_);
    model_.reset();  // its caches make room; the weights stay
    kernels::Memory& memory = ops_->memory();
    const model::ModelBytes bytes = price(config_.text, *shards_, options, *ops_);
    out.memory = memory_of(bytes, options.pages);
    out.refused = refusal(out.memory, memory.available());
    if (!out.refused.empty()) return out;
    try {
      if (!noise_) noise_ = std::make_unique<Noise>(memory);
      if (!weights_) weights_ = make_weights(config_, *shards_, asked_.rank, memory, *noise_, asked_.draft);
    } catch (const std::bad_alloc&) {
      return make_error(ErrorCode::device, "", "the weights of this rank do not fit the device");
    }
    out.refused = refusal(out.memory, memory.available());
    if (!out.refused.empty()) return out;
    GODWIT_ASSIGN(model_, model::Model::assemble(weights_, config_, *shards_, *ops_, *comm_, options));
    if (shape.prefill && !memory.host_addressable()) model_->record_steps();  // as an engine does at load
    fill_state(options);
    const schedule::StepPlan plan = make_plan(shape, shards_->vocabulary(asked_.rank));
    std::vector<sample::Sampled> drawn(plan.samples.size());
    save_state(batch);

    out.expected_experts = expected_experts(plan.rows());
    const auto seen = static_cast<double>(shards_->experts(asked_.rank).size());
    StepSize size{batch,
                  plan.rows(),
                  context,
                  static_cast<int64_t>(drawn.size()),
                  out.expected_experts,
                  static_cast<double>(plan.rows() * config_.text.num_experts_per_tok) * seen /
                      static_cast<double>(config_.text.n_routed_experts),
                  kv_};
    if (asked_.draft) {
      draft(plan, size, out);
      return out;
    }
    if (!shape.prefill) {  // an observer is given every stream of every row: a GB a layer of a slice
      ExpertCounter counter(shards_->experts(asked_.rank));
      model_->observe(&counter);
      model_->forward(plan, drawn.data());
      model_->observe(nullptr);
      size.distinct = counter.distinct();
      size.choices = counter.choices();
    }
    out.distinct_experts = size.distinct;
    model_->forward(plan, drawn.data());  // restores first
    const std::vector<float> untimed = logits(drawn.size());
    out.parts = work_of(*weights_, dims, size);
    const model::Parts only[] = {{true, false, false, false, false},
                                 {false, true, false, false, false},
                                 {false, false, true, false, false},
                                 {false, false, false, true, false},
                                 {false, false, false, false, true}};
    StepPart step;
    step.name = "step";
    for (const StepPart& p : out.parts) {
      step.gigabytes += p.gigabytes;
      step.gigaflops += p.gigaflops;
      step.roof_us += p.roof_us;
    }
    const auto time_parts = [&](const model::Parts& parts, StepPart& part) {
      time([&] { model_->begin(plan); }, [&, parts] { model_->compute(parts); }, part);
    };
    time_parts({}, step);
    out.same_logits = same_bits(plan, drawn.data(), untimed);
    for (size_t i = 0; i < out.parts.size(); ++i) time_parts(only[i], out.parts[i]);
    out.parts.insert(out.parts.begin(), step);
    if (shape.prefill) out.behind = decode_behind(plan);
    if (asked_.whole) {
      out.whole_tokens = batch * (shape.first() + shape.rows);
      out.whole_us = whole(plan);
    }
    for (auto& r : recordings_) r.reset();
    return out;
  }

 private:
  int64_t step_tokens() const {
    return asked_.prefill > 0 ? asked_.prefill : asked_.rows + (asked_.draft ? 1 : 0);
  }

  // The two kinds of draft behind a step of the target.
  void draft(const schedule::StepPlan& plan, StepSize& size, StepResult& out) {
    schedule::StepPlan pairs = plan;  // the ids are as good as those that follow
    pairs.restores.clear();
    const schedule::StepPlan behind = plan_draft(plan);
    std::vector<sample::Sampled> drawn(plan.samples.size());
    model_->forward(plan, drawn.data());
    ExpertCounter counter(shards_->experts(asked_.rank));
    model_->observe(&counter);
    model_->draft(pairs, 0, drawn.data());
    model_->observe(nullptr);
    size.distinct = out.distinct_experts = counter.distinct();
    size.choices = counter.choices();
    out.parts = {draft_work(*weights_, model_->dims(), size, false),
                 draft_work(*weights_, model_->dims(), size, true)};
    out.same_logits = true;
    for (const int32_t ahead : {0, 1}) {
      const schedule::StepPlan& timed = ahead == 0 ? pairs : behind;
      const auto from_the_start = [&] {
        model_->forward(plan, drawn.data());
        model_->draft(pairs, 0, drawn.data());
        model_->begin_draft(timed, ahead);
      };
      from_the_start();
      model_->compute_draft();
      model_->end_draft(timed, drawn.data());
      const std::vector<float> untimed = logits(drawn.size());
      const auto compute = [&] { model_->compute_draft(); };
      time([&] { model_->begin_draft(timed, ahead); }, compute, out.parts[ahead == 0 ? 1 : 0]);
      from_the_start();
      issue(compute, 0);
      model_->end_draft(timed, drawn.data());
      out.same_logits &= equal_and_finite(logits(drawn.size()), untimed);
    }
    for (auto& r : recordings_) r.reset();
  }

  model::ModelOptions sizes(const StepShape& shape) const {
    model::ModelOptions m;
    m.kv_dtype = kv_;
    const int64_t rows = shape.batch * shape.rows;
    m.limits.rows = rows;
    m.limits.decode_rows = shape.prefill ? shape.batch : rows;
    m.limits.sequences = shape.batch;
    m.limits.context = shape.tokens();
    m.limits.sampled_rows = shape.prefill ? shape.batch : rows;
    m.limits.pending_rows = asked_.draft ? kDraftDepth + 1 : asked_.rows;
    m.pages = shape.pages() + 1;
    m.slots = shape.batch + 1;
    m.snapshots = shape.batch;
    return m;
  }

  // Latents, index keys and states of tokens that were never computed.
  void fill_state(const model::ModelOptions& m) {
    const model::RankState& state = model_->state();
    fill_pages(state, m.pages, kv_, model_->dims(), ops_->memory(), *noise_);
    noise_->fill(state.slot(0), m.slots * state.layout().slot_bytes);
  }

  void save_state(int64_t batch) {
    schedule::StepPlan plan;
    for (int64_t i = 0; i < batch; ++i)
      plan.saves.push_back({static_cast<int32_t>(i + 1), static_cast<int32_t>(i), 0});
    model_->forward(plan, nullptr);
  }

  double expected_experts(int64_t rows) const {
    const double all = static_cast<double>(config_.text.n_routed_experts);
    const double chosen = static_cast<double>(config_.text.num_experts_per_tok);
    const double held = static_cast<double>(shards_->experts(asked_.rank).size());
    return held * (1 - std::pow(1 - chosen / all, static_cast<double>(rows)));
  }

  std::vector<float> logits(size_t rows) const {
    const Range own = shards_->vocabulary(asked_.rank);
    std::vector<float> out(rows * static_cast<size_t>(own.size()));
    for (size_t r = 0; r < rows; ++r) {
      const View row =
          model_->logits().row_range(static_cast<int64_t>(r), 1).col_range(own.begin, own.size());
      ops_->memory().download(out.data() + r * static_cast<size_t>(own.size()), row.data,
                              own.size() * int64_t{sizeof(float)});
    }
    return out;
  }

  void wait() const {
    float ignored = 0;
    ops_->memory().download(&ignored, model_->logits().data, sizeof ignored);
  }

  void issue(const std::function<void()>& compute, size_t recording) {
    if (recordings_[recording]) {
      recordings_[recording]->replay();
    } else {
      compute();
    }
  }

  // Rounds of as many steps as take 20 ms, by turns of two recordings of the same: what another build of a
  // step must differ by more than.
  void time(const std::function<void()>& begin, const std::function<void()>& compute, StepPart& out) {
    begin();
    for (auto& r : recordings_) r = ops_->record(compute);
    const auto round = [&](size_t recording, int64_t steps) {
      wait();
      const auto start = Clock::now();
      for (int64_t i = 0; i < steps; ++i) issue(compute, recording);
      wait();
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
             static_cast<double>(steps);
    };
    round(1, 1);
    round(0, 1);
    const int64_t steps = std::clamp<int64_t>(static_cast<int64_t>(20e3 / round(0, 2)), 1, 1000);
    std::vector<double> all, of[2];
    all.reserve(2 * static_cast<size_t>(asked_.rounds));
    for (auto& times : of) times.reserve(static_cast<size_t>(asked_.rounds));
    for (int64_t i = 0; i < asked_.rounds; ++i)
      for (const size_t r : {0, 1}) {
        of[r].push_back(round(r, steps));
        all.push_back(of[r].back());
      }
    out.us = median(all);
    out.us_min = *std::min_element(all.begin(), all.end());
    out.us_max = *std::max_element(all.begin(), all.end());
    out.a_a_percent = 100 * std::abs(median(of[0]) - median(of[1])) / out.us;
  }

  // A slice and what decodes behind it, as the engine runs them: arrays sent, state restored, draws received.
  DecodeBehind decode_behind(const schedule::StepPlan& slice) {
    DecodeBehind out;
    kernels::Memory& memory = ops_->memory();
    std::vector<sample::Sampled> drawn(slice.sequences.size());
    out.free_before = memory.available();
    model_->forward(slice, drawn.data());
    std::vector<double> times;
    times.reserve(kSteadySteps);
    for (int64_t n = 0; n <= kSteadySteps; ++n) {
      const schedule::StepPlan plan = plan_behind(slice, n);
      const auto start = Clock::now();
      model_->forward(plan, drawn.data());
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      if (n == 0) {
        out.first_us = us;
      } else {
        times.push_back(us);
      }
    }
    out.steady_us = median(times);
    out.free_after = memory.available();
    return out;
  }

  // All slices of the prompts that end with this one, as the engine runs them. Microseconds.
  double whole(const schedule::StepPlan& slice) {
    const kernels::Sequence& last = slice.sequences.front().rows;
    const int64_t tokens = last.first + last.rows;
    const int64_t rows = last.rows / kernels::kPageTokens * kernels::kPageTokens;
    std::vector<sample::Sampled> drawn(slice.sequences.size());
    wait();
    const auto start = Clock::now();
    for (int64_t at = 0; at < tokens; at += rows)
      model_->forward(plan_slice(slice, at, std::min(rows, tokens - at)), drawn.data());
    wait();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  // Against self-deception: what was timed computes what an ordinary step computes.
  bool same_bits(const schedule::StepPlan& plan, sample::Sampled* drawn, const std::vector<float>& untimed) {
    model_->begin(plan);
    issue([&] { model_->compute(); }, 0);
    model_->end(plan, drawn);
    return equal_and_finite(logits(plan.samples.size()), untimed);
  }

  static bool equal_and_finite(const std::vector<float>& timed, const std::vector<float>& untimed) {
    const bool finite = std::all_of(timed.begin(), timed.end(), [](float v) { return std::isfinite(v); });
    return finite && std::memcmp(timed.data(), untimed.data(), timed.size() * sizeof(float)) == 0;
  }

  StepCase asked_;
  DType kv_ = DType::bf16;
  ModelConfig config_;
  std::unique_ptr<ShardPlan> shards_;
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Unconnected> comm_;
  std::unique_ptr<Noise> noise_;
  std::shared_ptr<const model::ModelWeights> weights_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kernels::Recording> recordings_[2];
};

}  // namespace

Result<std::vector<StepResult>> run_step_bench(const StepCase& asked) {
  GODWIT_ASSIGN(const std::unique_ptr<Bench> bench, Bench::make(asked));
  std::vector<StepResult> out;
  for (const int64_t context : asked.contexts)
    for (const int64_t batch : asked.batches) {
      GODWIT_ASSIGN(StepResult one, bench->run(batch, context));
      out.push_back(std::move(one));
    }
  return out;
}

}  // namespace godwit::bench
