// Weights go to the device through page-locked buffers: every byte arrives, whichever threads read and
// however the copies are late.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "../unit/weights/weights_test_support.h"
#include "base/fault.h"
#include "cuda_runtime_api.h"
#include "device.h"
#include "kernels/make_ops.h"
#include "model/glm5_next/device_placer.h"
#include "weights/inventory.h"
#include "weights/safetensors_writer.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<kernels::Ops> device() {
  auto ops = kernels::make_ops("cuda", 1);
  EXPECT_TRUE(ops.ok()) << ops.error().message;
  return std::move(ops).value();
}

// The same tensors, each in a file of its own and so in a read of its own: buffers are used again and again.
void scatter(const Checkpoint& checkpoint, const fs::path& dir) {
  std::string map;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string file = "model-" + std::to_string(map.size()) + ".safetensors";
    auto writer = SafetensorsWriter::create(dir / file, {{name, tensor.dtype, tensor.shape, 0, 0}});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write({reinterpret_cast<const char*>(tensor.data), tensor.bytes}).ok());
    ASSERT_TRUE(writer->finish().ok());
    map += (map.empty() ? "\"" : ",\"") + name + "\":\"" + file + "\"";
  }
  write_whole_file(dir / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
}

// What a rank holds, in the device's memory.
class Rank {
 public:
  Rank(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory, const ShardPlan& plan,
       int64_t rank, kernels::Memory& memory)
      : checkpoint_(checkpoint), memory_(memory) {
    for (const TensorSpec& spec : inventory) {
      const Slice slice = plan.slice(spec, rank);
      if (slice.empty()) continue;
      add(spec.name, slice);
      if (checkpoint.find(scale_name(spec.name))) add(scale_name(spec.name), scale_slice(slice));
    }
  }
  ~Rank() {
    for (const Place& place : places_) memory_.release(place.at);
  }

  Result<ReadStatus> read(int threads) {
    ReadOptions options;
    options.threads = threads;
    model::DevicePlacer placer(memory_, threads_for(list_, options));
    return read_direct(checkpoint_, list_, placer, options);
  }
  void expect_all() {
    for (const Place& place : places_) {
      const auto size = static_cast<size_t>(size_of(place.tensor->dtype));
      const size_t width = static_cast<size_t>(place.slice.columns.size()) * size;
      const size_t rows = static_cast<size_t>(place.tensor->shape.empty() ? 1 : place.tensor->shape[0]);
      const size_t stride = static_cast<size_t>(place.tensor->elements()) / rows * size;
      std::vector<std::byte> there(static_cast<size_t>(place.slice.rows.size()) * width);
      memory_.download(there.data(), place.at, static_cast<int64_t>(there.size()));
      for (int64_t r = 0; r < place.slice.rows.size(); ++r) {
        const std::byte* expected = place.tensor->data +
                                    static_cast<size_t>(place.slice.rows.begin + r) * stride +
                                    static_cast<size_t>(place.slice.columns.begin) * size;
        ASSERT_EQ(std::memcmp(&there[static_cast<size_t>(r) * width], expected, width), 0)
            << place.name << " row " << r;
      }
    }
  }
  size_t strided() const { return strided_; }

 private:
  struct Place {
    std::string name;
    const TensorRef* tensor;
    Slice slice;
    std::byte* at;
  };
  void add(const std::string& name, const Slice& slice) {
    const TensorRef& tensor = *checkpoint_.find(name);
    const int64_t bytes = slice.rows.size() * slice.columns.size() * size_of(tensor.dtype);
    auto* at = static_cast<std::byte*>(memory_.allocate(bytes));  // poisoned
    list_.add(tensor, slice, at);
    places_.push_back({name, &tensor, slice, at});
    if (slice.rows.size() > 1 && slice.columns.size() * tensor.shape[0] != tensor.elements()) ++strided_;
  }
  const Checkpoint& checkpoint_;
  kernels::Memory& memory_;
  ReadList list_;
  std::vector<Place> places_;
  size_t strided_ = 0;
};

class Loading : public testing::TestWithParam<const char*> {
 protected:
  ~Loading() override { fault::disarm_all(); }
};

