#include "selftest/golden_data.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include "base/assert.h"

namespace godwit::selftest {

GoldenData::GoldenData(Json manifest, SafetensorsFile file)
    : manifest_(std::move(manifest)), file_(std::make_unique<SafetensorsFile>(std::move(file))) {
  for (const SafetensorsEntry& e : file_->entries()) entries_[e.name] = &e;
}

Result<GoldenData> GoldenData::open(const std::filesystem::path& dir, std::string_view name) {
  const auto json_path = dir / (std::string(name) + ".json");
  std::ifstream in(json_path, std::ios::binary);
  if (!in)
    return make_error(ErrorCode::data_refused, json_path.string(), "{} cannot be read", json_path.string());
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  GODWIT_ASSIGN(Json manifest, parse_json(text));
  GODWIT_ASSIGN(SafetensorsFile file, SafetensorsFile::open(dir / (std::string(name) + ".safetensors")));
  return GoldenData(std::move(manifest), std::move(file));
}

std::vector<float> GoldenData::floats(const std::string& tensor) const {
  const SafetensorsEntry& e = *entries_.at(tensor);
  GODWIT_ASSERT(e.dtype == DType::f32);
  std::vector<float> out(e.bytes / sizeof(float));
  std::memcpy(out.data(), file_->data(e), e.bytes);
  return out;
}

std::vector<int32_t> GoldenData::ints(const std::string& tensor) const {
  const SafetensorsEntry& e = *entries_.at(tensor);
  GODWIT_ASSERT(e.dtype == DType::i32);
  std::vector<int32_t> out(e.bytes / sizeof(int32_t));
  std::memcpy(out.data(), file_->data(e), e.bytes);
  return out;
}

std::vector<std::string> GoldenData::names(std::string_view prefix) const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : entries_)
    if (name.starts_with(prefix)) out.push_back(name);
  return out;
}

double GoldenData::number(const Json& root, std::initializer_list<std::string_view> path) {
  const Json* at = &root;
  for (std::string_view key : path) {
    at = at->find(key);
    GODWIT_ASSERT(at != nullptr);
  }
  return at->as_double();
}

}  // namespace godwit::selftest
