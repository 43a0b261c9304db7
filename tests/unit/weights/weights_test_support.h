// Shared by the tests of the weights room: the released configuration, small checkpoints on disk.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace godwit {

inline std::string read_whole_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_whole_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
}

inline std::filesystem::path source_path(std::string_view relative) {
  return std::filesystem::path(GODWIT_SOURCE_DIR) / relative;
}

inline ModelConfig released_config() {
  Result<ModelConfig> config =
      parse_model_config(read_whole_file(source_path("tests/data/glm-5.3-flash-config.json")), "");
  EXPECT_TRUE(config.ok());
  return config.ok() ? std::move(config).value() : ModelConfig{};
}

inline ModelConfig small_config(std::string_view model) {
  Result<ModelConfig> config = read_model_config(source_path("models") / model);
  EXPECT_TRUE(config.ok());
  return config.ok() ? std::move(config).value() : ModelConfig{};
}

// A directory of its own for one test, removed with it.
class TempDir {
 public:
  TempDir() {
    std::string pattern = testing::TempDir() + "godwit-weights-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A safetensors image: length, header, then `data_bytes` bytes that count up from 0.
inline std::string safetensors_image(std::string_view header, size_t data_bytes) {
  std::string image;
  for (size_t i = 0; i < 8; ++i)
    image += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff);
  image += header;
  for (size_t i = 0; i < data_bytes; ++i) image += static_cast<char>(i);
  return image;
}

}  // namespace godwit
