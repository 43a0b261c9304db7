// Tokenizer speed in bytes of text a second on one core, and loading time. Arguments that are files are
// tokenizers: tokenizer_bench [--benchmark_...] TOKENIZER.json... The texts come from Debian packages
// (cmake-data, base-files, libstdc++).
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

namespace fs = std::filesystem;
using godwit::tokenizer::Tokenizer;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// Every well-formed file below `root` with the extension, in path order, up to `limit` bytes.
std::string read_tree(const fs::path& root, std::string_view extension, size_t limit) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (const auto& entry : fs::recursive_directory_iterator(root, failure)) {
    if (entry.is_regular_file() && entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    std::string one{std::istreambuf_iterator<char>(file), {}};
    if (godwit::tokenizer::is_utf8(one) && text.size() < limit) text += one;
  }
  return text;
}

std::string random_ideographs(size_t characters) {
  std::mt19937 rng(1);
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    godwit::tokenizer::append_utf8(text, i % 20 == 19 ? 0x3002 : 0x4E00 + rng() % 3000);
  }
  return text;
}

void encode(benchmark::State& state, const TokenizerPtr& tokenizer, const std::string& text) {
  size_t ids = 0;
  for (auto _ : state) {
    auto encoded = tokenizer->encode(text);
    if (!encoded.ok()) return state.SkipWithError(encoded.error().message.c_str());
    ids = encoded->size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_id"] =
      static_cast<double>(text.size()) / static_cast<double>(std::max<size_t>(ids, 1));
}

void detokenize(benchmark::State& state, const TokenizerPtr& tokenizer, const std::string& text) {
  auto ids = tokenizer->encode(text).value();
  for (auto _ : state) {
    godwit::tokenizer::Detokenizer detokenizer(tokenizer, true);
    for (int32_t id : ids) benchmark::DoNotOptimize(detokenizer.push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void load(benchmark::State& state, const std::string& path) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(path));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::pair<const char*, std::string> texts[] = {
      {"english_docs", read_tree("/usr/share/cmake-3.25/Help", ".rst", 8 << 20)},
      {"cpp_code", read_tree("/usr/include/c++/12/bits", ".h", 8 << 20)},
      {"random_ideographs", random_ideographs(1 << 20)},
      {"one_mebibyte_equals", std::string(1 << 20, '=')},
      {"one_mebibyte_letters", [] {
         std::string text(1 << 20, 'a');
         std::mt19937 rng(2);
         for (char& c : text) c = static_cast<char>('a' + rng() % 26);
         return text;
       }()}};
  for (int i = 1; i < argc; ++i) {
    std::string path = argv[i];
    auto tokenizer = Tokenizer::load(path);
    if (!tokenizer.ok()) {
      fmt::print(stderr, "{}\n", tokenizer.error().message);
      return 3;
    }
    std::string name = fmt::format("{}_tokens", (*tokenizer)->size());
    for (const auto& [title, text] : texts) {
      benchmark::RegisterBenchmark(fmt::format("encode/{}/{}", name, title).c_str(), encode, *tokenizer,
                                   text);
    }
    benchmark::RegisterBenchmark(fmt::format("detokenize/{}", name).c_str(), detokenize, *tokenizer,
                                 texts[0].second);
    benchmark::RegisterBenchmark(fmt::format("load/{}", name).c_str(), load, path)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
