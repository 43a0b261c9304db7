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
// memory's own calls throw.
class Placer {
 public:
  virtual ~Placer() = default;
  // kReadBytes that a read may fill, aligned to kReadAlign. What place() was told of them before has left
  // them.
  virtual std::byte* buffer(int thread) = 0;
  // rows.rows pieces from `from` on, inside the newest buffer of the thread, packed to rows.to: when it
  // returns, or on their way until finish().
  virtual void place(int thread, const ReadRows& rows, const std::byte* from) = 0;
  // Waits until all that the thread placed is in its place. The thread's last call.
  virtual void finish(int thread) { static_cast<void>(thread); }
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

// How many threads read_direct() uses: a placer needs buffers for no more.
int threads_for(const ReadList& list, const ReadOptions& options);

// Reads the list, with options.threads threads; memory beside the places is the placer's buffers. One line of
// the log when a file system refuses direct reads. Errors: of DirectFile and work_off; device, with the file,
// for a std::runtime_error of the placer.
Result<ReadStatus> read_direct(const Checkpoint& checkpoint, const ReadList& list, Placer& placer,
                               const ReadOptions& options);

}  // namespace godwit
