// Runs a fuzz target without libFuzzer: standalone CORPUS_DIR. Every seed is fed as it is, cut short, and
// with bytes changed by a fixed generator, so that two runs do the same.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;
constexpr int kMutations = 200;  // of each seed

uint64_t next(uint64_t& state) {  // SplitMix64
  uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

void mutate(std::vector<uint8_t>& bytes, uint64_t& state) {
  if (bytes.empty()) return;
  for (uint64_t changes = 1 + next(state) % 4; changes > 0 && !bytes.empty(); --changes) {
    const size_t at = next(state) % bytes.size();
    switch (next(state) % 4) {
      case 0:
        bytes[at] = static_cast<uint8_t>(next(state));
        break;
      case 1:
        bytes[at] ^= static_cast<uint8_t>(1u << (next(state) % 8));
        break;
      case 2:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        bytes.resize(at);
        break;
    }
  }
}

void feed(const std::vector<uint8_t>& bytes) {
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::error_code error;
  if (argc != 2 || !fs::is_directory(argv[1], error)) {
    std::fprintf(stderr, "usage: %s CORPUS_DIR (which must exist and hold seeds)\n", argv[0]);
    return 2;
  }
  size_t seeds = 0;
  uint64_t state = 1;
  feed({});
  for (const fs::directory_entry& entry : fs::directory_iterator(argv[1])) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::vector<uint8_t> seed{std::istreambuf_iterator<char>(stream), {}};
    feed(seed);
    for (int i = 0; i < kMutations; ++i) {
      std::vector<uint8_t> changed = seed;
      mutate(changed, state);
      feed(changed);
    }
    ++seeds;
  }
  std::printf("%zu seeds, %d mutations of each\n", seeds, kMutations);
  return seeds > 0 ? 0 : 1;
}
