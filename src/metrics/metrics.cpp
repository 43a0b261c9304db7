#include "metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>
#include <sstream>

namespace godwit::metrics {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kLatency = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                          2.5,   5,      10,    20,   40,    80,   160, 320,  640, 1280};
const Buckets kInterToken = {0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03,
                             0.04,   0.06,  0.08,  0.1,   0.15,  0.25,  0.5,  1,     2.5,  10};
const Buckets kTokens = {1, 16, 64, 256, 1024, 4096, 16384, 65536, 131072, 262144, 524288, 1048576};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::mutex scrape;

  prometheus::Counter& counter(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Gauge& gauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  static void raise(prometheus::Counter& c, uint64_t total) {
    const double delta = static_cast<double>(total) - c.Value();
    if (delta > 0) c.Increment(delta);
  }

  prometheus::Family<prometheus::Counter>& responses = prometheus::BuildCounter()
                                                           .Name("godwit_requests_total")
                                                           .Help("HTTP answers by route and status code")
                                                           .Register(registry);
  prometheus::Family<prometheus::Counter>& finishes = prometheus::BuildCounter()
                                                          .Name("godwit_finished_total")
                                                          .Help("Ended generations by finish reason")
                                                          .Register(registry);
  prometheus::Family<prometheus::Counter>& key_requests =
      prometheus::BuildCounter()
          .Name("godwit_api_key_requests_total")
          .Help(
              "Requests by the name of their API key: accepted, limited by its limits, or with an unknown "
              "key")
          .Register(registry);
  prometheus::Counter& aborts =
      counter("godwit_aborts_total", "Clients that left before their answer was complete");
  prometheus::Counter& rollbacks =
      counter("godwit_tool_call_rollbacks_total", "Tool calls with an unknown name, given back as text");
  prometheus::Counter& reasoning = counter("godwit_reasoning_tokens_total", "Sampled tokens inside thinking");
  prometheus::Counter& prompt = counter("godwit_prompt_tokens_total", "Prompt tokens of admitted requests");
  prometheus::Counter& cached =
      counter("godwit_cached_tokens_total", "Prompt tokens taken from the prefix cache");
  prometheus::Counter& generated = counter("godwit_generated_tokens_total", "Sampled tokens");
  prometheus::Counter& steps = counter("godwit_engine_steps_total", "Engine steps");
  prometheus::Family<prometheus::Counter>& misses =
      prometheus::BuildCounter()
          .Name("godwit_prefix_misses_total")
          .Help("Admitted requests whose prompt, or the rest of it, was not cached, by reason")
          .Register(registry);
  prometheus::Counter& evicted = counter("godwit_evicted_pages_total", "Cached pages dropped to make room");
  prometheus::Counter& host_hits =
      counter("godwit_host_hits_total", "Prompts whose prefix came back from the host tier");
  prometheus::Counter& preemptions =
      counter("godwit_preemptions_total", "Requests that had to make room and continued later");
  prometheus::Gauge& ready = gauge("godwit_ready", "1 when a request would be accepted");
  prometheus::Gauge& running = gauge("godwit_requests_running", "Requests in the batch");
  prometheus::Gauge& waiting = gauge("godwit_requests_waiting", "Requests waiting for admission");
  prometheus::Gauge& pages_used = gauge("godwit_pages_used", "KV pages of 64 tokens in use");
  prometheus::Gauge& pages_total = gauge("godwit_pages_total", "KV pages there are");
  prometheus::Gauge& pages_cached =
      gauge("godwit_pages_cached", "KV pages that only the prefix cache holds: free to take");
  prometheus::Gauge& snapshots_used = gauge("godwit_snapshots_used", "State snapshots in the prefix cache");
  prometheus::Gauge& snapshots_total = gauge("godwit_snapshots_total", "State snapshots there are");
  prometheus::Gauge& host_pages_used = gauge("godwit_host_pages_used", "KV pages in the host tier");
  prometheus::Gauge& host_pages_total = gauge("godwit_host_pages_total", "KV pages the host tier holds");
  prometheus::Gauge& itl_target =
      gauge("godwit_itl_target_seconds", "What a step that streams wait for should take at most");
  prometheus::Gauge& prefill_limit = gauge("godwit_prefill_limit_tokens", "Prompt tokens a step may carry");
  prometheus::Gauge& prefill_budget =
      gauge("godwit_prefill_budget_tokens", "Prompt tokens that the last step with prompts was allowed");
  prometheus::Gauge& slots_used = gauge("godwit_slots_used", "Recurrent-state slots in use");
  prometheus::Gauge& slots_total = gauge("godwit_slots_total", "Sequences that can run at once");
  prometheus::Gauge& silent =
      gauge("godwit_engine_silent_seconds", "Time since a step ended or the engine was idle");
  prometheus::Family<prometheus::Gauge>& adjusted =
      prometheus::BuildGauge()
          .Name("godwit_setting_adjusted")
          .Help("Settings not in force as asked for, by what was requested and what is effective")
          .Register(registry);
  prometheus::Gauge& connections = gauge("godwit_connections", "Open client connections");
  prometheus::Gauge& body_bytes =
      gauge("godwit_request_body_bytes", "Bytes of large request bodies that arrive or wait to be prepared");
  prometheus::Histogram& ttft =
      histogram("godwit_time_to_first_token_seconds", "Request received to first token", kLatency);
  prometheus::Histogram& inter_token =
      histogram("godwit_inter_token_seconds", "Time between deliveries, per token delivered", kInterToken);
  prometheus::Histogram& total =
      histogram("godwit_request_seconds", "Request received to last token", kLatency);
  prometheus::Histogram& queue = histogram("godwit_queue_seconds", "Submitted to first scheduled", kLatency);
  prometheus::Histogram& prompt_length =
      histogram("godwit_request_prompt_tokens", "Prompt tokens of a request", kTokens);
  prometheus::Histogram& output_length =
      histogram("godwit_request_generated_tokens", "Sampled tokens of a request", kTokens);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::count_response(std::string_view route, int status) {
  impl_->responses.Add({{"route", std::string(route)}, {"code", std::to_string(status)}}).Increment();
}
void Metrics::count_key_request(std::string_view key, std::string_view result) {
  impl_->key_requests.Add({{"key", std::string(key)}, {"result", std::string(result)}}).Increment();
}
void Metrics::count_finish(std::string_view reason) {
  impl_->finishes.Add({{"reason", std::string(reason)}}).Increment();
}
void Metrics::count_abort() {
  impl_->aborts.Increment();
}
void Metrics::count_rollback() {
  impl_->rollbacks.Increment();
}
void Metrics::observe_inter_token(double seconds) {
  impl_->inter_token.Observe(seconds);
}

void Metrics::observe_request(const RequestSample& s) {
  if (s.queue_seconds >= 0) impl_->queue.Observe(s.queue_seconds);
  if (s.first_token_seconds >= 0) impl_->ttft.Observe(s.first_token_seconds);
  impl_->total.Observe(s.total_seconds);
  impl_->prompt_length.Observe(static_cast<double>(s.prompt_tokens));
  impl_->output_length.Observe(static_cast<double>(s.generated_tokens));
  impl_->reasoning.Increment(static_cast<double>(s.reasoning_tokens));
}

std::string Metrics::text(const EngineSnapshot& e) {
  std::lock_guard lock(impl_->scrape);  // raise() reads, then adds
  impl_->ready.Set(e.ready ? 1 : 0);
  impl_->running.Set(static_cast<double>(e.running));
  impl_->waiting.Set(static_cast<double>(e.waiting));
  impl_->pages_used.Set(static_cast<double>(e.pages_used));
  impl_->pages_total.Set(static_cast<double>(e.pages_total));
  impl_->slots_used.Set(static_cast<double>(e.slots_used));
  impl_->slots_total.Set(static_cast<double>(e.slots_total));
  impl_->connections.Set(static_cast<double>(e.connections));
  impl_->body_bytes.Set(static_cast<double>(e.body_bytes));
  impl_->silent.Set(e.silent_seconds);
  for (const AdjustedSetting& a : e.adjusted)
    impl_->adjusted
        .Add({{"setting", a.setting},
              {"requested", std::to_string(a.requested)},
              {"effective", std::to_string(a.effective)}})
        .Set(1);
  impl_->pages_cached.Set(static_cast<double>(e.pages_cached));
  impl_->snapshots_used.Set(static_cast<double>(e.snapshots_used));
  impl_->snapshots_total.Set(static_cast<double>(e.snapshots_total));
  impl_->host_pages_used.Set(static_cast<double>(e.host_pages_used));
  impl_->host_pages_total.Set(static_cast<double>(e.host_pages_total));
  impl_->itl_target.Set(e.itl_target_seconds);
  impl_->prefill_limit.Set(static_cast<double>(e.prefill_limit));
  impl_->prefill_budget.Set(static_cast<double>(e.prefill_budget));
  for (const auto& [reason, total] : e.misses) Impl::raise(impl_->misses.Add({{"reason", reason}}), total);
  Impl::raise(impl_->evicted, e.evicted_pages);
  Impl::raise(impl_->host_hits, e.host_hits);
  Impl::raise(impl_->preemptions, e.preemptions);
  Impl::raise(impl_->steps, e.steps);
  Impl::raise(impl_->prompt, e.prompt_tokens);
  Impl::raise(impl_->cached, e.cached_tokens);
  Impl::raise(impl_->generated, e.generated_tokens);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, impl_->registry.Collect());
  return out.str();
}

}  // namespace godwit::metrics
