#include "weights/safetensors_writer.h"

#include <algorithm>

#include "base/json.h"

namespace godwit {
namespace {

std::string header_text(const std::vector<SafetensorsEntry>& entries, uint64_t first_offset) {
  JsonObject header;
  header.set("__metadata__", Json::object({{"format", "pt"}}));
  for (const SafetensorsEntry& entry : entries) {
    JsonArray shape;
    for (int64_t size : entry.shape) shape.emplace_back(size);
    const uint64_t begin = entry.offset - first_offset;
    header.set(entry.name, Json::object({{"dtype", name_of(entry.dtype)},
                                         {"shape", std::move(shape)},
                                         {"data_offsets", JsonArray{begin, begin + entry.bytes}}}));
  }
  std::string text = dump_json(Json(std::move(header)), JsonStyle::compact());
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::vector<SafetensorsEntry> entries) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return size_of(a.dtype) != size_of(b.dtype) ? size_of(a.dtype) > size_of(b.dtype) : a.name < b.name;
  });
  uint64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.bytes = static_cast<uint64_t>(size_of(entry.dtype));
    for (int64_t size : entry.shape) entry.bytes *= static_cast<uint64_t>(size);
    entry.offset = offset;
    offset += entry.bytes;
  }
  const std::string header = header_text(entries, 0);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  for (SafetensorsEntry& entry : entries) entry.offset += length.size() + header.size();

  SafetensorsWriter writer;
  writer.path_ = path;
  writer.entries_ = std::move(entries);
  writer.file_.open(path, std::ios::binary | std::ios::trunc);
  writer.file_ << length << header;
  if (!writer.file_)
    return make_error(ErrorCode::data_refused, path.filename(), "{} cannot be written", path.string());
  return writer;
}

Result<void> SafetensorsWriter::write(std::string_view bytes) {
  if (next_ == entries_.size() || bytes.size() != entries_[next_].bytes) {
    return make_error(ErrorCode::data_refused, path_.filename(), "{}: {} bytes given for tensor {} of {}",
                      path_.string(), bytes.size(), next_, entries_.size());
  }
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file_) {
    return make_error(ErrorCode::data_refused, path_.filename(), "{}: writing tensor {} failed",
                      path_.string(), entries_[next_].name);
  }
  ++next_;
  return {};
}

Result<void> SafetensorsWriter::finish() {
  file_.close();
  if (file_ && next_ == entries_.size()) return {};
  return make_error(ErrorCode::data_refused, path_.filename(), "{}: {} of {} tensors written", path_.string(),
                    next_, entries_.size());
}

}  // namespace godwit
