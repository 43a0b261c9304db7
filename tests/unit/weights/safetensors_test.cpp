#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "weights/safetensors_writer.h"
#include "weights_test_support.h"

namespace godwit {
namespace {

std::string refusal(const std::string& image) {
  Result<std::vector<SafetensorsEntry>> entries = parse_safetensors(image, "f.safetensors");
  if (entries.ok()) return "accepted";
  EXPECT_EQ(entries.error().code, ErrorCode::data_refused);
  EXPECT_NE(entries.error().message.find("f.safetensors"), std::string::npos) << entries.error().message;
  return entries.error().message;
}
void expect_refused(const std::string& header, size_t data_bytes, const std::vector<std::string>& parts) {
  const std::string message = refusal(safetensors_image(header, data_bytes));
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

const char* const kTwo =
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"__metadata__":{"x":"y"}})";

TEST(Safetensors, ListsTensorsInOrder) {
  const std::string image = safetensors_image(kTwo, 32);
  Result<std::vector<SafetensorsEntry>> entries = parse_safetensors(image, "f");
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries->size(), 2u);
  const size_t data = image.size() - 32;
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].dtype, DType::f32);
  EXPECT_EQ((*entries)[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*entries)[0].offset, data);
  EXPECT_EQ((*entries)[1].offset, data + 24);
  EXPECT_EQ((*entries)[1].bytes, 8u);
  // A scalar and an empty tensor.
  EXPECT_EQ(refusal(safetensors_image(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                      R"("e":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]}})",
                                      4)),
            "accepted");
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string image = safetensors_image(kTwo, 32);
  for (size_t size = 0; size < image.size(); ++size)
    EXPECT_NE(refusal(image.substr(0, size)), "accepted") << size;
  EXPECT_NE(refusal(image.substr(0, image.size() - 1)).find("tensor b"), std::string::npos);
  EXPECT_NE(refusal(image.substr(0, image.size() - 1)).find("truncated"), std::string::npos);
  EXPECT_NE(refusal(image + "x").find("belong to no tensor"), std::string::npos);
}

TEST(Safetensors, RefusesLyingLengths) {
  std::string image = safetensors_image(kTwo, 32);
  for (int byte = 0; byte < 8; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string lying = image;
      lying[static_cast<size_t>(byte)] ^= static_cast<char>(1 << bit);
      EXPECT_NE(refusal(lying), "accepted") << byte << ":" << bit;
    }
  }
  image.replace(0, 8, std::string(8, '\xff'));
  EXPECT_NE(refusal(image).find("limit 100000000"), std::string::npos);
}

