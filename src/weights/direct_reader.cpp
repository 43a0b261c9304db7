#include "weights/direct_reader.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>

#include "base/log.h"
#include "weights/direct_file.h"
#include "weights/safetensors.h"

namespace godwit {
namespace {

// The files that chunks in flight need: opened by the first chunk, closed after the last, so that a
// checkpoint of many files needs few descriptors.
class OpenFiles {
 public:
  OpenFiles(const Checkpoint& checkpoint, const std::vector<ReadChunk>& chunks) : checkpoint_(checkpoint) {
    for (const ReadChunk& chunk : chunks) ++files_[chunk.file].left;
  }

  Result<DirectFile*> get(uint32_t index) {
    const SafetensorsFile& shard = checkpoint_.file(index);
    std::lock_guard lock(mutex_);
    File& file = files_.at(index);
    if (!file.open) {
      GODWIT_ASSIGN(DirectFile opened, DirectFile::open(shard.path(), shard.stamp()));
      file.open = std::make_unique<DirectFile>(std::move(opened));
    }
    return file.open.get();
  }

  Result<void> done(uint32_t index) {
    std::lock_guard lock(mutex_);
    File& file = files_.at(index);
    if (--file.left > 0) return {};
    const std::unique_ptr<DirectFile> last = std::move(file.open);
    if (!last->is_direct() && !told_) {
      log_warn("{}: its file system refuses direct reads; reading through the page cache",
               checkpoint_.file(index).path().string());
      told_ = true;
    }
    return last->check_unchanged();
  }

 private:
  struct File {
    size_t left = 0;  // chunks
    std::unique_ptr<DirectFile> open;
  };
  const Checkpoint& checkpoint_;
  std::mutex mutex_;
  std::map<uint32_t, File> files_;
  bool told_ = false;
};

Result<void> read_chunk(OpenFiles& files, Placer& placer, int thread, const ReadChunk& chunk) {
  GODWIT_ASSIGN(DirectFile * file, files.get(chunk.file));
  std::byte* buffer = placer.buffer(thread);
  const uint64_t head = chunk.offset % kReadAlign;
  GODWIT_TRY(file->read(chunk.offset - head, head + chunk.bytes, buffer));
  for (const ReadPart& part : chunk.parts) placer.place(thread, part, buffer + head + part.at);
  return files.done(chunk.file);
}

// A device tells of a failed copy at some later call, so the file may be the one after it.
Error placing_failed(const SafetensorsFile& file, uint64_t offset, const std::exception& failure) {
  return make_error(ErrorCode::device, file.name(), "{}: placing what lies at offset {}: {}",
                    file.path().string(), offset, failure.what());
}

}  // namespace

void HostPlacer::Free::operator()(std::byte* p) const {
  ::munmap(p, kReadBytes);
}

HostPlacer::HostPlacer(int threads) {
  for (int t = 0; t < threads; ++t) {
    void* p = ::mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    buffers_.emplace_back(static_cast<std::byte*>(p));
  }
}

std::byte* HostPlacer::buffer(int thread) {
  return buffers_[static_cast<size_t>(thread)].get();
}

void HostPlacer::place(int, const ReadRows& rows, const std::byte* from) {
  pack_rows(rows, from, rows.to);
}

void pack_rows(const ReadRows& rows, const std::byte* from, std::byte* to) {
  for (uint64_t r = 0; r < rows.rows; ++r)
    std::memcpy(to + r * rows.row_bytes, from + r * rows.stride, rows.row_bytes);
}

int threads_for(const ReadList& list, const ReadOptions& options) {
  return static_cast<int>(std::min(list.chunks(kReadBytes).size(), static_cast<size_t>(options.threads)));
}

Result<ReadStatus> read_direct(const Checkpoint& checkpoint, const ReadList& list, Placer& placer,
                               const ReadOptions& options) {
  const std::vector<ReadChunk> chunks = list.chunks(kReadBytes);
  OpenFiles files(checkpoint, chunks);
  const auto work = [&](int thread, const ReadChunk& chunk) -> Result<void> {
    try {
      return read_chunk(files, placer, thread, chunk);
    } catch (const std::runtime_error& failure) {
      return placing_failed(checkpoint.file(chunk.file), chunk.offset, failure);
    }
  };
  return work_off(chunks, options, work, [&](int thread, const ReadChunk& last) -> Result<void> {
    try {
      placer.finish(thread);
      return {};
    } catch (const std::runtime_error& failure) {
      return placing_failed(checkpoint.file(last.file), last.offset, failure);
    }
  });
}

}  // namespace godwit
