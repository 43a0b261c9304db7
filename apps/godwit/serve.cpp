// godwit serve: answers probes at once, loads, serves, drains on SIGTERM (design §12).
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/fault.h"
#include "base/log.h"
#include "build_id.h"
#include "commands.h"
#include "config/model_config.h"
#include "config/serve_config.h"
#include "engine/engine.h"
#include "server/server.h"
#include "welcome.h"

namespace godwit {
namespace {

Json effective_settings(const ServeConfig& c) {
  return Json::object({{"model", c.model.string()},
                       {"device", c.device},
                       {"chat_template", c.chat_template.string()},
                       {"default_reasoning_effort", c.default_reasoning_effort},
                       {"seed", c.seed ? Json(*c.seed) : Json()},
                       {"host", c.host},
                       {"port", static_cast<int64_t>(c.port)},
                       {"admin_port", c.admin_port ? Json(static_cast<int64_t>(*c.admin_port)) : Json()},
                       {"body_limit", static_cast<int64_t>(c.body_limit)},
                       {"drain_timeout_s", c.drain_timeout_s},
                       {"step_deadline_s", c.step_deadline_s},
                       {"dump_dir", c.dump_dir.string()},
                       {"log_level", c.log_level}});
}

// A bar on a terminal; elsewhere a line of the log now and then.
void show_progress(double fraction, std::string_view what) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) {
    constexpr int kWidth = 30;
    const int filled = static_cast<int>(std::lround(fraction * kWidth));
    fmt::print(stderr, "\r\x1b[2K[{:<{}}] {:3.0f} % {}{}", std::string(static_cast<size_t>(filled), '='),
               kWidth, fraction * 100, what, fraction >= 1 ? "\n" : "");
    return;
  }
  constexpr auto kBetween = std::chrono::seconds(2);
  static auto said = std::chrono::steady_clock::now();  // nothing about what is done by then
  if (std::chrono::steady_clock::now() - said < kBetween) return;
  said = std::chrono::steady_clock::now();
  log_info("loading   {:.0f} %, {}", fraction * 100, what);
}

Result<std::shared_ptr<server::ServingModel>> load_model(const ServeConfig& config, server::Server& server,
                                                         std::stop_token stop) {
  const auto report = [&](double fraction, std::string_view what) {
    server.set_progress({std::string(what), fraction, ""});
    show_progress(fraction, what);
  };
  auto model = std::make_shared<server::ServingModel>();
  report(0, "reading tokenizer and chat template");
  GODWIT_ASSIGN(model->tokenizer, tokenizer::Tokenizer::load(config.model / "tokenizer.json"));
  model->control_ids = tokenizer::find_control_ids(*model->tokenizer);
  std::optional<std::filesystem::path> override_file;
  if (!config.chat_template.empty()) override_file = config.chat_template;
  GODWIT_ASSIGN(chat::ChatTemplate chat_template, chat::ChatTemplate::load(config.model, override_file));
  model->chat_template = std::make_shared<const chat::ChatTemplate>(std::move(chat_template));
  GODWIT_ASSIGN(const ModelConfig model_config, read_model_config(config.model));
  model->defaults = model_config.generation;
  model->names = config.served_names;
  if (model->names.empty()) {
    const auto directory = std::filesystem::weakly_canonical(config.model);
    model->names.push_back(directory.filename().string());
  }
  model->default_reasoning_effort = config.default_reasoning_effort;
  if (config.default_max_tokens > 0) model->default_max_tokens = config.default_max_tokens;
  model->seed = config.seed;
  model->created = std::time(nullptr);

  engine::EngineOptions options;
  options.model_dir = config.model;
  options.device = config.device;
  options.kv = kernels::cache_format_of(config.kv);
  options.device_memory = static_cast<int64_t>(config.gpu_memory);
  options.threads = config.threads;
  options.context = config.context;
  if (config.max_sequences > 0) options.max_sequences = config.max_sequences;
  options.itl_target_ms = config.itl_target_ms;
  if (config.prefill_tokens > 0) options.prefill_tokens = config.prefill_tokens;
  options.max_waiting = config.max_waiting;
  options.host_cache = static_cast<int64_t>(config.host_cache);
  options.step_deadline_s = config.step_deadline_s;
  options.dump_dir = config.dump_dir;
  options.build = std::string(build_id());
  options.stop = std::move(stop);
  options.progress = [&](double fraction, std::string_view what) { report(0.1 + 0.9 * fraction, what); };
  std::vector<bool> has_token(static_cast<size_t>(model->tokenizer->size()));
  for (size_t id = 0; id < has_token.size(); ++id)
    has_token[id] = model->tokenizer->has(static_cast<int32_t>(id));
  GODWIT_ASSIGN(model->service, engine::Engine::start(options, has_token));
  const engine::Info& info = model->service->info();
  GODWIT_ASSIGN(auto index, grammar::TokenIndex::make(model->tokenizer, static_cast<int32_t>(info.vocabulary),
                                                      info.stop_ids));
  model->grammars = std::make_shared<grammar::GrammarCache>(std::move(index));
  return model;
}

