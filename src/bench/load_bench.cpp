#include "bench/load_bench.h"

#include <new>

#include "config/model_config.h"
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

}  // namespace

Result<ReadStatus> run_load_bench(const LoadCase& asked) {
  GODWIT_ASSIGN(const ModelConfig config, read_model_config(asked.checkpoint));
  GODWIT_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(asked.checkpoint));
  GODWIT_ASSIGN(const std::vector<Read> reads, reads_of_rank(checkpoint, config, asked));
  uint64_t bytes = 0;
  for (const Read& read : reads) bytes += bytes_of(read);
  Buffer place;
  std::unique_ptr<HostPlacer> placer;
  try {
    place = Buffer(bytes);
    placer = std::make_unique<HostPlacer>(asked.threads);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::data_refused, "--checkpoint",
                      "there is no room for the {} bytes that rank {} of {} holds; use a larger --tp", bytes,
                      asked.rank, asked.tp);
  }
  ReadList list;
  std::byte* to = place.as<std::byte>();
  for (const Read& read : reads) {
    list.add(*read.tensor, read.slice, to);
    to += bytes_of(read);
  }
  ReadOptions options;
  options.threads = asked.threads;
  return read_direct(checkpoint, list, *placer, options);
}

Json as_json(const LoadCase& asked, const ReadStatus& status) {
  return Json::object({{"checkpoint", asked.checkpoint.filename().string()},
                       {"tp", asked.tp},
                       {"ep", asked.ep},
                       {"rank", asked.rank},
                       {"threads", static_cast<int64_t>(asked.threads)},
                       {"shards", static_cast<int64_t>(status.files)},
                       {"bytes", static_cast<int64_t>(status.bytes)},
                       {"seconds", status.seconds},
                       {"bytes_per_second", status.bytes_per_second()}});
}

}  // namespace godwit::bench
