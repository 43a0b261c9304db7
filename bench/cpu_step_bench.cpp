// Whole steps of a small model on the CPU backend, without server and schedule: decode at batch 1 … 64 and
// prefill of 2K and 8K prompts. Prints one JSON object; bench/transformers_reference.py times the class it is
// compared with (design §13).
// Usage: cpu_step_bench [model directory = models/tiny-glm5next] [threads = 0, all cores] [runs = 5]
//                       [cache format = f32]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "selftest/rig.h"

namespace {

using namespace godwit;
using selftest::Rig;

constexpr int64_t kContext = 2048;  // tokens before the decoded ones, as in the reference script
constexpr int64_t kDecoded = 64;
constexpr int64_t kSlice = 2048;  // prompt rows of a step
constexpr int kBatches[] = {1, 4, 16, 64};
constexpr int64_t kPrompts[] = {2048, 8192};

struct Times {
  std::vector<double> seconds;
  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
  double least() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ids of the plain vocabulary of both small models, a fixed sequence.
std::vector<int32_t> prompt_of(int64_t length, int64_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  uint32_t state = 1;
  for (int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocabulary * 9 / 10));
  }
  return ids;
}

double prefill_seconds(Rig& rig, int32_t slot, const std::vector<int32_t>& ids) {
  const double start = now();
  rig.greedy(slot, ids, kSlice, 1);
  return now() - start;
}

// Seconds of each of kDecoded steps of one row in each of the slots 1 … batch, all at position `first`.
void decode(Rig& rig, int batch, int64_t first, Times& times) {
  std::vector<int32_t> last(static_cast<size_t>(batch), 17);
  for (int64_t i = 0; i < kDecoded; ++i) {
    std::vector<Rig::Rows> rows;
    for (int b = 0; b < batch; ++b)
      rows.push_back({b + 1, kernels::RowKind::decode, first + i, {&last[static_cast<size_t>(b)], 1}, 1});
    const double start = now();
    const auto drawn = rig.step(rows);
    times.seconds.push_back(now() - start);
    for (int b = 0; b < batch; ++b) last[static_cast<size_t>(b)] = drawn[static_cast<size_t>(b)].id;
  }
}

std::string load_average() {
  std::ifstream file("/proc/loadavg");
  std::string one, five;
  file >> one >> five;
  return one + " " + five;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "models/tiny-glm5next";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  const int runs = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5;
  const std::string load_before = load_average();
  selftest::RigOptions options;
  options.threads = threads;
  options.context = kPrompts[1] + kDecoded;
  options.slots = kBatches[3];
  options.rows = kSlice;
  const char* kv = argc > 4 ? argv[4] : "f32";
  const std::optional<DType> format = kernels::cache_format_of(kv);
  if (!format) {
    fmt::print(stderr, "a cache is f32, bf16 or fp8, not {}\n", kv);
    return 2;
  }
  options.cache = *format;
  Result<std::unique_ptr<Rig>> opened = Rig::open(model, options);
  if (!opened.ok()) {
    fmt::print(stderr, "{}\n", opened.error().message);
    return 3;
  }
  Rig& rig = **opened;
  const int64_t vocabulary = rig.config().text.vocab_size;

  std::string results;
  for (const int64_t length : kPrompts) {
    const std::vector<int32_t> ids = prompt_of(length, vocabulary);
    Times times;
    prefill_seconds(rig, 1, ids);  // warm-up
    for (int i = 0; i < runs; ++i) times.seconds.push_back(prefill_seconds(rig, 1, ids));
    const auto tokens = static_cast<double>(length);
    results += fmt::format(
        "  {{\"what\": \"prefill\", \"tokens\": {}, \"median_s\": {:.4f}, \"min_s\": {:.4f}, "
        "\"median_tokens_per_s\": {:.0f}, \"max_tokens_per_s\": {:.0f}}},\n",
        length, times.median(), times.least(), tokens / times.median(), tokens / times.least());
  }
  const std::vector<int32_t> ids = prompt_of(kContext, vocabulary);
  for (int32_t slot = 1; slot <= kBatches[3]; ++slot) prefill_seconds(rig, slot, ids);
  for (const int batch : kBatches) {
    Times times;
    for (int i = 0; i < runs; ++i) decode(rig, batch, kContext, times);
    results += fmt::format(
        "  {{\"what\": \"decode\", \"batch\": {}, \"context\": {}, \"median_ms_per_step\": {:.4f}, "
        "\"min_ms_per_step\": {:.4f}, \"median_ms_per_token\": {:.4f}, \"min_ms_per_token\": {:.4f}}}{}\n",
        batch, kContext, 1e3 * times.median(), 1e3 * times.least(), 1e3 * times.median() / batch,
        1e3 * times.least() / batch, batch == kBatches[3] ? "" : ",");
  }
  fmt::print(
      "{{\n \"bench\": \"cpu_step_bench\", \"model\": \"{}\", \"threads\": \"{}\", \"runs\": {},\n "
      "\"kv\": \"{}\", \"page_bytes\": {}, \"load_average_before\": \"{}\", \"load_average_after\": "
      "\"{}\",\n "
      "\"results\": [\n{} ]\n}}\n",
      model, threads == 0 ? "all cores" : std::to_string(threads), runs, kv, rig.model().layout().page_bytes,
      load_before, load_average(), results);
  return 0;
}
