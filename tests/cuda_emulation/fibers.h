// The threads of one block, or of the blocks of one cluster, as fibers that take turns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device_code.h"

namespace godwit::emulation {

// Says what the kernel did wrong, a printf format, and ends the program.
[[noreturn]] void fail(const char* what, size_t number);

class Fibers {
 public:
  static constexpr unsigned kMostBlocks = 8;  // of a cluster
  // Of what runs together; blocks of a cluster have whole warps.
  struct Shape {
    unsigned threads;  // of a block
    unsigned blocks, first_block;
  };
  // Runs it to its end. `reversed`: later threads get their turns first, which shows what only works
  // because earlier ones came first.
  // `seen`: of each thread, a sum of what its copies read before it waits for the kernel before; it must be
  // what it was in look_ahead(), if that says anything.
  void run(const Shape& shape, bool reversed, const std::function<void()>& thread,
           const std::vector<uint64_t>* seen = nullptr);
  // Runs it as far as it comes without the kernel before. Returns whether it lets the next kernel do the
  // same.
  bool look_ahead(const Shape& shape, bool reversed, const std::function<void()>& thread,
                  std::vector<uint64_t>& seen);

  // Of the running thread.
  void wait_for_lanes(unsigned mask);
  void wait_for_threads(int barrier, unsigned count);  // of its block
  void arrive_at_cluster();
  void wait_for_cluster();
  bool ended(unsigned block) const { return alive_of_[block] == 0; }
  unsigned block() const { return static_cast<unsigned>(running_) / shape_.threads; }  // within its cluster
  unsigned blocks() const { return shape_.blocks; }
  size_t thread() const { return running_; }  // of all of its cluster
  void wait_until(const std::function<bool()>& condition);
  const Gift* exchange(unsigned mask, const Gift& own);

  struct Copy {
    void* to;
    const void* from;
    bool present;
    bool last_of_group;
    size_t bytes;
    unsigned char source[16];  // what was there when it was asked for
  };
  std::vector<Copy>& copies() { return fibers_[running_]->copies; }
  void add_copy(const Copy& copy);
  void see(const Copy& copy);  // what it reads, unless the thread has waited for the kernel before
  bool has_waited() const { return fibers_[running_]->waited; }
  void wait_for_previous();
  void let_next_start() { lets_next_ |= !fibers_[running_]->waited; }
  int& votes() { return votes_[block()]; }

 private:
  struct Fiber {
    std::unique_ptr<unsigned char[]> stack;
    void* at = nullptr;  // its stack pointer while others have their turns
    bool done = false;
    bool blocked = false;
    unsigned lanes = 0;  // that it waits for; 0: it waits for a barrier
    const Gift* met = nullptr;
    int barrier = 0;
    const std::function<bool()>* condition = nullptr;  // that it waits for, instead of others
    bool waited = false;                               // for the kernel before
    bool left = false;                                 // in the middle of a kernel: it needs a new stack
    uint64_t seen = 0;
    unsigned cluster_turn = 0;  // of the cluster's barrier, that it arrived for last
    std::vector<Copy> copies;
  };
  struct Warp {
    unsigned alive = 0, arrived = 0;
    Gift gifts[32];
    // What lanes that met were given. Groups of lanes that do not meet must not disturb each other: each has
    // the pair of its first lane. A pair, since a lane may give again while another still reads.
    Gift met[32][2][32];
    unsigned parity = 0;  // a bit for each pair
  };
  static constexpr int kBarriers = 16, kCondition = kBarriers * int{kMostBlocks};
  static constexpr size_t kStackBytes = 256 * 1024;

  static void enter();
  void release_cluster();
  void* new_stack(size_t i);
  void resume(size_t i);
  void pause();
  void finish();
  void end();  // of the running thread, which does not come back when it is left
  bool release_lanes(size_t warp, unsigned mask);  // when all of them have arrived
  void meet(int barrier, unsigned count);
  void release_barrier(int barrier);
  [[noreturn]] void stuck();
  void abandon();  // threads that look ahead and cannot go on

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<Warp>> warps_;
  size_t warp_count_ = 0;
  Shape shape_ = {};
  unsigned arrived_[kCondition] = {};  // those of the first block, of the next, …
  unsigned alive_ = 0, alive_of_[kMostBlocks] = {};
  unsigned cluster_arrived_ = 0, cluster_turn_ = 0;
  size_t running_ = 0;
  int votes_[kMostBlocks] = {};
  bool ahead_ = false, lets_next_ = false;
  std::vector<uint64_t>* seen_ = nullptr;  // to write, when ahead
  const std::vector<uint64_t>* expected_ = nullptr;
  const std::function<void()>* thread_ = nullptr;
  void* scheduler_ = nullptr;
};

}  // namespace godwit::emulation
