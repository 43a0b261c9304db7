#include "config/serve_config.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <limits>

#include "config/flag_values.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTinyModel = "tiny-glm5next";
constexpr int64_t kMaxTokens = 1 << 30;  // keeps products of counts far from int64's end
constexpr int64_t kDay = 86'400;         // in seconds

void bind_model(CLI::App& command, ServeConfig& config) {
  command
      .add_option("--model", config.model, "Checkpoint directory; default: the tiny model that comes along")
      ->type_name("DIR");
  command.add_option("--served-name", config.served_names, "Name clients may use as `model` (repeatable)")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--chat-template", config.chat_template, "Template file instead of the model's own")
      ->type_name("FILE");
  command
      .add_option("--default-reasoning-effort", config.default_reasoning_effort,
                  "Effort of requests that name none: none, low, high or max")
      ->type_name("E")
      ->check(CLI::IsMember({"none", "low", "high", "max"}).description(""));
}

void bind_engine(CLI::App& command, ServeConfig& config) {
  command.add_option("--device", config.device, "cpu, cuda, or auto: cuda where there is a device")
      ->capture_default_str()
      ->type_name("D")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}).description(""));
  command.add_option("--threads", config.threads, "Compute threads; default: all cores of this process")
      ->type_name("N")
      ->transform(whole_number(1, 1024));
  command
      .add_option(
          "--kv", config.kv,
          "Cache precision: f32, bf16 or fp8; auto is f32 on the CPU and bf16 on a GPU, which has no fp8")
      ->capture_default_str()
      ->type_name("T")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "fp8"}).description(""));
  command
      .add_option("--gpu-memory", config.gpu_memory,
                  "What a GPU may give, as in 130GiB: cached tokens take what the rest leaves")
      ->type_name("SIZE")
      ->transform(byte_size());
  command.add_option("--context", config.context, "Tokens of prompt and answer; default: what the model has")
      ->type_name("N")
      ->transform(whole_number(64, kMaxTokens));
  command.add_option("--max-sequences", config.max_sequences, "Requests that run at once")
      ->type_name("N")
      ->transform(whole_number(1, 65536));
  command.add_option("--max-waiting", config.max_waiting, "Requests that may wait; one more gets 429")
      ->capture_default_str()
      ->type_name("N")
      ->transform(whole_number(0, 1'000'000));
  command
      .add_option("--itl-target", config.itl_target_ms,
                  "Milliseconds between two tokens of a stream that prompts may not make longer")
      ->capture_default_str()
      ->type_name("MS")
      ->transform(whole_number(1, 60000));
  command
      .add_option("--prefill-tokens", config.prefill_tokens,
                  "Prompt tokens one step may carry, a multiple of 64: larger is faster for prompts,\n"
                  "smaller keeps running streams smoother")
      ->type_name("N")
      ->transform(whole_number(64, kMaxTokens));
  command
      .add_option("--host-cache", config.host_cache,
                  "Memory for prefixes and requests that had to leave the cache, as in 4GiB; 0 keeps none")
      ->type_name("SIZE")
      ->default_str("0")
      ->transform(byte_size());
  command
      .add_option("--step-deadline", config.step_deadline_s,
                  "Seconds after which a step counts as stuck and the server gives up; 0 never")
      ->capture_default_str()
      ->type_name("S")
      ->transform(whole_number(0, kDay));
  command
      .add_option("--dump-dir", config.dump_dir,
                  "Where a step that died is written, with the prompt ids in it; \"\" for nowhere")
      ->capture_default_str()
      ->type_name("DIR");
}

