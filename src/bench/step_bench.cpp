#include "bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <set>

#include "bench/shape.h"
#include "bench/step_work.h"
#include "bench/synthetic.h"
#include "kernels/make_ops.h"
#include "model/glm5_next/dims.h"
#include "model/glm5_next/model.h"

namespace godwit::bench {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::kPageTokens;

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

int64_t pages_for(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

class Bench {
 public:
  static Result<std::unique_ptr<Bench>> make(const StepCase& asked) {
    auto b = std::make_unique<Bench>();
    b->asked_ = asked;
    GODWIT_ASSIGN(b->config_, read_shape(asked.shape));
    GODWIT_ASSIGN(ShardPlan shards, ShardPlan::make(b->config_.text, asked.tp, asked.ep));
    b->shards_ = std::make_unique<ShardPlan>(std::move(shards));
    if (asked.rank < 0 || asked.rank >= asked.tp)
      return make_error(ErrorCode::usage, "--rank", "--rank {} is not below --tp {}", asked.rank, asked.tp);
    GODWIT_ASSIGN(b->ops_, kernels::make_ops(asked.device, 0));
    b->comm_ = std::make_unique<Unconnected>(asked.rank, asked.tp);
    return b;
  }

  Result<StepResult> run(int64_t batch, int64_t context) {
    StepResult out;
    out.batch = batch;
    out.context = context;
    out.rows = asked_.prefill > 0 ? asked_.prefill : asked_.rows;
    const model::ModelOptions options = sizes(batch, context);
    const kernels::Dims dims = model::rank_dims(config_.text, *shards_);
    model_.reset();  // its caches make room; the weights stay
    kernels::Memory& memory = ops_->memory();
    const model::ModelBytes bytes = price(config_.text, *shards_, options, *ops_);
    const int64_t needed = bytes.pages + bytes.slots + bytes.snapshots + bytes.workspace + bytes.scratch;
    try {
      if (!noise_) noise_ = std::make_unique<Noise>(memory);
      if (!weights_) weights_ = make_weights(config_, *shards_, asked_.rank, memory, *noise_);
    } catch (const std::bad_alloc&) {
      return make_error(ErrorCode::device, "", "the weights of this rank do not fit the device");
    }
    if (memory.available() > 0 && needed > memory.available()) {
      out.refused =
          fmt::format("{:.1f} GB of caches and buffers, {:.1f} GB are free",
                      static_cast<double>(needed) / 1e9, static_cast<double>(memory.available()) / 1e9);
      return out;
    }
    GODWIT_ASSIGN(model_, model::Model::assemble(weights_, config_, *shards_, *ops_, *comm_, options));
    fill_state(options);
    const schedule::StepPlan plan = make_plan(batch, context);
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
                      static_cast<double>(config_.text.n_routed_experts)};
    if (asked_.prefill == 0) {  // an observer is given every stream of every row: a GB a layer of a slice
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
    time(plan, {}, step);
    out.same_logits = same_bits(plan, drawn.data(), untimed);
    for (size_t i = 0; i < out.parts.size(); ++i) time(plan, only[i], out.parts[i]);
    out.parts.insert(out.parts.begin(), step);
    recording_.reset();
    return out;
  }

 private:
  model::ModelOptions sizes(int64_t batch, int64_t context) const {
    model::ModelOptions m;
    m.kv_dtype = asked_.device == "cuda" ? DType::bf16 : DType::f32;
    const int64_t rows = asked_.prefill > 0 ? asked_.prefill : batch * asked_.rows;
    m.limits.rows = rows;
    m.limits.decode_rows = asked_.prefill > 0 ? 1 : rows;
    m.limits.sequences = batch;
    m.limits.context = context + (asked_.prefill > 0 ? asked_.prefill : asked_.rows);
    m.limits.sampled_rows = asked_.prefill > 0 ? 1 : rows;
    m.limits.pending_rows = asked_.rows;
    m.pages = batch * pages_for(m.limits.context) + 1;
    m.slots = batch + 1;
    m.snapshots = batch;
    return m;
  }

  // Latents, index keys and states of tokens that were never computed.
  void fill_state(const model::ModelOptions& m) {
    const model::RankState& state = model_->state();
    noise_->fill(state.page(0), m.pages * state.layout().page_bytes);
    noise_->fill(state.slot(0), m.slots * state.layout().slot_bytes);
  }

  schedule::StepPlan make_plan(int64_t batch, int64_t context) const {
    const int64_t rows = asked_.prefill > 0 ? asked_.prefill : asked_.rows;
    const int64_t first = asked_.prefill > 0 ? context / kPageTokens * kPageTokens : context;
    const int64_t pages = pages_for(first + rows);
    std::vector<int32_t> order(static_cast<size_t>(batch * pages));
    std::iota(order.begin(), order.end(), 1);
    std::mt19937 random(5);
    std::shuffle(order.begin(), order.end(), random);
    schedule::StepPlan plan;
    plan.pages = order;
    for (int64_t i = 0; i < batch; ++i) {
      schedule::PlanSequence p;
      p.request = static_cast<uint64_t>(i);
      p.rows.first = first;
      p.rows.row = plan.rows();
      p.rows.rows = static_cast<int32_t>(rows);
      p.rows.slot = static_cast<int32_t>(i + 1);
      p.rows.page_offset = static_cast<int32_t>(i * pages);
      p.rows.kind = asked_.prefill > 0 ? kernels::RowKind::prefill
                    : rows > 1         ? kernels::RowKind::verify
                                       : kernels::RowKind::decode;
      p.pages = static_cast<int32_t>(pages);
      p.sampled_rows = asked_.prefill > 0 ? 1 : static_cast<int32_t>(rows);
      for (int64_t r = 0; r < rows; ++r)
        plan.ids.push_back(
            static_cast<int32_t>(random() % static_cast<uint32_t>(shards_->vocabulary(asked_.rank).size())) +
            static_cast<int32_t>(shards_->vocabulary(asked_.rank).begin));
      for (int64_t r = rows - p.sampled_rows; r < rows; ++r) {
        sample::SamplingRow s;
        s.temperature = 0;
        s.slot = p.rows.slot;
        s.position = first + r + 1;
        plan.samples.push_back(s);
      }
      plan.restores.push_back({p.rows.slot, static_cast<int32_t>(i), first});
      plan.sequences.push_back(p);
    }
    plan.decode_sequences = asked_.prefill > 0 ? 0 : static_cast<int32_t>(batch);
    return plan;
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

  void issue(const model::Parts& parts) {
    if (recording_) {
      recording_->replay();
    } else {
      model_->compute(parts);
    }
  }

  // Rounds of as many steps as take 20 ms.
  void time(const schedule::StepPlan& plan, const model::Parts& parts, StepPart& out) {
    model_->begin(plan);
    recording_ = ops_->record([&] { model_->compute(parts); });
    const auto round = [&](int64_t steps) {
      wait();
      const auto start = Clock::now();
      for (int64_t i = 0; i < steps; ++i) issue(parts);
      wait();
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
             static_cast<double>(steps);
    };
    round(1);
    const int64_t steps = std::clamp<int64_t>(static_cast<int64_t>(20e3 / round(2)), 1, 1000);
    std::vector<double> times;
    for (int i = 0; i < asked_.rounds; ++i) times.push_back(round(steps));
    std::sort(times.begin(), times.end());
    out.us = times[times.size() / 2];
    out.us_min = times.front();
    out.us_max = times.back();
  }

  // Against self-deception: what was timed computes what an ordinary step computes.
  bool same_bits(const schedule::StepPlan& plan, sample::Sampled* drawn, const std::vector<float>& untimed) {
    model_->begin(plan);
    issue({});
    model_->end(plan, drawn);
    const std::vector<float> timed = logits(plan.samples.size());
    const bool finite = std::all_of(timed.begin(), timed.end(), [](float v) { return std::isfinite(v); });
    return finite && std::memcmp(timed.data(), untimed.data(), timed.size() * sizeof(float)) == 0;
  }

  StepCase asked_;
  ModelConfig config_;
  std::unique_ptr<ShardPlan> shards_;
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Unconnected> comm_;
  std::unique_ptr<Noise> noise_;
  std::shared_ptr<const model::ModelWeights> weights_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kernels::Recording> recording_;
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