TEST(Safetensors, RefusesBadRanges) {
  auto two = [](std::string a, std::string b) {
    return R"({"a":{"dtype":"U8","shape":[8],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[8],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(refusal(safetensors_image(two("[0,8]", "[8,16]"), 16)), "accepted");
  expect_refused(two("[0,8]", "[4,12]"), 16, {"tensor b", "overlaps a", "offset"});
  expect_refused(two("[0,8]", "[0,8]"), 8, {"overlaps"});
  expect_refused(two("[0,8]", "[12,20]"), 20, {"4 bytes at offset", "before tensor b"});
  expect_refused(two("[1,9]", "[9,17]"), 17, {"1 bytes at offset", "before tensor a"});
  expect_refused(two("[0,8]", "[8,16]"), 20, {"4 bytes", "after tensor b"});
  expect_refused(two("[0,8]", "[8,24]"), 24, {"tensor b", "16 bytes", "needs 8"});
  expect_refused(two("[0,8]", "[16,8]"), 16, {"tensor b", "backwards"});
  expect_refused(two("[-8,0]", "[0,8]"), 8, {"tensor a", "backwards"});
  expect_refused(two("[0,8]", "[8]"), 16, {"tensor b", "[begin, end]"});
  expect_refused(two("[0,8]", "[8,99999999999999999999]"), 16, {"tensor b", "[begin, end]"});
  expect_refused(two("[0,8]", "[9223372036854775800,9223372036854775807]"), 16,
                 {"tensor b", "ends at offset"});
}

TEST(Safetensors, RefusesBadShapesAndTypes) {
  auto one = [](std::string dtype, std::string shape) {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":[0,8]}})";
  };
  EXPECT_EQ(refusal(safetensors_image(one("\"F32\"", "[2]"), 8)), "accepted");
  expect_refused(one("\"F16\"", "[4]"), 8, {"tensor t", "\"F16\"", "supported"});
  expect_refused(one("\"F8_E5M2\"", "[8]"), 8, {"F8_E5M2"});
  expect_refused(one("7", "[8]"), 8, {"dtype is 7"});
  expect_refused(one("\"U8\"", "[-8]"), 8, {"no size"});
  expect_refused(one("\"U8\"", "[8.0]"), 8, {"no size"});
  expect_refused(one("\"U8\"", "8"), 8, {"shape is 8"});
  expect_refused(one("\"U8\"", "[1,1,1,1,1,1,1,1,8]"), 8, {"at most 8"});
  // The product wraps around 2^64 to 8.
  expect_refused(one("\"U8\"", "[4294967296,4294967296,4294967296]"), 8, {"2^63"});
  expect_refused(one("\"F32\"", "[4611686018427387905,2]"), 8, {"2^63"});
  expect_refused(R"({"t":{"dtype":"U8","shape":[8]}})", 8, {"data_offsets is missing"});
  expect_refused(R"({"t":{"shape":[8],"data_offsets":[0,8]}})", 8, {"dtype is missing"});
  expect_refused(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"stride":1}})", 8,
                 {"unknown key stride"});
  expect_refused(R"({"t":3})", 0, {"tensor t", "not an object"});
  expect_refused("[]", 0, {"not a JSON object"});
  expect_refused("{", 0, {"header"});
  expect_refused(R"({"t":[[[[[[]]]]]]})", 0, {"header"});
  expect_refused("{\"\xff\":1}", 0, {"header"});
  // A name given twice: the first range belongs to nobody.
  expect_refused(
      R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"t":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
      16, {"before tensor t"});
}

// Whatever is accepted lies inside the file.
TEST(Safetensors, SurvivesRandomDamage) {
  const std::string good = safetensors_image(kTwo, 32);
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = good;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) bad[random() % bad.size()] = static_cast<char>(random());
    Result<std::vector<SafetensorsEntry>> entries = parse_safetensors(bad, "f.safetensors");
    if (!entries.ok()) continue;
    ++accepted;
    for (const SafetensorsEntry& entry : *entries) ASSERT_LE(entry.offset + entry.bytes, bad.size());
  }
  EXPECT_GT(accepted, 0);  // damage in the data alone is not for this room to find
  EXPECT_LT(accepted, 19'000);
}

TEST(Safetensors, ReadsWhatItWrites) {
  TempDir dir;
  const std::filesystem::path path = dir.path() / "x.safetensors";
  auto writer = SafetensorsWriter::create(path, {{"b", DType::u8, {3}},
                                                 {"w", DType::bf16, {2, 2}},
                                                 {"f", DType::f32, {1}},
                                                 {"q", DType::f8_e4m3, {5}}});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  std::string order;
  for (const SafetensorsEntry& entry : writer->entries()) {
    order += entry.name;
    EXPECT_EQ(entry.offset % static_cast<uint64_t>(size_of(entry.dtype)), 0u);
    EXPECT_FALSE(writer->write(std::string(entry.bytes + 1, 'x')).ok());
    EXPECT_TRUE(writer->write(std::string(entry.bytes, entry.name[0])).ok());
  }
  EXPECT_EQ(order, "fwbq");
  EXPECT_FALSE(writer->write("").ok());
  EXPECT_TRUE(writer->finish().ok());
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->entries().size(), 4u);
  for (const SafetensorsEntry& entry : file->entries()) {
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->data(entry)), entry.bytes),
              std::string(entry.bytes, entry.name[0]));
  }
}

TEST(Safetensors, RefusesFilesThatCannotBeMapped) {
  TempDir dir;
  EXPECT_EQ(SafetensorsFile::open(dir.path() / "absent").error().code, ErrorCode::data_refused);
  EXPECT_NE(SafetensorsFile::open(dir.path()).error().message.find("not a regular file"), std::string::npos);
  write_whole_file(dir.path() / "empty", "");
  EXPECT_NE(SafetensorsFile::open(dir.path() / "empty").error().message.find("0 bytes"), std::string::npos);
}

}  // namespace
}  // namespace godwit