// What is in force, and why where it differs from what was asked (pains O2).
void say_what_is_effective(const ServeConfig& config, const server::ServingModel& model,
                           const server::Server& server) {
  const engine::Info& e = model.service->info();
  const auto chosen = [](int64_t asked, int64_t got) {
    return asked == 0     ? fmt::format("{} (default)", got)
           : asked == got ? fmt::format("{}", got)
                          : fmt::format("{} (asked for {})", got, asked);
  };
  constexpr double kMiB = 1 << 20;
  log_info("godwit {}", build_id());
  for (const auto& [flag, source] : option_sources()) log_info("flag      --{} from {}", flag, source);
  log_info("model     {} from {}", model.names[0], config.model.string());
  log_info("backend   {} ({})", e.backend, e.backend_detail);
  log_info("context   {} tokens, sequences {}, waiting {}", chosen(config.context, e.context),
           chosen(config.max_sequences, e.max_sequences), e.max_waiting);
  log_info("prefill   {} tokens a step", chosen(config.prefill_tokens, e.prefill_tokens));
  log_info("memory    weights {:.1f} MiB, cache {:.1f} MiB ({} pages of 64 tokens, {}), workspace {:.1f} MiB",
           static_cast<double>(e.weight_bytes) / kMiB, static_cast<double>(e.cache_bytes) / kMiB, e.pages,
           e.kv_dtype, static_cast<double>(e.workspace_bytes) / kMiB);
  log_info(
      "sampling  temperature {}, top_p {} unless a request says otherwise; at most {} tokens unless asked "
      "for",
      model.defaults.temperature.value_or(1), model.defaults.top_p.value_or(1), model.default_max_tokens);
  if (server.admin_port() != 0) log_info("admin     http://{}:{}", config.host, server.admin_port());
  fmt::print("{}", welcome_text(config, server.port()));
  std::fflush(stdout);
}

// The signal that ends the server, or 0 when its engine has died.
int wait_for_end(const sigset_t& signals, server::Server& server) {
  constexpr timespec kLook{0, 100'000'000};
  while (true) {
    const int received = sigtimedwait(&signals, nullptr, &kLook);
    if (received > 0) return received;
    const auto model = server.context().model();
    if (model && model->service->status().health == engine::Health::dead) return 0;
  }
}

int serve(ServeConfig config) {
  if (auto resolved = resolve_serve_config(config); !resolved) return report_failure(resolved.error());
  start_logging(config.log_level);
#ifdef GODWIT_FAULTS
  fault::arm_from_environment();
#endif

  // Before any thread exists, so that all of them inherit the mask and only this one takes the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  server::ServerOptions options;
  options.http.host = config.host;
  options.http.port = config.port;
  options.admin_port = config.admin_port;
  options.http.threads = std::clamp(cores / 4, 1, 4);
  options.http.limits.body_bytes = config.body_limit;
  if (!config.api_key_file.empty()) {
    auto keys = server::ApiKeys::load(config.api_key_file);
    if (!keys) return report_failure(keys.error());
    options.keys = std::make_shared<const server::ApiKeys>(std::move(*keys));
  }
  options.cors_origins = config.cors_origins;
  options.sizes.stored_responses = static_cast<size_t>(config.stored_responses);
  options.sizes.stored_bytes = config.stored_bytes;
  options.sizes.text_threads = std::clamp(cores / 4, 1, 8);
  options.build = std::string(build_id());
  options.settings = dump_json(effective_settings(config), JsonStyle::compact());
  auto started = server::Server::start(options);
  if (!started) return report_failure(started.error());
  server::Server& server = **started;

  std::mutex mutex;
  std::optional<Error> failure;
  std::stop_source stop_loading;
  std::promise<void> loading;
  std::future<void> loading_ended = loading.get_future();
  std::thread loader([&] {
    auto model = load_model(config, server, stop_loading.get_token());
    loading.set_value();
    if (model) {
      server.set_model(*model);
      say_what_is_effective(config, **model, server);
      return;
    }
    server.set_progress({"failed", 0, model.error().message});
    std::lock_guard lock(mutex);
    failure = std::move(model.error());
    kill(getpid(), SIGTERM);  // wakes the wait below
  });

  const int received = wait_for_end(signals, server);
  {
    std::lock_guard lock(mutex);
    if (failure) {
      loader.join();
      return report_failure(*failure);
    }
  }
  if (!server.context().model()) {
    stop_loading.request_stop();  // nothing is owed to anybody, and what cannot be stopped is not waited for
    if (loading_ended.wait_for(std::chrono::seconds(1)) != std::future_status::ready) std::_Exit(0);
  }
  loader.join();
  if (!server.context().model()) return 0;
  if (received == 0) {
    // A step may be stuck for ever, so nothing is torn down: the streams get their last event, and that is
    // all.
    log_error("the engine is dead: leaving with exit code 1");
    server.drain(0);
    spdlog::default_logger()->flush();
    std::_Exit(1);
  }
  log_info("signal {}: no new requests; running ones have {} s to end", received, config.drain_timeout_s);
  std::thread([signals] {
    int second = 0;
    sigwait(&signals, &second);
    log_warn("second signal: leaving at once");
    std::_Exit(1);
  }).detach();
  server.drain(config.drain_timeout_s * 1000);
  log_info("all streams have ended");
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, std::function<int()>& run) {
  auto config = std::make_shared<ServeConfig>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model over the OpenAI API");
  bind_serve_options(*command, *config);
  command->callback([config, &run] { run = [config] { return serve(*config); }; });
}

}  // namespace godwit
