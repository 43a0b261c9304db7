// Threads that must not allocate (design §1: no allocation on engine or rank threads after ready). They mark
// themselves; tests/unit/engine/allocation_test.cpp replaces malloc and counts what marked threads ask for.
// Compiled into test builds only (GODWIT_FAULTS), like fault points.
#pragma once

namespace godwit {

#ifdef GODWIT_FAULTS
inline thread_local bool allocation_forbidden = false;

class MarkAllocation {
 public:
  explicit MarkAllocation(bool forbidden) : before_(allocation_forbidden) {
    allocation_forbidden = forbidden;
  }
  ~MarkAllocation() { allocation_forbidden = before_; }
  MarkAllocation(const MarkAllocation&) = delete;
  MarkAllocation& operator=(const MarkAllocation&) = delete;

 private:
  bool before_;
};
#else
struct MarkAllocation {
  explicit MarkAllocation(bool) {}
};
#endif

// For the scope: the calling thread promises to allocate nothing.
struct ForbidAllocation : MarkAllocation {
  ForbidAllocation() : MarkAllocation(true) {}
};
// For the scope: a failure path, where error texts may be made.
struct AllowAllocation : MarkAllocation {
  AllowAllocation() : MarkAllocation(false) {}
};

}  // namespace godwit
