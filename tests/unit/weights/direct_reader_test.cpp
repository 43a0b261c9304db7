// Direct reads give the bytes that the mapping gives, for every way to cut a checkpoint; what goes wrong with
// a file ends all threads and says where.
#include "weights/direct_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <stdexcept>

#include "base/fault.h"
#include "weights/direct_file.h"
#include "weights/safetensors.h"
#include "weights_test_support.h"

namespace godwit {
namespace {

ReadOptions quietly(int threads) {
  ReadOptions options;
  options.threads = threads;
  return options;
}

Checkpoint opened(const std::filesystem::path& dir) {
  Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  return std::move(checkpoint).value();
}

// What is to be read of a tensor, and where it went.
struct Place {
  const TensorRef* tensor;
  Slice slice;
  std::vector<std::byte> bytes;
};

Slice whole(const TensorRef& tensor) {
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  return {{0, rows}, {0, rows == 0 ? 0 : tensor.elements() / rows}};
}

void expect_equal(const std::string& name, const Place& place) {
  const auto size = static_cast<size_t>(size_of(place.tensor->dtype));
  const size_t stride = static_cast<size_t>(whole(*place.tensor).columns.end) * size;
  const size_t row = static_cast<size_t>(place.slice.columns.size()) * size;
  for (int64_t r = 0; r < place.slice.rows.size(); ++r) {
    const std::byte* expected = place.tensor->data +
                                static_cast<size_t>(place.slice.rows.begin + r) * stride +
                                static_cast<size_t>(place.slice.columns.begin) * size;
    ASSERT_EQ(std::memcmp(place.bytes.data() + static_cast<size_t>(r) * row, expected, row), 0)
        << name << " row " << r;
  }
}

class Rank {
 public:
  void add(const std::string& name, const TensorRef& tensor, const Slice& slice) {
    const int64_t elements = slice.rows.size() * slice.columns.size();
    Place& place = places_[name];
    place = {&tensor, slice,
             std::vector<std::byte>(static_cast<size_t>(elements * size_of(tensor.dtype)), std::byte{0xee})};
    list_.add(tensor, slice, place.bytes.data());
  }

  void expect_reads(const Checkpoint& checkpoint, int threads) {
    HostPlacer placer(threads);
    const Result<ReadStatus> read = read_direct(checkpoint, list_, placer, quietly(threads));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->bytes_done, list_.bytes());
    EXPECT_EQ(read->files_done, read->files);
    for (const auto& [name, place] : places_) expect_equal(name, place);
  }
  size_t tensors() const { return places_.size(); }
  const ReadList& list() const { return list_; }

