#include "bench/load_bench.h"

#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>

#include "config/model_config.h"
#include "kernels/make_ops.h"
#include "model/glm5_next/device_placer.h"
#include "weights/direct_reader.h"
#include "weights/inventory.h"

namespace godwit::bench {
namespace {

struct Read {
  const TensorRef* tensor;
  Slice slice;
};

// Every tensor, or part of one, that the rank binds.
Result<std::vector<Read>> reads_of_rank(const Checkpoint& checkpoint, const ModelConfig& config,
                                        const LoadCase& asked) {
  GODWIT_ASSIGN(const ShardPlan plan, ShardPlan::make(config.text, asked.tp, asked.ep));
  if (asked.rank >= asked.tp) {
    return make_error(ErrorCode::usage, "--rank", "--rank is {}; --tp {} has ranks 0 to {}", asked.rank,
                      asked.tp, asked.tp - 1);
  }
  const std::vector<TensorSpec> whole = make_inventory(config);
  GODWIT_TRY(check_checkpoint(checkpoint, whole, NextnUse::optional));
  const std::vector<TensorSpec> inventory = found_inventory(checkpoint, whole);
  GODWIT_TRY(check_fp8_cuts(plan, inventory));
  std::vector<Read> reads;
  for (const TensorSpec& spec : inventory) {
    const Slice slice = plan.slice(spec, asked.rank);
    if (spec.nextn || spec.component == Component::vision || slice.empty()) continue;
    reads.push_back({checkpoint.find(spec.name), slice});
    if (const TensorRef* scales = checkpoint.find(scale_name(spec.name)))
      reads.push_back({scales, scale_slice(slice)});
  }
  return reads;
}

uint64_t bytes_of(const Read& read) {
  return static_cast<uint64_t>(read.slice.rows.size() * read.slice.columns.size() *
                               size_of(read.tensor->dtype));
}

// Where the share goes: memory of this process, or of a device.
class Place {
 public:
  explicit Place(kernels::Ops* ops) : memory_(ops ? &ops->memory() : nullptr) {}
  ~Place() {
    if (on_device_) memory_->release(on_device_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::byte* take(uint64_t bytes) {
    if (!memory_) return (on_host_ = Buffer(bytes)).as<std::byte>();
    on_device_ = memory_->allocate(static_cast<int64_t>(bytes));
    return static_cast<std::byte*>(on_device_);
  }
  std::unique_ptr<Placer> placer(int threads) const {
    if (!memory_) return std::make_unique<HostPlacer>(threads);
    return std::make_unique<model::DevicePlacer>(*memory_, threads);
  }
  void look_at(const std::byte* from, std::vector<std::byte>& bytes) const {
    if (memory_) return memory_->download(bytes.data(), from, static_cast<int64_t>(bytes.size()));
    std::memcpy(bytes.data(), from, bytes.size());
  }

 private:
  kernels::Memory* memory_;
  Buffer on_host_;
  void* on_device_ = nullptr;
};

// Compares what lies at `at` with what the file says.
Result<void> verify(const Read& read, const std::byte* at, const Place& place) {
  const TensorRef& tensor = *read.tensor;
  const auto size = static_cast<uint64_t>(size_of(tensor.dtype));
  const uint64_t stride =
      static_cast<uint64_t>(tensor.elements()) / (tensor.shape.empty() ? 1 : tensor.shape[0]) * size;
  const uint64_t row_bytes = static_cast<uint64_t>(read.slice.columns.size()) * size;
  const std::byte* file = tensor.data + static_cast<uint64_t>(read.slice.rows.begin) * stride +
                          static_cast<uint64_t>(read.slice.columns.begin) * size;
  std::vector<std::byte> there(bytes_of(read));
  place.look_at(at, there);
  for (uint64_t r = 0; r * row_bytes < there.size(); ++r) {
    if (std::memcmp(&there[r * row_bytes], file + r * stride, row_bytes) == 0) continue;
    return make_error(ErrorCode::data_refused, "--verify",
                      "row {} of {} x {} bytes at file offset {} differs", r, there.size() / row_bytes,
                      row_bytes, tensor.offset);
  }
  return {};
}

}  // namespace

Result<LoadResult> run_load_bench(const LoadCase& asked) {
  GODWIT_ASSIGN(const ModelConfig config, read_model_config(asked.checkpoint));
  GODWIT_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(asked.checkpoint));
  GODWIT_ASSIGN(const std::vector<Read> reads, reads_of_rank(checkpoint, config, asked));
  std::unique_ptr<kernels::Ops> ops;
  if (asked.device != "cpu") {
    GODWIT_ASSIGN(ops, kernels::make_ops(asked.device, 1));
  }
  uint64_t bytes = 0;
  for (const Read& read : reads) bytes += bytes_of(read);
  ReadOptions options;
  options.threads = asked.threads;
  try {
    Place place(ops.get());
    std::byte* to = place.take(bytes);
    ReadList list;
    std::vector<std::byte*> at;
    for (const Read& read : reads) {
      at.push_back(to);
      list.add(*read.tensor, read.slice, to);
      to += bytes_of(read);
    }
    LoadResult result;
    const auto start = std::chrono::steady_clock::now();
    const std::unique_ptr<Placer> placer = place.placer(threads_for(list, options));
    result.buffers_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    GODWIT_ASSIGN(result.read, read_direct(checkpoint, list, *placer, options));
    for (size_t i = 0; asked.verify && i < reads.size(); ++i) GODWIT_TRY(verify(reads[i], at[i], place));
    return result;
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::data_refused, "--checkpoint",
                      "there is no room for the {} bytes that rank {} of {} holds; use a larger --tp", bytes,
                      asked.rank, asked.tp);
  } catch (const std::runtime_error& failure) {  // a device that stopped working
    return make_error(ErrorCode::device, "--device", "{}", failure.what());
  }
}

Json as_json(const LoadCase& asked, const LoadResult& result) {
  const ReadStatus& status = result.read;
  return Json::object({{"checkpoint", asked.checkpoint.filename().string()},
                       {"tp", asked.tp},
                       {"ep", asked.ep},
                       {"rank", asked.rank},
                       {"device", asked.device},
                       {"verified", asked.verify},
                       {"threads", static_cast<int64_t>(asked.threads)},
                       {"shards", static_cast<int64_t>(status.files)},
                       {"bytes", static_cast<int64_t>(status.bytes)},
                       {"buffers_seconds", result.buffers_s},
                       {"seconds", status.seconds},
                       {"bytes_per_second", status.bytes_per_second()}});
}

}  // namespace godwit::bench
