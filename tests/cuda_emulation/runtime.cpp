// Memory, streams, graphs and launches of the emulated device.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "base/fault.h"
#include "device.h"
#include "fibers.h"
#include "kernels/sm90/device/hardware.cuh"
#include "kernels/sm90/device/warpgroup.cuh"

namespace godwit::emulation {
void run_all_waiting();  // launches whose turn has not come
size_t end_bulk_copies(const uint64_t* barrier);
}  // namespace godwit::emulation

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
struct EmulatedStream {
  EmulatedGraph* captured = nullptr;
  std::mutex mutex;
  std::vector<std::function<void()>> late;  // copies of page-locked memory that nobody has waited for

  // After the launches before them.
  void catch_up() {
    std::lock_guard lock(mutex);
    if (late.empty()) return;
    godwit::emulation::run_all_waiting();
    for (const auto& copy : late) copy();
    late.clear();
  }
};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace godwit::emulation {
size_t leave_products();

void issue(cudaStream_t stream, std::function<void()> work);  // now, or when what is captured is replayed

Fibers fibers;

namespace {

constexpr unsigned kMultiprocessors = 5;  // no round number: nothing may depend on it
constexpr unsigned kMostThreads = 1024;
constexpr int kSharedBytes = 227 * 1024, kSharedUnasked = 48 * 1024;

std::mutex launching;  // one device
// Of each block of a cluster; as many bytes as were asked for, so that ASan sees what lies outside. Blocks
// find theirs at the same distance from a boundary, as on a GPU.
struct Release {
  void operator()(unsigned char* p) const { std::free(p); }
};
std::unique_ptr<unsigned char[], Release> shared[Fibers::kMostBlocks];
constexpr size_t kSharedBoundary = 1024, kSharedOffset = 128;
std::map<const void*, int> allowed_shared;

std::atomic<bool> broken = false;  // by a kernel: nothing works any more
std::atomic<int64_t> kernels = 0;

std::mutex allocating;
std::map<const void*, size_t> allocated, locked;  // by address; of the device, and page-locked
int64_t device_bytes = int64_t{8} << 30, taken_bytes = 0;

cudaError_t state() {
  return broken ? cudaErrorIllegalAddress : cudaSuccess;
}

bool is_locked(const void* p, size_t bytes) {
  std::lock_guard lock(allocating);
  auto after = locked.upper_bound(p);
  if (after == locked.begin()) return false;
  --after;
  const auto* begin = static_cast<const char*>(after->first);
  return static_cast<const char*>(p) + bytes <= begin + after->second;
}

bool reversed() {
  static const bool is = [] {
    const char* order = std::getenv("GODWIT_EMULATION_ORDER");
    return order != nullptr && std::strcmp(order, "reverse") == 0;
  }();
  return is;
}

// A launch whose turn has not come. On a GPU it may begin while those before it still run, back to one that
// waits before it lets the next start; so what it reads before its own wait must not be theirs to write.
struct Launch {
  cudaLaunchConfig_t config;
  unsigned cluster;  // blocks of one
  std::function<void()> thread;
  std::map<unsigned, std::vector<uint64_t>> seen;  // by some of its clusters, ahead of its turn
  bool lets_next = false;                          // before it has waited itself
};
std::vector<Launch> waiting;

// Of the block that runs.
struct BulkCopy {
  const uint64_t* barrier;
  Fibers::Copy copy;
};
std::vector<BulkCopy> bulk_copies;
struct BulkStore {
  size_t thread;
  void* to;  // null: the end of a group
  const void* from;
  size_t bytes;
};
std::vector<BulkStore> bulk_stores;

Fibers::Shape enter_cluster(const Launch& launch, unsigned index) {
  blockDim = launch.config.blockDim;
  gridDim = launch.config.gridDim;
  for (unsigned b = 0; b < launch.cluster; ++b) {
    const size_t bytes = kSharedOffset + launch.config.dynamicSmemBytes;
    void* p = nullptr;
    if (posix_memalign(&p, kSharedBoundary, bytes) != 0) fail("no %zu bytes of shared memory", bytes);
    std::memset(p, 0xff, bytes);
    shared[b].reset(static_cast<unsigned char*>(p));
  }
  return {blockDim.x, launch.cluster, index * launch.cluster};
}

void run_first_waiting() {
  const Launch launch = std::move(waiting.front());
  waiting.erase(waiting.begin());
  const unsigned clusters = launch.config.gridDim.x / launch.cluster;
  for (unsigned i = 0; i < clusters; ++i) {
    const unsigned index = reversed() ? clusters - 1 - i : i;
    const auto seen = launch.seen.find(index);
    fibers.run(enter_cluster(launch, index), reversed(), launch.thread,
               seen == launch.seen.end() || seen->second.empty() ? nullptr : &seen->second);
    if (!bulk_stores.empty()) fail("a block ended with %zu bulk copies out under way", bulk_stores.size());
    if (!bulk_copies.empty()) fail("a block ended with %zu bulk copies under way", bulk_copies.size());
    if (const size_t left = leave_products(); left > 0)
      fail("a block ended with %zu products under way", left);
  }
}

void run_grid(const cudaLaunchConfig_t& config, unsigned cluster, const std::function<void()>& thread) {
  constexpr size_t kMostWaiting = 8;
  std::lock_guard lock(launching);
  if (GODWIT_FAULT("cuda.kernel")) broken = true;
  if (broken) return;
  ++kernels;
  if (!waiting.empty() && !waiting.back().lets_next)
    while (waiting.size() > 1) run_first_waiting();
  if (waiting.size() == kMostWaiting) run_first_waiting();
  Launch launch{config, cluster, thread, {}, false};
  const unsigned clusters = config.gridDim.x / cluster;
  for (const unsigned index : {0u, clusters / 2, clusters - 1}) {
    launch.lets_next |=
        fibers.look_ahead(enter_cluster(launch, index), reversed(), thread, launch.seen[index]);
    bulk_copies.clear();
    bulk_stores.clear();
    leave_products();
  }
  waiting.push_back(std::move(launch));
}

}  // namespace

// For everything but kernels, which waits for all before it.
void run_all_waiting() {
  std::lock_guard lock(launching);
  while (!waiting.empty()) run_first_waiting();
}

namespace {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
  } else {
    stream->catch_up();
    work();
  }
}

}  // namespace

