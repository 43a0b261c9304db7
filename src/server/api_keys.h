// API keys: who may ask, and how much (api spec §4.2). The file holds hashes only; a line is
//
//   NAME sha256:HEX [concurrent=N] [per-minute=N] [body=BYTES] [isolated]
//
// NAME stands for the key in logs and metrics. `isolated`: its prefixes are shared with no other key.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"

namespace godwit::server {

class ApiKey {
 public:
  struct Limits {
    int64_t concurrent = 0;  // requests at once; 0 in each: no limit
    int64_t per_minute = 0;  // requests, in bursts of as many
    int64_t body_bytes = 0;
  };
  ApiKey(std::string name, const Sha256& digest, const Limits& limits, bool isolated)
      : name_(std::move(name)),
        digest_(digest),
        limits_(limits),
        isolated_(isolated),
        tokens_(static_cast<double>(limits.per_minute)) {}

  const std::string& name() const { return name_; }
  const Sha256& digest() const { return digest_; }
  uint64_t cache_salt() const;  // 0 unless isolated

  // Errors: too_large.
  Result<void> may_send(size_t body_bytes) const;
  // What the request occupies until it is dropped. Errors: too_large, overloaded, naming the limit.
  Result<std::shared_ptr<void>> admit(size_t body_bytes, int64_t now_ns);

 private:
  const std::string name_;
  const Sha256 digest_;
  const Limits limits_;
  const bool isolated_;
  std::atomic<int64_t> running_{0};
  std::mutex mutex_;  // of the bucket
  double tokens_;     // requests that may come at once
  int64_t filled_ns_ = 0;
};

class ApiKeys {
 public:
  // Errors: data_refused with file and line.
  static Result<ApiKeys> load(const std::filesystem::path& file);
  static Result<ApiKeys> parse(std::string_view text, std::string_view name);

  // Null when no key is that. Takes as long for one key as for another.
  ApiKey* find(std::string_view secret) const;

 private:
  std::vector<std::unique_ptr<ApiKey>> keys_;
};

}  // namespace godwit::server