 private:
  std::map<std::string, Place> places_;
  ReadList list_;
};

class DirectReader : public testing::TestWithParam<const char*> {};

TEST_P(DirectReader, ReadsEveryRanksPart) {
  const std::string model = GetParam();
  const bool twin = model.ends_with("-fp8");
  const std::filesystem::path dir =
      twin ? std::filesystem::path(GODWIT_BINARY_DIR) / "models" / model : source_path("models/" + model);
  const Checkpoint checkpoint = opened(dir);
  Result<ModelConfig> config = read_model_config(dir);
  ASSERT_TRUE(config.ok());
  const std::vector<TensorSpec> inventory = found_inventory(checkpoint, make_inventory(*config));
  int splits = 0;
  for (const auto& [tp, ep] : {std::pair{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2}, {4, 4}}) {
    const Result<ShardPlan> plan = ShardPlan::make(config->text, tp, ep);
    if (!plan.ok() || !check_fp8_cuts(*plan, inventory).ok()) continue;
    ++splits;
    size_t tensors = 0;
    for (int64_t r = 0; r < tp; ++r) {
      Rank rank;
      for (const TensorSpec& spec : inventory) {
        const Slice slice = plan->slice(spec, r);
        if (slice.empty()) continue;
        rank.add(spec.name, *checkpoint.find(spec.name), slice);
        const TensorRef* scales = checkpoint.find(scale_name(spec.name));
        if (scales) rank.add(scale_name(spec.name), *scales, scale_slice(slice));
      }
      rank.expect_reads(checkpoint, 1 + static_cast<int>(r) * 2);
      tensors += rank.tensors();
    }
    EXPECT_GE(tensors, checkpoint.tensors().size());
  }
  EXPECT_GE(splits, model.starts_with("tiny") ? 6 : 1);
}

INSTANTIATE_TEST_SUITE_P(Models, DirectReader,
                         testing::Values("tiny-glm5next", "random-glm5next", "tiny-glm5next-fp8",
                                         "random-glm5next-fp8"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Tensors of awkward sizes, one after the other, so that they begin at any byte; `shift` moves them all.
void write_awkward(const std::filesystem::path& dir, size_t shift) {
  std::string header;
  size_t at = 0;
  for (const size_t size : {0, 1, 511, 512, 513, 4095, 4096, 4097, 8191, 8193, 1000, (16 << 20) + 5, 7}) {
    header += (header.empty() ? "{\"t" : ",\"t") + std::to_string(header.size()) +
              R"(":{"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":[)" +
              std::to_string(at) + "," + std::to_string(at + size) + "]}";
    at += size;
  }
  std::string image = safetensors_image(header + "}" + std::string(shift, ' '), 0);
  const size_t begin = image.size();
  image.resize(begin + at);
  uint64_t state = shift;
  for (size_t i = begin; i < image.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    image[i] = static_cast<char>(state >> 56);
  }
  write_whole_file(dir / "model.safetensors", image);
}

TEST(DirectReaderFiles, ReadsTensorsAtAnyByteWithAnyNumberOfThreads) {
  for (int threads = 1; threads <= 8; ++threads) {
    TempDir dir;
    write_awkward(dir.path(), static_cast<size_t>(threads) * 7);
    const Checkpoint checkpoint = opened(dir.path());
    Rank rank;
    for (const auto& [name, tensor] : checkpoint.tensors()) rank.add(name, tensor, whole(tensor));
    rank.expect_reads(checkpoint, threads);
  }
}

TEST(DirectReaderFiles, ReadsNothing) {
  TempDir dir;
  write_awkward(dir.path(), 0);
  Rank none;
  none.expect_reads(opened(dir.path()), 4);
}

// A file that another one replaced, that grew, shrank or went after its header was read.
TEST(DirectReaderFiles, RefusesAFileThatChanged) {
  const std::vector<std::pair<const char*, std::function<void(const std::filesystem::path&)>>> kChanges = {
      {"changed", [](const auto& p) { ASSERT_EQ(::truncate(p.c_str(), 5000), 0); }},
      {"changed", [](const auto& p) { std::ofstream(p, std::ios::app) << "x"; }},
      {"changed",
       [](const auto& p) {
         std::filesystem::copy_file(p, p.string() + ".new");
         std::filesystem::rename(p.string() + ".new", p);
       }},
      {"No such file", [](const auto& p) { std::filesystem::remove(p); }},
      {"changed",
       [](const auto& p) {
         std::filesystem::remove(p);
         std::filesystem::create_directory(p);
       }},
      {"changed", [](const auto& p) {
         std::filesystem::remove(p);
         ASSERT_EQ(::mkfifo(p.c_str(), 0600), 0);
       }}};
  for (const auto& [word, change] : kChanges) {
    TempDir dir;
    write_awkward(dir.path(), 0);
    const Checkpoint checkpoint = opened(dir.path());
    Rank rank;
    for (const auto& [name, tensor] : checkpoint.tensors()) rank.add(name, tensor, whole(tensor));
    change(dir.path() / "model.safetensors");
    HostPlacer placer(3);
    const Result<ReadStatus> read = read_direct(checkpoint, rank.list(), placer, quietly(3));
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::data_refused);
    EXPECT_NE(read.error().message.find("model.safetensors"), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find(word), std::string::npos) << read.error().message;
  }
}

TEST(DirectReaderFiles, OpeningNeverWaitsForAPipe) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir.path() / "model.safetensors").c_str(), 0600), 0);
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.error().message.find("not a regular file"), std::string::npos);
}