void issue(cudaStream_t stream, std::function<void()> work) {
  enqueue(stream, [work = std::move(work)] {
    run_all_waiting();
    work();
  });
}

namespace {

// A copy whose sides are at most these: now, or late when one of them is page-locked.
cudaError_t copy(cudaStream_t stream, const void* a, size_t a_bytes, const void* b, size_t b_bytes,
                 std::function<void()> work) {
  if (broken) return state();
  const bool breaks = GODWIT_FAULT("cuda.copy");
  if (stream->captured != nullptr || !(is_locked(a, a_bytes) || is_locked(b, b_bytes))) {
    issue(stream, std::move(work));
  } else {
    std::lock_guard lock(stream->mutex);
    stream->late.push_back(std::move(work));
    if (breaks) stream->late.push_back([] { broken = true; });
  }
  return cudaSuccess;
}

}  // namespace

void repair_device() {
  broken = false;
}
int64_t kernels_run() {
  return kernels;
}
void set_device_memory(int64_t bytes) {
  std::lock_guard lock(allocating);
  device_bytes = bytes;
}
void take_device_memory(int64_t bytes) {
  std::lock_guard lock(allocating);
  taken_bytes += bytes;
}

cudaError_t allow_shared(const void* kernel, int bytes) {
  if (bytes > kSharedBytes) return cudaErrorInvalidValue;
  std::lock_guard lock(launching);
  allowed_shared[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t most_clusters(int* clusters, const cudaLaunchConfig_t& config) {
  *clusters = static_cast<int>(std::max(1u, kMultiprocessors / config.attrs[0].val.clusterDim.x));
  return state();
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  if (config.gridDim.x == 0 || config.blockDim.x == 0 || config.blockDim.x > kMostThreads)
    return cudaErrorInvalidConfiguration;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config.numAttrs; ++i)
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = config.attrs[i].val.clusterDim.x;
  if (cluster == 0 || cluster > Fibers::kMostBlocks || config.gridDim.x % cluster != 0 ||
      (cluster > 1 && config.blockDim.x % 32 != 0))
    return cudaErrorInvalidConfiguration;
  if (broken) return state();
  {
    std::lock_guard lock(launching);
    const auto asked = allowed_shared.find(kernel);
    const int allowed = asked == allowed_shared.end() ? kSharedUnasked : asked->second;
    if (config.dynamicSmemBytes > static_cast<size_t>(allowed)) return cudaErrorInvalidValue;
  }
  enqueue(config.stream,
          [config, cluster, thread = std::move(thread)] { run_grid(config, cluster, thread); });
  return cudaSuccess;
}

void wait_for_lanes(unsigned mask) {
  fibers.wait_for_lanes(mask);
}
void wait_for_threads(int barrier, unsigned count) {
  fibers.wait_for_threads(barrier, count);
}

int count_threads(bool predicate) {
  fibers.votes() += predicate ? 1 : 0;
  fibers.wait_for_threads(0, 0);
  const int votes = fibers.votes();
  fibers.wait_for_threads(0, 0);
  fibers.votes() = 0;
  fibers.wait_for_threads(0, 0);
  return votes;
}

const Gift* exchange(unsigned mask, const Gift& own) {
  return fibers.exchange(mask, own);
}

void* shared_memory() {
  return shared[fibers.block()].get() + kSharedOffset;
}
void* shared_of(const void* own, unsigned block) {
  return shared[block].get() + (static_cast<const unsigned char*>(own) - shared[fibers.block()].get());
}

}  // namespace godwit::emulation