TEST_P(Loading, PutsEveryByteOfEveryRankInItsPlace) {
  const std::string model = GetParam();
  const fs::path whole = model.ends_with("-fp8") ? fs::path(GODWIT_BINARY_DIR) / "models" / model
                                                 : source_path("models/" + model);
  Result<Checkpoint> together = Checkpoint::open(whole);
  ASSERT_TRUE(together.ok()) << together.error().message;
  TempDir dir;
  ASSERT_NO_FATAL_FAILURE(scatter(*together, dir.path()));
  Result<Checkpoint> apart = Checkpoint::open(dir.path());
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  Result<ModelConfig> config = read_model_config(whole);
  ASSERT_TRUE(config.ok());
  const std::vector<TensorSpec> inventory = found_inventory(*together, make_inventory(*config));
  const std::unique_ptr<kernels::Ops> ops = device();

  struct Split {
    int64_t tp, ep;
    int threads;
  };
  size_t splits = 0, strided = 0;
  for (const Split& split :
       {Split{1, 1, 1}, Split{1, 1, 8}, Split{2, 1, 3}, Split{4, 1, 2}, Split{4, 4, 5}}) {
    const Result<ShardPlan> plan = ShardPlan::make(config->text, split.tp, split.ep);
    if (!plan.ok() || !check_fp8_cuts(*plan, inventory).ok()) continue;
    ++splits;
    for (int64_t r = 0; r < split.tp; ++r) {
      for (const Checkpoint* checkpoint : {&*together, &*apart}) {
        Rank rank(*checkpoint, inventory, *plan, r, ops->memory());
        const Result<ReadStatus> read = rank.read(split.threads);
        ASSERT_TRUE(read.ok()) << read.error().message;
        EXPECT_EQ(read->files_done, read->files);
        ASSERT_NO_FATAL_FAILURE(rank.expect_all()) << "tp " << split.tp << " ep " << split.ep << " rank " << r
                                                   << ", " << split.threads << " threads";
        strided += rank.strided();
      }
    }
  }
  EXPECT_GE(splits, model.ends_with("-fp8") ? 2u : 4u);
  EXPECT_TRUE(strided > 0 || splits <= 2) << "no columns were cut";
}

INSTANTIATE_TEST_SUITE_P(Models, Loading, testing::Values("tiny-glm5next", "tiny-glm5next-fp8"),
                         [](const auto& model) {
                           return std::string(model.param).ends_with("-fp8") ? "tiny_fp8" : "tiny";
                         });

class Failing : public testing::Test {
 protected:
  Failing() {
    auto checkpoint = Checkpoint::open(source_path("models/tiny-glm5next"));
    EXPECT_TRUE(checkpoint.ok());
    checkpoint_.emplace(std::move(checkpoint).value());
    auto config = read_model_config(source_path("models/tiny-glm5next"));
    EXPECT_TRUE(config.ok());
    inventory_ = found_inventory(*checkpoint_, make_inventory(*config));
    plan_.emplace(ShardPlan::make(config->text, 1, 1).value());
  }
  ~Failing() override {
    fault::disarm_all();
    emulation::repair_device();
  }
  std::optional<Checkpoint> checkpoint_;
  std::vector<TensorSpec> inventory_;
  std::optional<ShardPlan> plan_;
};

TEST_F(Failing, LoadsWhereHostMemoryCannotBeLocked) {
  const auto ops = device();
  Rank rank(*checkpoint_, inventory_, *plan_, 0, ops->memory());
  fault::arm("cuda.host_register", 1, 2);  // of some buffers
  const auto read = rank.read(3);
  ASSERT_TRUE(read.ok()) << read.error().message;
  rank.expect_all();
}

TEST_F(Failing, NamesOpAndFile) {
  const auto ops = device();
  Rank rank(*checkpoint_, inventory_, *plan_, 0, ops->memory());
  fault::arm("cuda.copy", 5, 1);
  const auto read = rank.read(2);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::device);
  EXPECT_NE(read.error().message.find(".safetensors: placing"), std::string::npos) << read.error().message;
  EXPECT_NE(read.error().message.find("CUDA failed in upload: an illegal memory access"), std::string::npos)
      << read.error().message;
}

// What the tests above rely on: a copy of locked memory shows what the buffer holds when the stream is waited
// for.
TEST(Emulation, CopiesOfLockedMemoryArriveLate) {
  alignas(64) char buffer[64] = "first";
  void* there = nullptr;
  ASSERT_EQ(cudaMalloc(&there, sizeof buffer), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(buffer, sizeof buffer, cudaHostRegisterDefault), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(there, buffer, sizeof buffer, cudaMemcpyHostToDevice, stream), cudaSuccess);
  std::strcpy(buffer, "second");
  EXPECT_NE(std::memcmp(there, "second", 7), 0);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(std::memcmp(there, "second", 7), 0);
  EXPECT_EQ(cudaHostUnregister(buffer), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(there, buffer, sizeof buffer, cudaMemcpyHostToDevice, stream), cudaSuccess);
  std::strcpy(buffer, "third");
  EXPECT_EQ(std::memcmp(there, "second", 7), 0) << "of other memory it is done at once";
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(there), cudaSuccess);
}

}  // namespace
}  // namespace godwit
