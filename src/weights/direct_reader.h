// Parts of a checkpoint read past the page cache, by several threads, straight to their places (design §13).
#pragma once

#include <memory>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/read_list.h"
#include "weights/read_workers.h"

namespace godwit {

// One read. With so many bytes a thread, eight threads keep a disk as busy as `dd bs=16M` does.
constexpr uint64_t kReadBytes = 16 << 20;

// Where bytes go. `thread` counts from 0; calls with different ones come at the same time. May throw what the
// memory's own calls throw: it reaches the caller of read_direct.
class Placer {
 public:
  virtual ~Placer() = default;
  // kReadBytes that a read may fill, aligned to kReadAlign.
  virtual std::byte* buffer(int thread) = 0;
  // rows.rows pieces from `from` on, packed to rows.to. `from` may be read over when it returns.
  virtual void place(int thread, const ReadRows& rows, const std::byte* from) = 0;
};

// To memory of this process.
class HostPlacer final : public Placer {
 public:
  explicit HostPlacer(int threads);
  std::byte* buffer(int thread) override;
  void place(int thread, const ReadRows& rows, const std::byte* from) override;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> buffers_;
};

void pack_rows(const ReadRows& rows, const std::byte* from, std::byte* to);

// Reads the list, with options.threads threads; memory beside the places is kReadBytes a thread. One line of
// the log when a file system refuses direct reads. Errors: of DirectFile and work_off.
Result<ReadStatus> read_direct(const Checkpoint& checkpoint, const ReadList& list, Placer& placer,
                               const ReadOptions& options);

}  // namespace godwit