namespace godwit::sm90 {

using emulation::fibers;

void wait_for_previous() {
  fibers.wait_for_previous();
}
void let_next_start() {
  fibers.let_next_start();
}
void arrive_at_cluster() {
  fibers.arrive_at_cluster();
}
void wait_for_cluster() {
  fibers.wait_for_cluster();
}

namespace {

// Until it is waited for, what lies at either end is nobody's: the target is poisoned at once, so a stage
// that others still read is not refilled unseen, and the source must be then what it is now.
emulation::Fibers::Copy begun_copy(void* to, const void* from, bool present, size_t bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes != 0)
    emulation::fail("an asynchronous copy of %zu bytes is not aligned to them", bytes);
  emulation::Fibers::Copy copy{to, from, present, false, bytes, {}};
  if (present) std::memcpy(copy.source, from, bytes);
  std::memset(to, 0xff, bytes);
  return copy;
}
void start_copy(void* to, const void* from, bool present, size_t bytes) {
  fibers.add_copy(begun_copy(to, from, present, bytes));
}
void end_copy(const emulation::Fibers::Copy& copy) {
  if (!copy.present) {
    std::memset(copy.to, 0, copy.bytes);
    return;
  }
  if (std::memcmp(copy.source, copy.from, copy.bytes) != 0)
    emulation::fail("%zu bytes were written while an asynchronous copy read them", copy.bytes);
  std::memcpy(copy.to, copy.source, copy.bytes);
}

}  // namespace

void copy_async(void* to, const void* from, bool present) {
  start_copy(to, from, present, 16);
}
void copy_half_async(void* to, const void* from, bool present) {
  start_copy(to, from, present, 8);
}
void copy_word_async(void* to, const void* from) {
  start_copy(to, from, true, 4);
}
void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  if (bytes % 16 != 0) emulation::fail("a bulk copy of %zu bytes is no multiple of 16", size_t{bytes});
  for (uint32_t i = 0; i < bytes; i += 16) {
    const auto copy = begun_copy(static_cast<unsigned char*>(to) + i,
                                 static_cast<const unsigned char*>(from) + i, true, 16);
    fibers.see(copy);
    emulation::bulk_copies.push_back({barrier, copy});
  }
}
void copy_bulk_out(void* to, const void* from, uint32_t bytes) {
  if (!fibers.has_waited()) emulation::fail("a bulk copy out before wait_for_previous()", 0);
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16 != 0)
    emulation::fail("a bulk copy out of %zu bytes is not aligned to 16", size_t{bytes});
  emulation::bulk_stores.push_back({fibers.thread(), to, from, bytes});
}
void commit_bulk_out() {
  emulation::bulk_stores.push_back({fibers.thread(), nullptr, nullptr, 0});
}
void wait_bulk_out_but(int pending) {
  auto& stores = emulation::bulk_stores;
  const size_t own = fibers.thread();
  int groups = 0;
  for (const auto& store : stores) groups += store.thread == own && store.to == nullptr ? 1 : 0;
  std::erase_if(stores, [&](const emulation::BulkStore& store) {
    if (store.thread != own || groups <= pending) return false;
    if (store.to != nullptr) std::memcpy(store.to, store.from, store.bytes);
    groups -= store.to == nullptr ? 1 : 0;
    return true;
  });
}

