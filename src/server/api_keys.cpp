#include "server/api_keys.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/hash.h"

namespace godwit::server {
namespace {

constexpr size_t kMaxName = 64;

std::optional<Sha256> digest_of(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + 64) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  Sha256 out;
  for (size_t i = 0; i < out.size(); ++i) {
    const char* const first = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(first, first + 2, out[i], 16);
    if (error != std::errc() || end != first + 2) return std::nullopt;
  }
  return out;
}

bool usable_name(std::string_view name) {
  return name.size() <= kMaxName && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
                  c == '_' || c == '.';
         });
}

Result<std::unique_ptr<ApiKey>> parse_line(const std::string& line, const std::string& where) {
  // Messages quote only words that are known: who writes a key into the file, as many programs want it, must
  // not find it in the log as well.
  std::istringstream words(line);
  std::string name, hash, word;
  words >> name >> hash;
  if (!usable_name(name)) {
    return make_error(ErrorCode::data_refused, where,
                      "the name may only have letters, digits, '-', '_' and '.', and {} of them", kMaxName);
  }
  const auto digest = digest_of(hash);
  if (!digest) {
    return make_error(ErrorCode::data_refused, where,
                      "a line is a name, then sha256: and 64 hex digits, never the key itself; make one with "
                      "`godwit key NAME`");
  }
  ApiKey::Limits limits;
  bool isolated = false;
  while (words >> word) {
    if (word == "isolated") {
      isolated = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    int64_t* const limit = key == "concurrent"   ? &limits.concurrent
                           : key == "per-minute" ? &limits.per_minute
                           : key == "body"       ? &limits.body_bytes
                                                 : nullptr;
    const std::string value = equals == word.npos ? "" : word.substr(equals + 1);
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), *(limit ? limit : &limits.concurrent));
    if (!limit || error != std::errc() || end != value.data() + value.size() || *limit < 1) {
      return make_error(ErrorCode::data_refused, where,
                        "{} is not understood; there are concurrent=N, per-minute=N, body=BYTES with numbers "
                        "from 1 on, and isolated",
                        limit ? word : "what comes after the hash");
    }
  }
  return std::make_unique<ApiKey>(std::move(name), *digest, limits, isolated);
}

// No early end: the time must not tell how much was right.
bool same(const Sha256& a, const Sha256& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace

uint64_t ApiKey::cache_salt() const {
  return isolated_ ? hash_bytes(name_) : 0;
}

Result<void> ApiKey::may_send(size_t body_bytes) const {
  if (limits_.body_bytes == 0 || body_bytes <= static_cast<size_t>(limits_.body_bytes)) return {};
  return make_error(ErrorCode::too_large, "", "the body has {} bytes; this API key may send {}", body_bytes,
                    limits_.body_bytes);
}

Result<std::shared_ptr<void>> ApiKey::admit(size_t body_bytes, int64_t now_ns) {
  GODWIT_TRY(may_send(body_bytes));
  if (running_.fetch_add(1) >= limits_.concurrent && limits_.concurrent > 0) {
    running_.fetch_sub(1);
    return make_error(ErrorCode::overloaded, "", "this API key has {} requests running, as many as it may",
                      limits_.concurrent);
  }
  std::shared_ptr<void> lease(
      &running_, [](void* running) { static_cast<std::atomic<int64_t>*>(running)->fetch_sub(1); });
  if (limits_.per_minute > 0) {
    const auto most = static_cast<double>(limits_.per_minute);
    std::lock_guard lock(mutex_);
    tokens_ = std::min(most, tokens_ + static_cast<double>(now_ns - filled_ns_) * most / 60e9);
    filled_ns_ = now_ns;
    if (tokens_ < 1) {
      return make_error(ErrorCode::overloaded, "", "this API key may send {} requests a minute",
                        limits_.per_minute);
    }
    tokens_ -= 1;
  }
  return lease;
}

Result<ApiKeys> ApiKeys::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return make_error(ErrorCode::data_refused, "--api-key-file", "{} cannot be read", file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return parse(text.str(), file.string());
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view name) {
  ApiKeys out;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line.erase(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    GODWIT_ASSIGN(auto key, parse_line(line, where));
    for (const auto& other : out.keys_) {
      if (other->name() == key->name() || other->digest() == key->digest()) {
        return make_error(ErrorCode::data_refused, where, "{} has the name or the key of a line before",
                          key->name());
      }
    }
    out.keys_.push_back(std::move(key));
  }
  // An empty file would open the server to everybody, which is not what a key file is for.
  if (out.keys_.empty())
    return make_error(ErrorCode::data_refused, std::string(name),
                      "has no key; make one with `godwit key NAME`");
  return out;
}

ApiKey* ApiKeys::find(std::string_view secret) const {
  const Sha256 digest = sha256(secret);
  ApiKey* found = nullptr;
  for (const auto& key : keys_) {
    if (same(key->digest(), digest)) found = key.get();
  }
  return found;
}

}  // namespace godwit::server
