#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "base/log.h"
#include "server/caught.h"
#include "server/error_response.h"
#include "server/mailbox.h"

namespace godwit::server {
namespace {

constexpr int kClientGone = 499;  // the usual stand-in where no status could be sent

int64_t now_ns() {
  return SteadyClock().now_ns();
}
double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

class Generation final : public Exchange, public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::unique_ptr<GenerationPlan> plan, engine::Service& service, metrics::Metrics& metrics,
             std::shared_ptr<ResponseWriter> writer)
      : plan_(std::move(plan)), service_(service), metrics_(metrics), writer_(std::move(writer)) {}

  void start();
  void on_gone() override;
  void on_drained() override { pump(); }
  void on_silence() override;

 private:
  struct Choice {
    std::shared_ptr<engine::TokenSink> sink;
    bool ended = false;
    int64_t last_delivery_ns = 0;
  };

  void submit();
  void pump();
  void pump_choices();
  void deliver(size_t index);
  void fail(const Error& error);
  void complete();
  void cancel_all();
  void keep_best();
  Usage usage() const;
  Outcome outcome() const;
  void record(std::string_view finish);
  std::string* stream() { return plan_->stream ? &writer_->buffer() : nullptr; }

  std::unique_ptr<GenerationPlan> plan_;
  engine::Service& service_;
  metrics::Metrics& metrics_;
  std::shared_ptr<ResponseWriter> writer_;
  std::vector<Choice> choices_;
  std::vector<std::unique_ptr<ChoiceOutput>> dropped_;  // what best_of left; it was generated all the same
  engine::TokenSink::Batch batch_;
  size_t running_ = 0;
  bool streaming_ = false;  // the head has been sent
  bool over_ = false;
  int64_t queued_ns_ = -1;
  engine::Start start_;  // of the first choice
  int64_t first_token_ns_ = 0;
  int64_t last_token_ns_ = 0;
};

void Generation::start() {
  const auto started = caught([this]() -> Result<void> {
    submit();
    return {};
  });
  if (!started && !over_) fail(started.error());
}

void Generation::submit() {
  if (writer_->gone()) {
    metrics_.count_abort();
    return record("client_gone");
  }
  const size_t n = plan_->requests.size();
  choices_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    engine::Request& request = plan_->requests[i];
    // From the delivery thread: nothing but a post. The exchange may have ended meanwhile.
    auto wake = [weak = weak_from_this(), mailbox = writer_->mailbox()] {
      mailbox->post([weak] {
        if (auto self = weak.lock()) self->pump();
      });
    };
    choices_[i].sink = std::make_shared<engine::TokenSink>(kSinkTokens, std::move(wake));
    request.sink = choices_[i].sink;
    if (auto accepted = service_.submit(std::move(request)); !accepted) {
      over_ = true;
      cancel_all();
      writer_->respond(error_response(accepted.error(), plan_->errors));
      return record("refused");
    }
  }
  running_ = n;
  plan_->requests.clear();
  writer_->attach(shared_from_this());
  if (plan_->stream) {
    writer_->begin_stream();
    streaming_ = true;
  }
  for (auto& output : plan_->outputs) output->begin(stream());
  if (plan_->stream) writer_->flush();
}

void Generation::pump() {
  const auto pumped = caught([this]() -> Result<void> {
    pump_choices();
    return {};
  });
  if (!pumped && !over_) fail(pumped.error());
}

void Generation::pump_choices() {
  for (size_t i = 0; i < choices_.size() && !over_; ++i) {
    if (choices_[i].ended) continue;
    if (plan_->stream && writer_->congested()) break;  // the sink fills up and pauses its sequence
    deliver(i);
  }
  if (over_) return;
  if (running_ == 0) return complete();
  if (plan_->stream) writer_->flush();
}

void Generation::deliver(size_t index) {
  Choice& choice = choices_[index];
  ChoiceOutput& output = *plan_->outputs[index];
  choice.sink->take(batch_);
  if (batch_.start) {
    if (index % static_cast<size_t>(plan_->choices_per_prompt) == 0)
      plan_->counted.cached_tokens += batch_.start->cached_tokens;
    queued_ns_ = std::max(queued_ns_, batch_.start->queued_ns);
    if (index == 0) {
      start_ = *batch_.start;
      if (plan_->stream) plan_->wire->begin(writer_->buffer(), plan_->counted);
    }
  }
  if (!batch_.scores.empty()) output.push_scores(batch_.scores, batch_.score_top, stream());
  if (!batch_.tokens.empty()) {
    last_token_ns_ = now_ns();
    if (first_token_ns_ == 0) first_token_ns_ = last_token_ns_;
    if (choice.last_delivery_ns != 0) {
      metrics_.observe_inter_token(seconds(last_token_ns_ - choice.last_delivery_ns) /
                                   static_cast<double>(batch_.tokens.size()));
    }
    choice.last_delivery_ns = last_token_ns_;
    output.push(batch_.tokens, batch_.top, stream());
  }
  // We cancel only sequences that nobody waits for: a cancelled one here is an error, too.
  if (batch_.end && !output.stopped() &&
      (batch_.end->reason == engine::FinishReason::error ||
       batch_.end->reason == engine::FinishReason::cancelled)) {
    return fail(engine::error_of(*batch_.end));
  }
  if (!batch_.end && !output.stopped()) return;
  if (!batch_.end) choice.sink->cancel();
  output.end(batch_.end ? batch_.end->reason : engine::FinishReason::stop,
             batch_.end ? batch_.end->stop_id : -1, stream());
  for (int64_t k = 0; k < output.roll_backs(); ++k) metrics_.count_rollback();
  choice.ended = true;
  --running_;
}

