// Everything `godwit serve` can be told, typed and checked before anything is loaded (design §5). A flag is
// here only when it does something.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace godwit {

struct ServeConfig {
  // Model
  std::filesystem::path model;            // empty: find_default_model()
  std::vector<std::string> served_names;  // empty: the directory's name
  std::filesystem::path chat_template;    // empty: the model's chat_template.jinja
  std::string default_reasoning_effort;   // empty: the template's own default
  // Engine. 0 = chosen by the engine, which reports what it chose.
  std::string device = "auto";    // auto | cpu | cuda
  int threads = 0;                // compute threads; 0: all cores this process may use
  std::string kv = "auto";        // dtype of cached latents and index keys: auto | f32 | bf16 | fp8
  uint64_t gpu_memory = 0;        // bytes a GPU may give; 0: cache sizes alone decide
  int64_t context = 0;            // tokens a sequence may have, prompt and answer
  int64_t max_sequences = 0;      // that run at once
  int64_t max_waiting = 256;      // requests that may wait; one more gets 429
  int64_t itl_target_ms = 30;     // what a step that streams wait for should take at most
  int64_t prefill_tokens = 0;     // prompt rows one step may carry
  uint64_t host_cache = 0;        // bytes of the second cache tier
  int64_t step_deadline_s = 300;  // a step that takes longer is a fault; 0: none is
  std::filesystem::path dump_dir = std::filesystem::temp_directory_path();  // of steps that died; empty: none
  // Requests
  int64_t default_max_tokens = 0;  // when a request names none; 0: the server's 32,768
  std::optional<int64_t> seed;     // for requests without one; else drawn and reported
  // Network
  std::string host = "127.0.0.1";
  uint16_t port = 8000;                // 0: any free port, printed
  std::optional<uint16_t> admin_port;  // serves admin routes alone; without one loopback peers may use them
  uint64_t body_limit = 64ull << 20;   // bytes of a request body
  std::filesystem::path api_key_file;  // empty: everybody is let in
  std::vector<std::string> cors_origins;  // web pages that may use the server
  int64_t stored_responses = 1024;        // answers of /v1/responses that are kept
  uint64_t stored_bytes = 64ull << 20;    // and their bytes in all
  int64_t drain_timeout_s = 30;           // after SIGTERM, before streams end with an error event
  // Logging
  std::string log_level = "info";  // trace | debug | info | warn | error | off
};

// Declares the flags of `serve` on its subcommand; parsed values land in `config`, which must outlive it.
void bind_serve_options(CLI::App& command, ServeConfig& config);

// What single flags cannot see: model and template exist, limits fit together. Errors (usage) name the flag.
// Fills `model` with the default one when none was given (data_refused when it is not installed).
Result<void> resolve_serve_config(ServeConfig& config);

// models/tiny-glm5next next to the build directory, or ../share/godwit/models of an installed binary.
// `binary` is the path of the running program. Empty when neither exists.
std::filesystem::path find_default_model(const std::filesystem::path& binary);

}  // namespace godwit
