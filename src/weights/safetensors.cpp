#include "weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/json.h"

namespace godwit {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the format itself
constexpr size_t kMostTensors = 250'000;
constexpr size_t kMostDimensions = 8;

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType type : {DType::f32, DType::bf16, DType::f8_e4m3, DType::i32, DType::i64, DType::u8}) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

// A header value of unknown kind, short enough for a message.
std::string shown(const Json* value) {
  if (!value) return "missing";
  std::string text = dump_json(*value);
  return text.size() > 100 ? text.substr(0, 100) + "..." : text;
}

// One member of the header. `data_begin` is where the data starts in the file, `data_size` how much there is.
Result<SafetensorsEntry> parse_entry(const std::string& name, const Json& value, std::string_view file,
                                     uint64_t data_begin, uint64_t data_size) {
  auto refuse = [&](std::string_view what) {
    return make_error(ErrorCode::data_refused, name, "{}: tensor {}: {}", file, name, what);
  };
  SafetensorsEntry entry;
  entry.name = name;
  if (!value.is_object()) return refuse(fmt::format("its header entry is {}, not an object", shown(&value)));
  for (const auto& [key, member] : value.as_object()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return refuse(fmt::format("unknown key {}", key));
  }
  const Json* dtype = value.find("dtype");
  const auto type = dtype && dtype->is_string() ? dtype_from_name(dtype->as_string()) : std::nullopt;
  if (!type) {
    return refuse(fmt::format("dtype is {}; supported: F32, BF16, F8_E4M3, I32, I64, U8", shown(dtype)));
  }
  entry.dtype = *type;

  const Json* shape = value.find("shape");
  if (!shape || !shape->is_array() || shape->as_array().size() > kMostDimensions) {
    return refuse(
        fmt::format("shape is {}; supported: an array of at most {} sizes", shown(shape), kMostDimensions));
  }
  entry.bytes = static_cast<uint64_t>(size_of(entry.dtype));
  for (const Json& size : shape->as_array()) {
    if (!size.is_integer() || size.as_integer() < 0) {
      return refuse(fmt::format("shape {} has an entry that is no size", shown(shape)));
    }
    entry.shape.push_back(size.as_integer());
    const uint64_t factor = static_cast<uint64_t>(size.as_integer());
    if (factor != 0 && entry.bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / factor) {
      return refuse(fmt::format("shape {} is more than 2^63 bytes", shown(shape)));
    }
    entry.bytes *= factor;
  }

  const Json* offsets = value.find("data_offsets");
  const bool is_pair = offsets && offsets->is_array() && offsets->as_array().size() == 2 &&
                       offsets->as_array()[0].is_integer() && offsets->as_array()[1].is_integer();
  if (!is_pair) return refuse(fmt::format("data_offsets is {}, not [begin, end]", shown(offsets)));
  const int64_t begin = offsets->as_array()[0].as_integer(), end = offsets->as_array()[1].as_integer();
  if (begin < 0 || end < begin) return refuse(fmt::format("data_offsets {} run backwards", shown(offsets)));
  if (static_cast<uint64_t>(end) > data_size) {
    return refuse(fmt::format("its data ends at offset {} but the file has {} bytes (truncated?)",
                              data_begin + static_cast<uint64_t>(end), data_begin + data_size));
  }
  if (static_cast<uint64_t>(end - begin) != entry.bytes) {
    return refuse(fmt::format("{} bytes at offset {} but shape {} of {} needs {}", end - begin,
                              data_begin + static_cast<uint64_t>(begin), shown(shape), name_of(entry.dtype),
                              entry.bytes));
  }
  entry.offset = data_begin + static_cast<uint64_t>(begin);
  return entry;
}

// The tensors must tile the data: a hole would be bytes nobody accounts for.
Result<void> check_tiling(const std::vector<SafetensorsEntry>& entries, std::string_view file,
                          uint64_t data_begin, uint64_t file_size) {
  uint64_t expected = data_begin;
  const std::string* previous = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset < expected) {
      return make_error(ErrorCode::data_refused, entry.name,
                        "{}: tensor {} at offset {} overlaps {}, which ends at {}", file, entry.name,
                        entry.offset, *previous, expected);
    }
    if (entry.offset > expected) {
      return make_error(ErrorCode::data_refused, entry.name,
                        "{}: {} bytes at offset {} before tensor {} belong to none", file,
                        entry.offset - expected, expected, entry.name);
    }
    expected = entry.offset + entry.bytes;
    previous = &entry.name;
  }
  if (expected == file_size) return {};
  return make_error(ErrorCode::data_refused, std::string(file),
                    "{}: {} bytes at offset {}{}{} belong to no tensor", file, file_size - expected, expected,
                    previous ? " after tensor " : "", previous ? *previous : "");
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors(std::string_view image, std::string_view file) {
  auto refuse = [&](std::string_view what) {
    return make_error(ErrorCode::data_refused, std::string(file), "{}: {}", file, what);
  };
  if (image.size() < kLengthBytes) {
    return refuse(fmt::format("{} bytes long, too short for a safetensors header", image.size()));
  }
  uint64_t header_size = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    header_size |= static_cast<uint64_t>(static_cast<unsigned char>(image[i])) << (8 * i);
  }
  if (header_size > kLargestHeader) {
    return refuse(fmt::format("the length at offset 0 says the header is {} bytes, limit {}", header_size,
                              kLargestHeader));
  }
  if (header_size > image.size() - kLengthBytes) {
    return refuse(fmt::format("the header is {} bytes from offset {} but the file has {} (truncated?)",
                              header_size, kLengthBytes, image.size()));
  }
  // Per tensor an object, two arrays, their numbers and a string: 16 values are ample.
  Result<Json> header =
      parse_json(image.substr(kLengthBytes, header_size), {.depth = 4, .values = 16 * kMostTensors});
  if (!header.ok())
    return refuse(fmt::format("header from offset {}: {}", kLengthBytes, header.error().message));
  if (!header->is_object()) return refuse("the header is not a JSON object");
  if (header->as_object().size() > kMostTensors) {
    return refuse(fmt::format("{} tensors, limit {}", header->as_object().size(), kMostTensors));
  }

  const uint64_t data_begin = kLengthBytes + header_size;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header->as_object()) {
    if (name == "__metadata__") continue;  // free text, nothing the engine reads
    GODWIT_ASSIGN(SafetensorsEntry entry,
                  parse_entry(name, value, file, data_begin, image.size() - data_begin));
    entries.push_back(std::move(entry));
  }
  // Empty tensors share their offset with the next one: they come first.
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  GODWIT_TRY(check_tiling(entries, file, data_begin, image.size()));
  return entries;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  GODWIT_ASSIGN(MappedFile mapping, MappedFile::open(path));
  SafetensorsFile file(std::move(mapping));
  file.name_ = path.filename();
  file.path_ = path;
  GODWIT_ASSIGN(file.entries_, parse_safetensors(file.mapping_.text(), path.string()));
  return file;
}

}  // namespace godwit
