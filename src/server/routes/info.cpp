#include "base/clock.h"
#include "server/chat_page.h"
#include "server/error_response.h"
#include "server/openapi.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

metrics::EngineSnapshot snapshot(const ServerContext& context) {
  metrics::EngineSnapshot out;
  out.connections = context.connections();
  out.body_bytes = context.body_bytes();
  out.ready = context.accepting().ok();
  const auto model = context.model();
  if (!model) return out;
  const engine::Status status = model->service->status();
  const engine::Info& info = model->service->info();
  out.running = status.running;
  out.waiting = status.waiting;
  out.pages_used = status.pages_used;
  out.pages_total = info.pages;
  out.slots_used = status.slots_used;
  out.slots_total = info.max_sequences;
  out.steps = status.steps;
  out.prompt_tokens = status.prompt_tokens;
  out.cached_tokens = status.cached_tokens;
  out.generated_tokens = status.generated_tokens;
  // `none` is no miss.
  for (size_t i = 1; i < cache::kMissReasons; ++i)
    out.misses.emplace_back(cache::miss_name(static_cast<cache::MissReason>(i)), status.misses[i]);
  out.evicted_pages = status.evicted_pages;
  out.host_hits = status.host_hits;
  out.preemptions = status.preemptions;
  out.pages_cached = status.pages_cached;
  out.snapshots_used = status.snapshots_used;
  out.snapshots_total = info.snapshots;
  out.host_pages_used = status.host_pages_used;
  out.host_pages_total = info.host_pages;
  out.itl_target_seconds = static_cast<double>(info.itl_target_ms) * 1e-3;
  out.prefill_limit = info.prefill_tokens;
  out.prefill_budget = status.prefill_budget;
  out.silent_seconds = static_cast<double>(SteadyClock().now_ns() - status.last_progress_ns) * 1e-9;
  for (const engine::Adjustment& a : info.adjustments)
    out.adjusted.push_back({a.setting, a.requested, a.effective});
  return out;
}

Json ledger_json(const engine::Info& info) {
  JsonArray lines;
  for (const engine::LedgerLine& line : info.ledger)
    lines.push_back(Json::object({{"name", line.name}, {"bytes", line.bytes}, {"detail", line.detail}}));
  return lines;
}

Json adjusted_json(const engine::Info& info) {
  JsonArray out;
  for (const engine::Adjustment& a : info.adjustments)
    out.push_back(Json::object({{"setting", a.setting},
                                {"requested", a.requested},
                                {"effective", a.effective},
                                {"reason", a.reason}}));
  return out;
}

Json prefix_cache_json(const engine::Status& status) {
  JsonObject misses;
  for (size_t i = 1; i < cache::kMissReasons; ++i)
    misses.set(cache::miss_name(static_cast<cache::MissReason>(i)), status.misses[i]);
  return Json::object({{"query_tokens", status.prompt_tokens},
                       {"hit_tokens", status.cached_tokens},
                       {"host_hits", status.host_hits},
                       {"evicted_pages", status.evicted_pages},
                       {"misses", std::move(misses)}});
}

}  // namespace

void get_metrics(ServerContext& context, HttpRequest&&, const Writer& writer) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = context.metrics.text(snapshot(context));
  answer(context, "metrics", writer, std::move(response));
}

void get_server_info(ServerContext& context, HttpRequest&&, const Writer& writer) {
  HttpResponse response;
  response.body = R"({"build":)";
  append_json_string(response.body, context.build);
  response.body += R"(,"settings":)" + context.settings + R"(,"engine":)";
  if (const auto model = context.model()) {
    const engine::Info& e = model->service->info();
    const engine::Status s = model->service->status();
    append_json(response.body,
                Json::object({{"backend", e.backend},
                              {"backend_detail", e.backend_detail},
                              {"kv_dtype", e.kv_dtype},
                              {"context", e.context},
                              {"max_sequences", e.max_sequences},
                              {"max_waiting", e.max_waiting},
                              {"pages", e.pages},
                              {"snapshots", e.snapshots},
                              {"host_pages", e.host_pages},
                              {"prefill_tokens", e.prefill_tokens},
                              {"itl_target_ms", e.itl_target_ms},
                              {"weight_bytes", e.weight_bytes},
                              {"cache_bytes", e.cache_bytes},
                              {"workspace_bytes", e.workspace_bytes},
                              {"ledger", ledger_json(e)},
                              {"adjusted", adjusted_json(e)},
                              {"running", s.running},
                              {"waiting", s.waiting},
                              {"pages_used", s.pages_used},
                              {"slots_used", s.slots_used},
                              {"pages_cached", s.pages_cached},
                              {"snapshots_used", s.snapshots_used},
                              {"host_pages_used", s.host_pages_used},
                              {"host_snapshots_used", s.host_snapshots_used},
                              {"host_slots_used", s.host_slots_used},
                              {"prefill_budget", s.prefill_budget},
                              {"prefix_cache", prefix_cache_json(s)},
                              {"preemptions", s.preemptions},
                              {"steps", s.steps}}),
                JsonStyle::compact());
  } else {
    response.body += "null";
  }
  response.body += "}";
  answer(context, "server_info", writer, std::move(response));
}

void get_version(ServerContext& context, HttpRequest&&, const Writer& writer) {
  HttpResponse response;
  response.body = dump_json(Json::object({{"version", context.build}}), JsonStyle::compact());
  answer(context, "version", writer, std::move(response));
}

void get_openapi(ServerContext& context, HttpRequest&&, const Writer& writer) {
  HttpResponse response;
  response.body = std::string(openapi_document());
  answer(context, "openapi", writer, std::move(response));
}

void get_page(ServerContext& context, HttpRequest&&, const Writer& writer) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  // The page talks to this server only and shows what a model wrote: nothing else may run in it.
  response.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.body = std::string(chat_page());
  answer(context, "page", writer, std::move(response));
}

}  // namespace godwit::server
