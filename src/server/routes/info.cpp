#include "base/clock.h"
#include "server/chat_page.h"
#include "server/error_response.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

metrics::EngineSnapshot snapshot(const ServerContext& context) {
  metrics::EngineSnapshot out;
  out.connections = context.connections();
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
                              {"prefill_tokens", e.prefill_tokens},
                              {"weight_bytes", e.weight_bytes},
                              {"cache_bytes", e.cache_bytes},
                              {"workspace_bytes", e.workspace_bytes},
                              {"ledger", ledger_json(e)},
                              {"adjusted", adjusted_json(e)},
                              {"running", s.running},
                              {"waiting", s.waiting},
                              {"pages_used", s.pages_used},
                              {"slots_used", s.slots_used},
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