// A placer that does something at its n-th call. Other threads wait at their next call until the one that
// made it has ended, however long that takes: each makes at most one more.
class AtCall final : public Placer {
 public:
  AtCall(int threads, int call, std::function<void()> act)
      : host_(threads), call_(call), act_(std::move(act)) {}
  std::byte* buffer(int thread) override { return host_.buffer(thread); }
  void place(int thread, const ReadRows& rows, const std::byte* from) override {
    static thread_local AtExit acted;
    const int call = ++calls_;
    if (call == call_) {
      acted.latch = &ended_;
      act_();
    } else if (call > call_ && !acted.latch) {
      ended_.wait();
    }
    host_.place(thread, rows, from);
  }
  int calls() const { return calls_; }

 private:
  struct AtExit {
    std::latch* latch = nullptr;
    ~AtExit() {
      if (latch) latch->count_down();
    }
  };
  HostPlacer host_;
  int call_;
  std::function<void()> act_;
  std::atomic<int> calls_{0};
  std::latch ended_{1};
};

class DirectReaderMidway : public testing::Test {
 protected:
  // 200 parts that share no chunk.
  DirectReaderMidway() : to_(kParts * kPart) {
    const std::string header = R"({"t":{"dtype":"U8","shape":[)" + std::to_string(kFile) +
                               R"(],"data_offsets":[0,)" + std::to_string(kFile) + "]}}";
    write_whole_file(path(), safetensors_image(header, kFile));
    checkpoint_.emplace(opened(dir_.path()));
    for (size_t i = 0; i < kParts; ++i)
      list_.add(0, 100 + i * kStep, {kPart, 1, kPart, to_.data() + i * kPart});
    EXPECT_EQ(list_.chunks(kReadBytes).size(), kParts);
  }
  std::filesystem::path path() const { return dir_.path() / "model.safetensors"; }

  static constexpr size_t kParts = 200, kPart = 500, kStep = kReadGap + 1000, kFile = kParts * kStep;
  TempDir dir_;
  std::vector<std::byte> to_;
  std::optional<Checkpoint> checkpoint_;
  ReadList list_;
};

TEST_F(DirectReaderMidway, StopsWhenAsked) {
  for (const int threads : {1, 4}) {
    std::stop_source stop;
    AtCall placer(threads, 5, [&] { stop.request_stop(); });
    ReadOptions options = quietly(threads);
    options.stop = stop.get_token();
    const Result<ReadStatus> read = read_direct(*checkpoint_, list_, placer, options);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::unavailable);
    EXPECT_LE(placer.calls(), 5 + threads - 1);  // each other thread ends the chunk it has
  }
}

TEST_F(DirectReaderMidway, SaysWhatThePlacerThrewAndInWhichFile) {
  AtCall placer(4, 7, [] { throw std::runtime_error("the device is gone"); });
  const Result<ReadStatus> read = read_direct(*checkpoint_, list_, placer, quietly(4));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::device);
  EXPECT_NE(read.error().message.find("model.safetensors: placing"), std::string::npos)
      << read.error().message;
  EXPECT_NE(read.error().message.find("the device is gone"), std::string::npos) << read.error().message;
  EXPECT_LE(placer.calls(), 7 + 4 - 1);
}

TEST_F(DirectReaderMidway, HandsOnThatMemoryRanOut) {
  AtCall placer(4, 7, [] { throw std::bad_alloc(); });
  EXPECT_THROW(static_cast<void>(read_direct(*checkpoint_, list_, placer, quietly(4))), std::bad_alloc);
}

