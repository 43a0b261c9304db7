// The manifest and tensors of one golden file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "weights/safetensors.h"

namespace godwit::selftest {

class GoldenData {
 public:
  static Result<GoldenData> open(const std::filesystem::path& dir, std::string_view name);

  const Json& manifest() const { return manifest_; }
  bool has(const std::string& tensor) const { return entries_.contains(tensor); }
  std::vector<float> floats(const std::string& tensor) const;  // asserts that it exists and is F32
  std::vector<int32_t> ints(const std::string& tensor) const;  // I32
  std::vector<std::string> names(std::string_view prefix) const;
  // A number of the manifest by path, as in number({"tolerances", "float32_engine", "logits_max_abs"}).
  static double number(const Json& root, std::initializer_list<std::string_view> path);

 private:
  GoldenData(Json manifest, SafetensorsFile file);
  Json manifest_;
  std::unique_ptr<SafetensorsFile> file_;
  std::map<std::string, const SafetensorsEntry*, std::less<>> entries_;
};

}  // namespace godwit::selftest
