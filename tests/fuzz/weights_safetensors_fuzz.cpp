// A safetensors file: whatever is accepted must lie inside the file and tile its data.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view image(reinterpret_cast<const char*>(data), size);
  const auto entries = godwit::parse_safetensors(image, "fuzz.safetensors");
  if (!entries.ok()) {
    if (entries.error().message.empty()) std::abort();
    return 0;
  }
  uint64_t end = entries->empty() ? size : entries->front().offset;
  for (const godwit::SafetensorsEntry& entry : *entries) {
    uint64_t bytes = static_cast<uint64_t>(godwit::size_of(entry.dtype));
    for (int64_t extent : entry.shape) bytes *= static_cast<uint64_t>(extent);
    if (entry.offset != end || entry.bytes != bytes) std::abort();
    end += bytes;
  }
  if (end != size) std::abort();
  return 0;
}