// Every thread that placed anything waits for it, and one whose wait fails fails the whole.
TEST_F(DirectReaderMidway, FinishesEveryThread) {
  struct Finishing final : Placer {
    std::byte* buffer(int thread) override { return host.buffer(thread); }
    void place(int thread, const ReadRows& rows, const std::byte* from) override {
      host.place(thread, rows, from);
      ++placed[static_cast<size_t>(thread)];
    }
    void finish(int thread) override {
      placed[static_cast<size_t>(thread)] = 0;
      if (fails) throw std::runtime_error("lost on the way");
    }
    HostPlacer host{4};
    int placed[4] = {};
    bool fails = false;
  };
  Finishing placer;
  EXPECT_TRUE(read_direct(*checkpoint_, list_, placer, quietly(4)).ok());
  for (const int left : placer.placed) EXPECT_EQ(left, 0);
  placer.fails = true;
  const Result<ReadStatus> read = read_direct(*checkpoint_, list_, placer, quietly(4));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("lost on the way"), std::string::npos) << read.error().message;
}

TEST_F(DirectReaderMidway, NoticesAWriteWhileItReads) {
  AtCall placer(2, 9, [&] {
    const int fd = ::open(path().c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(fd, "x", 1, 100), 1);
    timespec times[2] = {{1, 0}, {1, 0}};  // two writes may fall into one tick of the clock
    ASSERT_EQ(::futimens(fd, times), 0);
    ::close(fd);
  });
  const Result<ReadStatus> read = read_direct(*checkpoint_, list_, placer, quietly(2));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("changed"), std::string::npos) << read.error().message;
}

TEST_F(DirectReaderMidway, SaysWhereAFileEndsTooEarly) {
  Result<DirectFile> file = DirectFile::open(path(), checkpoint_->file(0).stamp());
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(path().c_str(), 9000), 0);
  HostPlacer placer(1);
  const Result<void> read = file->read(4096, 20000, placer.buffer(0));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("ends at offset 9000"), std::string::npos) << read.error().message;
  EXPECT_TRUE(file->read(4096, 9000 - 4096, placer.buffer(0)).ok());  // to the last byte
}

#ifdef GODWIT_FAULTS
class Faults : public DirectReaderMidway {
 protected:
  ~Faults() override { fault::disarm_all(); }
  Result<ReadStatus> read() {
    std::fill(to_.begin(), to_.end(), std::byte{0xee});
    HostPlacer placer(3);
    return read_direct(*checkpoint_, list_, placer, quietly(3));
  }
  void expect_all() {
    for (size_t i = 0; i < kParts; ++i)
      ASSERT_EQ(
          std::memcmp(&to_[i * kPart],
                      checkpoint_->find("t")->data - checkpoint_->find("t")->offset + 100 + i * kStep, kPart),
          0)
          << i;
  }
};

TEST_F(Faults, ReadsOnAfterInterruptsAndShortReads) {
  fault::arm("weights.interrupted", 3, 50);
  const Result<ReadStatus> interrupted = read();
  ASSERT_TRUE(interrupted.ok()) << interrupted.error().message;
  expect_all();
  fault::arm("weights.short_read", 0, -1);
  Rank rank;
  const TensorRef& t = *checkpoint_->find("t");
  rank.add("t", t, {{100'000, 900'001}, {0, 1}});
  rank.expect_reads(*checkpoint_, 2);
}

TEST_F(Faults, ReadsThroughThePageCacheWhereDirectReadsAreRefused) {
  fault::arm("weights.no_direct", 0, -1);
  const Result<ReadStatus> all = read();
  ASSERT_TRUE(all.ok()) << all.error().message;
  expect_all();
  const Result<DirectFile> file = DirectFile::open(path(), checkpoint_->file(0).stamp());
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->is_direct());
}

TEST_F(Faults, NamesFileAndOffsetOfAnIoError) {
  fault::arm("weights.io_error", 0, -1);
  const Result<ReadStatus> failed = read();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::data_refused);
  EXPECT_NE(failed.error().message.find("model.safetensors: reading"), std::string::npos);
  EXPECT_NE(failed.error().message.find("at offset"), std::string::npos) << failed.error().message;
}
#endif

}  // namespace
}  // namespace godwit
