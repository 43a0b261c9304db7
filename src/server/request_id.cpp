#include "server/request_id.h"

#include <algorithm>
#include <random>

namespace godwit::server {
namespace {

std::mt19937_64& generator() {
  thread_local std::mt19937_64 rng = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return rng;
}

}  // namespace

std::string request_id_of(std::string_view client) {
  const bool usable = !client.empty() && client.size() <= 128 &&
                      std::all_of(client.begin(), client.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return usable ? std::string(client) : random_id("req-");
}

std::string random_id(std::string_view prefix, size_t length) {
  static constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id(prefix);
  for (size_t i = 0; i < length; ++i) id.push_back(kAlphabet[generator()() % kAlphabet.size()]);
  return id;
}

uint64_t random_seed() {
  return generator()() >> 11;
}

}  // namespace godwit::server