// An empty group counts too.
void commit_copies() {
  auto& copies = fibers.copies();
  copies.push_back({nullptr, nullptr, false, true, 0, {}});
}
void wait_copies_but(int pending) {
  auto& copies = fibers.copies();
  int groups = 0;
  for (const auto& copy : copies) groups += copy.last_of_group ? 1 : 0;
  size_t done = 0;
  for (; groups > pending; ++done) {
    const auto& copy = copies[done];
    if (copy.last_of_group) {
      --groups;
    } else {
      end_copy(copy);
    }
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace godwit::sm90

// Bytes that come; they have now.
size_t godwit::emulation::end_bulk_copies(const uint64_t* barrier) {
  size_t bytes = 0;
  std::erase_if(bulk_copies, [&](const BulkCopy& bulk) {
    if (bulk.barrier != barrier) return false;
    sm90::end_copy(bulk.copy);
    bytes += bulk.copy.bytes;
    return true;
  });
  return bytes;
}

using namespace godwit::emulation;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
  }
  return "unknown";
}
const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}
cudaError_t cudaGetLastError() {
  return state();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (broken) return state();
  *stream = new EmulatedStream;
  return cudaSuccess;
}
// Nobody has seen what is still on its way.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run_all_waiting();
  delete stream;
  return state();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->captured != nullptr) return cudaErrorInvalidValue;
  run_all_waiting();
  stream->catch_up();
  return state();
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? state() : cudaErrorInvalidValue;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? kMultiprocessors : 9;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (broken) return state();
  *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*p == nullptr) return cudaErrorMemoryAllocation;
  // Tests of 64-bit offsets ask for more than the machine has, and touch little of it.
  constexpr size_t kPoisoned = size_t{256} << 20;
  if (bytes <= kPoisoned) std::memset(*p, 0xff, bytes);
  std::lock_guard lock(allocating);
  allocated[*p] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  run_all_waiting();
  {
    std::lock_guard lock(allocating);
    allocated.erase(p);
  }
  std::free(p);
  return state();
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  constexpr size_t kPage = 4096;
  if (broken) return state();
  *p = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  return *p != nullptr ? cudaHostRegister(*p, bytes, cudaHostRegisterDefault) : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* p) {
  const cudaError_t error = p != nullptr ? cudaHostUnregister(p) : cudaSuccess;
  std::free(p);
  return error;
}
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  if (broken) return state();
  if (GODWIT_FAULT("cuda.host_register")) return cudaErrorMemoryAllocation;
  std::lock_guard lock(allocating);
  return locked.emplace(p, bytes).second ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostUnregister(void* p) {
  std::lock_guard lock(allocating);
  return locked.erase(p) == 1 ? state() : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (broken) return state();
  std::lock_guard lock(allocating);
  int64_t used = taken_bytes;
  for (const auto& [p, bytes] : allocated) used += static_cast<int64_t>(bytes);
  *total_bytes = static_cast<size_t>(device_bytes);
  *free_bytes = static_cast<size_t>(std::max<int64_t>(0, device_bytes - used));
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(stream, to, bytes, from, bytes, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  if (width == 0 || height == 0) return cudaSuccess;
  const auto extent = [&](size_t pitch) { return (height - 1) * pitch + width; };
  return copy(stream, to, extent(to_pitch), from, extent(from_pitch), [=] {
    for (size_t r = 0; r < height; ++r)
      std::memcpy(static_cast<char*>(to) + r * to_pitch, static_cast<const char*>(from) + r * from_pitch,
                  width);
  });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  if (broken) return state();
  issue(stream, [=] { std::memset(p, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (broken) return state();
  if (stream->captured != nullptr) return cudaErrorInvalidValue;
  stream->captured = new EmulatedGraph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->captured, nullptr);
  return *graph != nullptr ? state() : cudaErrorInvalidValue;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned) {
  if (broken) return state();
  *exec = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return state();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (broken) return state();
  stream->catch_up();
  for (const auto& work : exec->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return state();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return state();
}
