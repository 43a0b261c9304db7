// tokenizer_tool TOKENIZER.json encode|decode: the pipe that tools/tokenizer_parity.py drives.
// Little-endian 32-bit numbers. encode: (bytes, text)* in, (count, ids)* out. decode: the reverse.
#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace {

constexpr uint32_t kMaxItem = 64u << 20;

template <class Buffer>
bool read_item(Buffer& item) {
  uint32_t count;
  if (std::fread(&count, sizeof count, 1, stdin) != 1) return false;
  if (count > kMaxItem) return false;
  item.resize(count);
  return std::fread(item.data(), sizeof item[0], count, stdin) == count;
}

template <class Buffer>
void write_item(const Buffer& item) {
  auto count = static_cast<uint32_t>(item.size());
  std::fwrite(&count, sizeof count, 1, stdout);
  std::fwrite(item.data(), sizeof item[0], item.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string_view mode = argc == 3 ? argv[2] : "";
  if (mode != "encode" && mode != "decode") {
    fmt::print(stderr, "usage: tokenizer_tool TOKENIZER.json encode|decode\n");
    return 2;
  }
  auto tokenizer = godwit::tokenizer::Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 3;
  }
  std::string text;
  std::vector<int32_t> ids;
  if (mode == "decode") {
    while (read_item(ids)) write_item((*tokenizer)->decode(ids));
    return 0;
  }
  while (read_item(text)) {
    auto encoded = (*tokenizer)->encode(text);
    if (!encoded.ok()) {
      fmt::print(stderr, "{}\n", encoded.error().message);
      return 1;
    }
    write_item(*encoded);
  }
  return 0;
}