void bind_requests(CLI::App& command, ServeConfig& config) {
  command
      .add_option("--default-max-tokens", config.default_max_tokens,
                  "Answer limit of requests that name none; default: 32768, or what the\ncontext leaves")
      ->type_name("N")
      ->transform(whole_number(1, kMaxTokens));
  command.add_option("--seed", config.seed, "Seed of requests that bring none; default: drawn per request")
      ->type_name("S")
      ->transform(whole_number(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
}

void bind_network(CLI::App& command, ServeConfig& config) {
  command.add_option("--host", config.host, "Address to listen on; 0.0.0.0 for all")
      ->capture_default_str()
      ->type_name("ADDR");
  command.add_option("--port", config.port, "Port; 0 picks a free one and prints it")
      ->capture_default_str()
      ->type_name("P")
      ->transform(whole_number(0, 65535));
  command
      .add_option(
          "--admin-port", config.admin_port,
          "Second port, for /flush_cache and its like alone; else loopback clients may\nuse them on --port")
      ->type_name("P")
      ->transform(whole_number(0, 65535));
  command.add_option("--body-limit", config.body_limit, "Largest request body (413 beyond)")
      ->type_name("SIZE")
      ->default_str("64MiB")
      ->transform(byte_size());
  command
      .add_option(
          "--api-key-file", config.api_key_file,
          "Keys that clients must bring, one a line; make them with `godwit key`.\nDefault: none needed")
      ->type_name("FILE")
      ->check(CLI::ExistingFile.description(""));
  command
      .add_option("--cors-origin", config.cors_origins,
                  "Origin of web pages that may use the server, * for all (repeatable)")
      ->type_name("ORIGIN")
      ->check(web_origin())
      ->take_all()
      ->allow_extra_args(false);
  command
      .add_option("--stored-responses", config.stored_responses,
                  "Answers of /v1/responses that are kept for later requests; 0 keeps none")
      ->capture_default_str()
      ->type_name("N")
      ->transform(whole_number(0, 1'000'000));
  command.add_option("--stored-responses-size", config.stored_bytes, "Memory for them; the oldest go first")
      ->type_name("SIZE")
      ->default_str("64MiB")
      ->transform(byte_size());
  command
      .add_option("--drain-timeout", config.drain_timeout_s,
                  "Seconds after SIGTERM for running answers to finish")
      ->capture_default_str()
      ->type_name("S")
      ->transform(whole_number(0, kDay));
}

}  // namespace

void bind_serve_options(CLI::App& command, ServeConfig& config) {
  const std::pair<const char*, void (*)(CLI::App&, ServeConfig&)> groups[] = {
      {"Model", bind_model}, {"Engine", bind_engine}, {"Requests", bind_requests}, {"Network", bind_network}};
  for (const auto& [title, bind] : groups) {
    command.option_defaults()->group(title);
    bind(command, config);
  }
  command.option_defaults()->group("Options");
  command.add_option("--log-level", config.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->type_name("L")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}).description(""));
}

fs::path find_default_model(const fs::path& binary) {
  for (const char* place : {"../models", "../share/godwit/models"}) {
    std::error_code error;
    const fs::path dir = fs::weakly_canonical(binary.parent_path() / place / kTinyModel, error);
    if (!error && fs::exists(dir / "config.json", error)) return dir;
  }
  return {};
}

Result<void> resolve_serve_config(ServeConfig& config) {
  std::error_code error;
  if (config.model.empty()) {
    const fs::path binary = fs::read_symlink("/proc/self/exe", error);
    config.model = find_default_model(binary);
    if (config.model.empty()) {
      return make_error(ErrorCode::data_refused, "--model",
                        "none was given and {} is not installed beside {}; name a checkpoint directory",
                        kTinyModel, binary.string());
    }
  }
  if (!fs::is_directory(config.model, error)) {
    return make_error(ErrorCode::data_refused, "--model", "{} is not a directory{}", config.model.string(),
                      fs::exists(config.model, error) ? "; it takes the folder that holds config.json" : "");
  }
  if (!config.chat_template.empty() && !fs::is_regular_file(config.chat_template, error)) {
    return make_error(ErrorCode::data_refused, "--chat-template", "{} is not a file",
                      config.chat_template.string());
  }
  if (config.prefill_tokens % 64 != 0) {
    return make_error(ErrorCode::usage, "--prefill-tokens", "{} is not a multiple of 64 (a cache page)",
                      config.prefill_tokens);
  }
  if (config.context > 0 && config.default_max_tokens >= config.context) {
    return make_error(ErrorCode::usage, "--default-max-tokens",
                      "{} leaves no room for a prompt in a --context of {}", config.default_max_tokens,
                      config.context);
  }
  if (!config.dump_dir.empty() && !fs::is_directory(config.dump_dir, error)) {
    return make_error(ErrorCode::usage, "--dump-dir", "{} is not a directory", config.dump_dir.string());
  }
  if (config.body_limit < 1024) {
    return make_error(ErrorCode::usage, "--body-limit",
                      "{} bytes is too small for a request; 64MiB is the default", config.body_limit);
  }
  if (config.served_names.empty()) {
    fs::path dir = config.model;
    if (!dir.has_filename()) dir = dir.parent_path();  // "models/x/" names x
    config.served_names.push_back(fs::weakly_canonical(dir, error).filename().string());
  }
  return {};
}

}  // namespace godwit
