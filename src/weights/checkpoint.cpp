#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "weights/mapped_file.h"
#include "weights/safetensors.h"

namespace godwit {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

struct Index {
  std::map<std::string, std::string, std::less<>> file_of;  // tensor -> file name
  std::set<std::string> files;
  std::optional<int64_t> total_size;
};

Result<Index> read_index(const std::filesystem::path& path) {
  constexpr size_t kLargest = 256 << 20;
  GODWIT_ASSIGN(const MappedFile file, MappedFile::open(path));
  auto refuse = [&](std::string_view what) {
    return make_error(ErrorCode::data_refused, std::string(kIndexName), "{}: {}", path.string(), what);
  };
  if (file.size() > kLargest) return refuse(fmt::format("{} bytes, limit {}", file.size(), kLargest));
  Result<Json> json = parse_json(file.text(), {.depth = 8, .values = 1'000'000});
  if (!json.ok()) return refuse(json.error().message);
  const Json* map = json->find("weight_map");
  if (!map || !map->is_object()) return refuse("weight_map is missing or no object");

  Index index;
  for (const auto& [tensor, shard] : map->as_object()) {
    // A name with a directory in it could lead out of the checkpoint.
    if (!shard.is_string() || shard.as_string().empty() || shard.as_string().find('/') != std::string::npos) {
      return refuse(fmt::format("weight_map gives tensor {} the file {}, which is no plain file name", tensor,
                                dump_json(shard)));
    }
    index.file_of.emplace(tensor, shard.as_string());
    index.files.insert(shard.as_string());
  }
  if (index.files.empty()) return refuse("weight_map is empty");
  const Json* metadata = json->find("metadata");
  const Json* total = metadata ? metadata->find("total_size") : nullptr;
  if (total && total->is_integer()) index.total_size = total->as_integer();
  return index;
}

}  // namespace

int64_t TensorRef::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

Checkpoint::Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const TensorRef* Checkpoint::find(std::string_view name) const {
  auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Result<void> Checkpoint::add_file(const std::filesystem::path& path) {
  GODWIT_ASSIGN(SafetensorsFile opened, SafetensorsFile::open(path));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(opened)));
  const SafetensorsFile& file = *files_.back();
  for (const SafetensorsEntry& entry : file.entries()) {
    TensorRef ref{entry.dtype,
                  entry.shape,
                  file.data(entry),
                  entry.bytes,
                  entry.offset,
                  file.name(),
                  static_cast<uint32_t>(files_.size() - 1)};
    auto [place, is_new] = tensors_.emplace(entry.name, std::move(ref));
    if (!is_new) {
      return make_error(ErrorCode::data_refused, entry.name, "tensor {} is in both {} and {}", entry.name,
                        place->second.file, file.name());
    }
    tensor_bytes_ += entry.bytes;
  }
  return {};
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& dir) {
  Checkpoint checkpoint;
  std::error_code failure;
  if (!std::filesystem::exists(dir / kIndexName, failure)) {
    if (!std::filesystem::exists(dir / kSingleName, failure)) {
      return make_error(ErrorCode::data_refused, dir.string(), "{} has neither {} nor {}", dir.string(),
                        kIndexName, kSingleName);
    }
    GODWIT_TRY(checkpoint.add_file(dir / kSingleName));
    return checkpoint;
  }

  GODWIT_ASSIGN(const Index index, read_index(dir / kIndexName));
  for (const std::string& file : index.files) GODWIT_TRY(checkpoint.add_file(dir / file));
  for (const auto& [name, file] : index.file_of) {
    const TensorRef* ref = checkpoint.find(name);
    if (!ref || ref->file != file) {
      return make_error(ErrorCode::data_refused, name, "{} puts tensor {} into {}, but it is {}", kIndexName,
                        name, file, ref ? fmt::format("in {}", ref->file) : "in none of the files");
    }
  }
  for (const auto& [name, ref] : checkpoint.tensors_) {
    if (!index.file_of.count(name)) {
      return make_error(ErrorCode::data_refused, name,
                        "{} at offset {} holds tensor {}, which {} does not list", ref.file, ref.offset, name,
                        kIndexName);
    }
  }
  // Writers disagree on what total_size counts, so it decides nothing.
  if (index.total_size && *index.total_size != static_cast<int64_t>(checkpoint.tensor_bytes_)) {
    log_warn("{}: total_size is {}, the tensors have {} bytes", (dir / kIndexName).string(),
             *index.total_size, checkpoint.tensor_bytes_);
  }
  return checkpoint;
}

}  // namespace godwit