// After the first byte an error can only be an event; before, it is an ordinary answer (api spec §4.4).
void Generation::fail(const Error& error) {
  over_ = true;
  cancel_all();
  if (streaming_) {
    plan_->wire->fail(writer_->buffer(), error);
    writer_->end_stream();
  } else {
    writer_->respond(error_response(error, plan_->errors));
  }
  metrics_.count_finish("error");
  log_warn("{} failed: {}", plan_->errors.request_id, error.message);
  record("error");
}

void Generation::complete() {
  over_ = true;
  if (plan_->stream) {
    plan_->wire->end(writer_->buffer(), outcome());
    writer_->end_stream();
  } else {
    HttpResponse response;
    keep_best();
    response.body = plan_->wire->body(plan_->outputs, outcome());
    writer_->respond(std::move(response));
  }
  for (const auto& output : plan_->outputs) metrics_.count_finish(output->finish());
  record(plan_->outputs[0]->finish());
}

// With best_of: the most likely choices of each prompt stay and are numbered anew.
void Generation::keep_best() {
  if (plan_->kept_per_prompt == 0) return;
  std::vector<std::unique_ptr<ChoiceOutput>> kept;
  for (auto first = plan_->outputs.begin(); first != plan_->outputs.end();
       first += plan_->choices_per_prompt) {
    std::stable_sort(first, first + plan_->choices_per_prompt,
                     [](const auto& a, const auto& b) { return a->mean_logprob() > b->mean_logprob(); });
    const auto rest = first + plan_->kept_per_prompt;
    std::move(first, rest, std::back_inserter(kept));
    std::move(rest, first + plan_->choices_per_prompt, std::back_inserter(dropped_));
  }
  plan_->outputs = std::move(kept);
  for (size_t i = 0; i < plan_->outputs.size(); ++i) plan_->outputs[i]->set_index(static_cast<int>(i));
}

Usage Generation::usage() const {
  Usage u = plan_->counted;
  const auto add = [&u](const std::vector<std::unique_ptr<ChoiceOutput>>& outputs) {
    for (const auto& output : outputs) {
      u.completion_tokens += output->used_tokens();
      u.reasoning_tokens += output->reasoning_tokens();
    }
  };
  add(plan_->outputs);
  add(dropped_);
  return u;
}

Outcome Generation::outcome() const {
  Outcome out;
  out.usage = usage();
  out.start = start_;
  out.queued_ms = std::max<double>(0, static_cast<double>(queued_ns_) * 1e-6);
  if (first_token_ns_ != 0) out.first_token_ms = seconds(first_token_ns_ - plan_->received_ns) * 1e3;
  const double decode = seconds(last_token_ns_ - first_token_ns_);
  if (decode > 0) out.tokens_per_second = static_cast<double>(out.usage.completion_tokens - 1) / decode;
  return out;
}

void Generation::on_silence() {
  if (over_) return;
  plan_->wire->silence(writer_->buffer());
  writer_->flush();
}

void Generation::on_gone() {
  if (over_) return;
  over_ = true;
  cancel_all();
  metrics_.count_abort();
  metrics_.count_finish("cancelled");
  record("client_gone");
}

void Generation::cancel_all() {
  for (Choice& choice : choices_) {
    if (choice.sink) choice.sink->cancel();
  }
}

// Why the rest of the prompt was not in the cache (design §9).
std::string miss_word(const engine::Start& start) {
  if (start.miss != engine::MissReason::first_difference) return std::string(cache::miss_name(start.miss));
  return fmt::format("first_difference_at_{}", start.first_difference_at);
}

void Generation::record(std::string_view finish) {
  const Usage u = usage();
  const int64_t end = now_ns();
  metrics::RequestSample sample;
  sample.prompt_tokens = u.prompt_tokens;
  sample.generated_tokens = u.completion_tokens;
  sample.reasoning_tokens = u.reasoning_tokens;
  sample.total_seconds = seconds(end - plan_->received_ns);
  if (queued_ns_ >= 0) sample.queue_seconds = seconds(queued_ns_);
  if (first_token_ns_ != 0) sample.first_token_seconds = seconds(first_token_ns_ - plan_->received_ns);
  if (finish != "refused") metrics_.observe_request(sample);
  metrics_.count_response(plan_->route, finish == "client_gone" ? kClientGone : writer_->status());
  const double decode = seconds(last_token_ns_ - first_token_ns_);
  log_info("{} {}{}{} prompt={} cached={} miss={} out={} ttft={:.1f}ms {:.1f}tok/s finish={} total={:.0f}ms",
           plan_->errors.request_id, plan_->route, plan_->key.empty() ? "" : " key=", plan_->key,
           u.prompt_tokens, u.cached_tokens, miss_word(start_), u.completion_tokens,
           std::max<double>(0, sample.first_token_seconds * 1e3),
           decode > 0 ? static_cast<double>(u.completion_tokens - 1) / decode : 0, finish,
           sample.total_seconds * 1e3);
}

}  // namespace

void start_generation(std::unique_ptr<GenerationPlan> plan, engine::Service& service,
                      metrics::Metrics& metrics, const std::shared_ptr<ResponseWriter>& writer) {
  std::make_shared<Generation>(std::move(plan), service, metrics, writer)->start();
}

}  // namespace godwit::server
