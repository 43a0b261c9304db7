// The DSA chain of decode steps at one rank of TP4: norms and cache writes, selection and attention, each
// alone and one after the other as in a step, over as many layers as leave nothing of one in the L2 cache for
// the next round. Checks the fast forms against the plain ones first. Then attention of slices of prompts,
// over lists that are spread evenly: the form of prompt rows, and the decode form, against which it is
// checked. One JSON object to stdout. With `once` every op runs twice without a graph instead, for a
// profiler. With `select` it is the selection of slices of prompts, in both forms, and nothing else. Usage:
// cuda_dsa [bf16|fp8|all] [once|select]
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/sm90/launches.h"
#include "kernels/sm90/memory.h"

namespace godwit::sm90 {
namespace {

using kernels::kPageTokens;
using kernels::Sequence;

constexpr int64_t kHeads = 16, kLatent = 512, kQueryLatent = 1536, kIndexHeads = 32, kIndexDim = 128,
                  kTopk = 2048;
constexpr int32_t kPool = 4, kRing = 16;

struct Case {
  DType format;
  int32_t sequences, rows;  // rows of each sequence: more than one verify, or are a slice of a prompt
  int64_t context;
  int layers;
  bool is_slice() const { return rows > 64; }
};

// Device memory that goes with its owner.
class Held {
 protected:
  explicit Held(DeviceMemory& memory) : memory_(memory) {}
  ~Held() {
    for (void* p : owned_) memory_.release(p);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void* take(int64_t bytes) { return owned_.emplace_back(memory_.allocate(bytes)); }
  template <class T>
  T* put(const std::vector<T>& v) {
    const auto bytes = static_cast<int64_t>(v.size() * sizeof(T));
    void* p = take(bytes);
    memory_.upload(p, v.data(), bytes);
    return static_cast<T*>(p);
  }
  DeviceMemory& memory_;

 private:
  std::vector<void*> owned_;
};

class World : Held {
 public:
  World(DeviceMemory& memory, cudaStream_t stream, const Case& c) : Held(memory), stream_(stream), case_(c) {
    const int64_t pages = (c.context + c.rows + kPageTokens - 1) / kPageTokens;
    cache_.pooled_offset = 0;
    cache_.latent_offset = kPageTokens / kPool * kernels::row_bytes(c.format, kIndexDim);
    cache_.page_stride = cache_.latent_offset + kPageTokens * kernels::row_bytes(c.format, kLatent);
    cache_.latent_dtype = cache_.pooled_dtype = c.format;
    cache_.ring_length = kRing;
    cache_.ring_stride = kRing * 2 * kIndexDim * 4;
    cache_.ring = static_cast<std::byte*>(take(c.sequences * cache_.ring_stride));
    memory_.zero(cache_.ring, c.sequences * cache_.ring_stride);
    const std::vector<std::byte> one = pages_of_noise(pages);
    const auto bytes = static_cast<int64_t>(one.size());
    for (int layer = 0; layer < c.layers; ++layer) {
      auto* base = static_cast<std::byte*>(take(bytes * c.sequences));
      for (int32_t s = 0; s < c.sequences; ++s) {
        if (layer == 0 && s == 0) {
          memory_.upload(base, one.data(), bytes);
        } else {
          memory_.copy(base + s * bytes, bases_.empty() ? base : bases_[0], bytes);
        }
      }
      bases_.push_back(base);
    }
    std::vector<Sequence> sequences;
    std::vector<int32_t> table, row_sequence;
    for (int32_t s = 0; s < c.sequences; ++s) {
      sequences.push_back({c.context, s * c.rows, c.rows, s, static_cast<int32_t>(s * pages), 0,
                           c.is_slice() ? kernels::RowKind::prefill
                           : c.rows > 1 ? kernels::RowKind::verify
                                        : kernels::RowKind::decode});
      std::vector<int32_t> own(static_cast<size_t>(pages));
      std::iota(own.begin(), own.end(), static_cast<int32_t>(s * pages));
      std::shuffle(own.begin(), own.end(), random_);
      table.insert(table.end(), own.begin(), own.end());
      row_sequence.insert(row_sequence.end(), static_cast<size_t>(c.rows), s);
    }
    step_.rows = c.sequences * c.rows;
    step_.sequences = c.sequences;
    if (!c.is_slice()) step_.decode_rows = step_.rows, step_.decode_sequences = c.sequences;
    step_.sequence = put(sequences);
    step_.row_sequence = put(row_sequence);
    step_.pages = put(table);
    const int64_t rows = step_.rows;
    project_.q_latent = normal(rows, kQueryLatent, 1);
    project_.latent = normal(rows, kLatent, 1);
    project_.index_key = normal(rows, kIndexDim, 1);
    project_.index_gate = normal(rows, kIndexDim, 1);
    project_.q_a_norm = static_cast<const float*>(normal(1, kQueryLatent, 1).data);
    project_.kv_a_norm = static_cast<const float*>(normal(1, kLatent, 1).data);
    project_.k_norm_weight = project_.k_norm_bias = static_cast<const float*>(normal(1, kIndexDim, 1).data);
    project_.ape = static_cast<const float*>(normal(kPool, kIndexDim, 1).data);
    project_.pool = kPool;
    project_.wq_b.data = project_.index_key;  // there is an indexer
    select_.query = normal(rows, kIndexHeads * kIndexDim, 1);
    select_.weight = normal(rows, kIndexHeads, 1);
    select_.scale = 1 / std::sqrt(static_cast<float>(kIndexHeads * kIndexDim));
    select_.pool = kPool;
    select_.topk = kTopk;
    select_.heads = kIndexHeads;
    select_.pools = make_view(take(rows * kTopk / kPool * 4), DType::i32, rows, kTopk / kPool);
    select_.count = make_view(take(rows * 4), DType::i32, rows, 1);
    attend_.query = normal(rows, kHeads * kLatent, 0.2f);
    attend_.pools = select_.pools;
    attend_.count = select_.count;
    attend_.pool = kPool;
    attend_.heads = kHeads;
    attend_.scale = 1 / 16.0f;
    attend_.out = make_view(take(rows * kHeads * kLatent * 4), DType::f32, rows, kHeads * kLatent);
    at_once_ = std::min(rows, kRowsAtOnce);
    most_pools_ = (c.context + c.rows + 64) / kPool;
    if (c.is_slice()) spread_lists();
    select_scratch_ = take(select_bytes(at_once_, most_pools_));
    attend_scratch_ = take(attend_bytes(at_once_, kHeads, kLatent, kTopk, kPool));
  }

  void write(int layer) {
    project_.cache = of(layer);
    if (!fits_dsa_front(project_)) fatal("no fast writes", cudaErrorInvalidValue);
    dsa_front(stream_, step_, project_);
  }
  void select(int layer, bool plain = false) {
    select_.cache = of(layer);
    if (plain) return index_select(stream_, step_, select_);
    if (!fits_split_select(select_, most_pools_)) fatal("no fast selection", cudaErrorInvalidValue);
    split_select(stream_, step_, select_, select_scratch_, at_once_, most_pools_);
  }
  void attend(int layer, bool plain = false) {
    attend_.cache = of(layer);
    if (plain) return mla_attend(stream_, step_, attend_);
    if (!fits_split_attend(attend_)) fatal("no fast attention", cudaErrorInvalidValue);
    split_attend(stream_, step_, attend_, attend_scratch_, at_once_);
  }

  // Of rows of prompts; `decode_form`: as if they were of the decode family.
  void attend_slice(int layer, bool decode_form = false) {
    attend_.cache = of(layer);
    kernels::StepView step = step_;
    if (decode_form) step.decode_rows = step.rows, step.decode_sequences = step.sequences;
    if (!fits_split_attend(attend_)) fatal("no fast attention", cudaErrorInvalidValue);
    if (decode_form) return split_attend(stream_, step, attend_, attend_scratch_, at_once_);
    sm90::slice_attend(stream_, step, attend_);
  }

  // The two forms, relative to the largest value and in the mean of squares.
  void compare_slice() {
    attend_slice(0, true);
    const std::vector<float> exact = read<float>(attend_.out);
    memory_.zero(attend_.out.data, attend_.out.rows * attend_.out.cols * 4);
    attend_slice(0);
    const std::vector<float> rounded = read<float>(attend_.out);
    double worst = 0, largest = 0, error = 0, norm = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double e = exact[i], d = std::isfinite(rounded[i]) ? std::fabs(rounded[i] - e) : INFINITY;
      worst = std::max(worst, d), largest = std::max(largest, std::fabs(e));
      error += d * d, norm += e * e;
    }
    fmt::print("\"attention_difference\": {:.2e}, \"attention_l2\": {:.2e}, ", worst / largest,
               std::sqrt(error / norm));
  }

  // Places of lists where the forms differ, and the largest difference of attention relative to its
  // largest value.
  void compare() {
    write(0);
    select(0, true);
    const std::vector<int32_t> expected = read<int32_t>(select_.pools);
    select(0);
    const std::vector<int32_t> got = read<int32_t>(select_.pools);
    int64_t differ = 0;
    for (size_t i = 0; i < got.size(); ++i) differ += got[i] != expected[i];
    attend(0, true);
    const std::vector<float> exact = read<float>(attend_.out);
    attend(0);
    const std::vector<float> fast = read<float>(attend_.out);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < fast.size(); ++i) {
      worst = std::max(worst, std::isfinite(fast[i]) ? std::fabs(double{fast[i]} - exact[i]) : INFINITY);
      largest = std::max(largest, std::fabs(double{exact[i]}));
    }
    fmt::print("\"pools\": {}, \"other_pools\": {}, \"attention_difference\": {:.2e}, ", got.size(), differ,
               worst / largest);
  }

  // Microseconds a layer of a graph of all layers.
  double time(const std::function<void(int)>& issue, int rounds) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int layer = 0; layer < case_.layers; ++layer) issue(layer);
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t start = nullptr, stop = nullptr;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    std::vector<float> all;
    for (int r = 0; r < rounds + 3; ++r) {
      check(cudaEventRecord(start, stream_), "event");
      check(cudaGraphLaunch(exec, stream_), "launch");
      check(cudaEventRecord(stop, stream_), "event");
      check(cudaEventSynchronize(stop), "synchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
      if (r >= 3) all.push_back(ms);
    }
    check(cudaGraphExecDestroy(exec), "destroy");
    check(cudaGraphDestroy(graph), "destroy");
    std::sort(all.begin(), all.end());
    return 1e3 * double{all[all.size() / 2]} / case_.layers;
  }

 private:
  kernels::DsaCache of(int layer) const {
    kernels::DsaCache c = cache_;
    c.base = bases_[static_cast<size_t>(layer)];
    return c;
  }
  template <class T>
  std::vector<T> read(const View& v) {
    std::vector<T> out(static_cast<size_t>(v.rows * v.cols));
    memory_.download(out.data(), v.data, v.rows * v.cols * int64_t{sizeof(T)});
    return out;
  }
  View normal(int64_t rows, int64_t cols, float scale) {
    constexpr size_t kFresh = (1 << 20) + 8;  // then they repeat
    std::vector<float> v(static_cast<size_t>(rows * cols));
    std::normal_distribution<float> distribution(0, scale);
    for (size_t i = 0; i < v.size(); ++i) v[i] = i < kFresh ? distribution(random_) : v[i - kFresh];
    return make_view(put(v), DType::f32, rows, cols);
  }
  // One pool of every 512th part of those a row may choose from.
  void spread_lists() {
    constexpr int64_t kKeep = kTopk / kPool;
    std::vector<int32_t> pools(static_cast<size_t>(step_.rows * kKeep), -1), counts;
    for (int64_t r = 0; r < step_.rows; ++r) {
      const int64_t all = (case_.context + r % case_.rows + 1) / kPool, keep = std::min(all, kKeep);
      for (int64_t i = 0; i < keep; ++i) {
        const int64_t first = i * all / keep, end = (i + 1) * all / keep;
        pools[static_cast<size_t>(r * kKeep + i)] = static_cast<int32_t>(
            first + static_cast<int64_t>(random_() % static_cast<uint64_t>(end - first)));
      }
      counts.push_back(static_cast<int32_t>(keep));
    }
    memory_.upload(select_.pools.data, pools.data(), step_.rows * kKeep * 4);
    memory_.upload(select_.count.data, counts.data(), step_.rows * 4);
  }
  // Values of magnitude 0.5 to 2 with random signs.
  std::vector<std::byte> pages_of_noise(int64_t pages) {
    std::vector<uint64_t> words(static_cast<size_t>(pages * cache_.page_stride / 8));
    const bool coded = case_.format == DType::f8_e4m3;
    for (uint64_t& w : words)
      w = coded ? (random_() & 0x8787878787878787u) | 0x3838383838383838u
                : (random_() & 0x807f807f807f807fu) | 0x3f003f003f003f00u;
    std::vector<std::byte> bytes(words.size() * 8);
    std::memcpy(bytes.data(), words.data(), bytes.size());
    if (!coded) return bytes;
    kernels::DsaCache cache = cache_;
    cache.base = bytes.data();
    for (int64_t page = 0; page < pages; ++page) {
      for (int64_t i = 0; i < kPageTokens; ++i)
        for (int g = 0; g < 4; ++g)
          cache.latent(page, i, kLatent).scales[g] = 0.5f + static_cast<float>(random_() % 64) / 64;
      for (int64_t i = 0; i < kPageTokens / kPool; ++i)
        *cache.key(page, kPageTokens / kPool, i, kIndexDim).scales =
            std::ldexp(1.0f, -static_cast<int>(random_() % 2));
    }
    return bytes;
  }

  cudaStream_t stream_;
  Case case_;
  std::mt19937_64 random_{7};
  std::vector<std::byte*> bases_;
  kernels::DsaCache cache_;
  kernels::StepView step_;
  kernels::DsaProject project_;
  kernels::IndexSelect select_;
  kernels::MlaAttend attend_;
  void *select_scratch_ = nullptr, *attend_scratch_ = nullptr;
  int64_t at_once_ = 0, most_pools_ = 0;
};

// The last `rows` rows of a prompt of `context` tokens. Queries are values that bf16 holds, which their form
// does not round, so that the lists of both forms may be compared.
class PromptSelection : Held {
 public:
  PromptSelection(Device& device, DeviceMemory& memory, DType format, int64_t rows, int64_t context)
      : Held(memory), device_(device) {
    const int64_t pages = (context + kPageTokens - 1) / kPageTokens, per_page = kPageTokens / kPool;
    kernels::DsaCache cache;
    cache.latent_offset = per_page * kernels::row_bytes(format, kIndexDim);
    cache.page_stride = cache.latent_offset + kPageTokens * kernels::row_bytes(format, kLatent);
    cache.latent_dtype = cache.pooled_dtype = format;
    std::vector<std::byte> bytes(static_cast<size_t>(pages * cache.page_stride));
    cache.base = bytes.data();
    for (int64_t p = 0; p < pages * per_page; ++p) {
      const std::vector<float> key = normal(kIndexDim);
      kernels::store_key(cache.key(p / per_page, per_page, p % per_page, kIndexDim), format, key.data(),
                         kIndexDim);
    }
    cache.base = put(bytes);
    std::vector<int32_t> table(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random_);
    step_.rows = static_cast<int32_t>(rows);
    step_.sequences = 1;
    step_.sequence = put(std::vector<Sequence>{
        {context - rows, 0, static_cast<int32_t>(rows), 0, 0, 0, kernels::RowKind::prefill}});
    step_.row_sequence = put(std::vector<int32_t>(static_cast<size_t>(rows)));
    step_.pages = put(table);
    std::vector<float> query = normal(rows * kIndexHeads * kIndexDim);
    for (float& x : query) x = to_float(to_bf16(x));
    select_.query = make_view(put(query), DType::f32, rows, kIndexHeads * kIndexDim);
    select_.weight = make_view(put(normal(rows * kIndexHeads)), DType::f32, rows, kIndexHeads);
    select_.scale = 1 / std::sqrt(static_cast<float>(kIndexHeads * kIndexDim));
    select_.cache = cache;
    select_.pool = kPool;
    select_.topk = kTopk;
    select_.heads = kIndexHeads;
    select_.pools = make_view(take(rows * kTopk / kPool * 4), DType::i32, rows, kTopk / kPool);
    select_.count = make_view(take(rows * 4), DType::i32, rows, 1);
    most_pools_ = context / kPool;
    at_once_ = std::min(rows, kRowsAtOnce);
    scratch_ = take(std::max(select_bytes(at_once_, most_pools_),
                             slice_select_bytes(rows, kTopk / kPool, device.multiprocessors())));
    if (!fits_split_select(select_, most_pools_)) fatal("no fast selection", cudaErrorInvalidValue);
    for (int64_t t = context - rows; t < context; ++t) {
      const int64_t pools = (t + 1) / kPool;
      if (pools > kTopk / kPool) flop_ += 2.0 * kIndexHeads * kIndexDim * static_cast<double>(pools);
    }
  }

  void of_prompt() { slice_select(device_.stream(), step_, select_, scratch_, device_.multiprocessors()); }
  // As if the rows were of the decode family.
  void of_decode() {
    kernels::StepView step = step_;
    step.decode_rows = step.rows, step.decode_sequences = step.sequences;
    split_select(device_.stream(), step, select_, scratch_, at_once_, most_pools_);
  }

  // Pools of one form's lists that the other's have not.
  int64_t compare() {
    of_decode();
    const std::vector<int32_t> expected = lists();
    of_prompt();
    const std::vector<int32_t> got = lists();
    const int64_t keep = kTopk / kPool;
    int64_t differ = 0;
    std::vector<int32_t> missing;
    for (auto e = expected.begin(), g = got.begin(); e != expected.end(); e += keep, g += keep) {
      const auto end = std::find(e, e + keep, -1), got_end = std::find(g, g + keep, -1);
      missing.clear();
      std::set_difference(e, end, g, got_end, std::back_inserter(missing));
      differ += static_cast<int64_t>(missing.size()) + std::abs((got_end - g) - (end - e));
    }
    return differ;
  }
  double milliseconds(const std::function<void()>& issue, int rounds) {
    cudaEvent_t start = nullptr, stop = nullptr;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    std::vector<float> all;
    for (int r = 0; r < rounds; ++r) {
      check(cudaEventRecord(start, device_.stream()), "event");
      issue();
      check(cudaEventRecord(stop, device_.stream()), "event");
      check(cudaEventSynchronize(stop), "synchronize");
      check(cudaEventElapsedTime(&all.emplace_back(), start, stop), "elapsed");
    }
    check(cudaEventDestroy(start), "event");
    check(cudaEventDestroy(stop), "event");
    std::sort(all.begin(), all.end());
    return double{all[all.size() / 2]};
  }
  double flop() const { return flop_; }

 private:
  std::vector<float> normal(int64_t count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& x : v) x = distribution_(random_);
    return v;
  }
  std::vector<int32_t> lists() {
    const View& v = select_.pools;
    std::vector<int32_t> out(static_cast<size_t>(v.rows * v.cols));
    memory_.download(out.data(), v.data, v.rows * v.cols * int64_t{sizeof(int32_t)});
    return out;
  }

  Device& device_;
  std::mt19937_64 random_{11};
  std::normal_distribution<float> distribution_;
  kernels::StepView step_;
  kernels::IndexSelect select_;
  void* scratch_ = nullptr;
  int64_t at_once_ = 0, most_pools_ = 0;
  double flop_ = 0;
};

void run_prompt_selection(const std::string& formats) {
  Device device(0);
  DeviceMemory memory(device);
  const char* separator = "";
  fmt::print("{{\"prompt_selection\": [\n");
  for (const DType format : {DType::bf16, DType::f8_e4m3}) {
    if (formats != "all" && formats != kernels::cache_format_name(format)) continue;
    for (const auto& [rows, context] : {std::pair<int64_t, int64_t>{8192, 8192},
                                        {8192, 1 << 17},
                                        {8192, 1 << 20},
                                        {1024, 1 << 17},
                                        {300, 1 << 17},
                                        {64, 1 << 17},
                                        {64, 8192},
                                        {1, 8192}}) {
      PromptSelection world(device, memory, format, rows, context);
      const int64_t differ = world.compare();
      const double prompt = world.milliseconds([&] { world.of_prompt(); }, 15);
      const double decode = world.milliseconds([&] { world.of_decode(); }, 3);
      fmt::print(
          "{}  {{\"format\": \"{}\", \"rows\": {}, \"context\": {}, \"other_pools\": {}, \"ms\": {:.4f}, "
          "\"tflop_per_s\": {:.1f}, \"decode_form_ms\": {:.4f}}}",
          separator, kernels::cache_format_name(format), rows, context, differ, prompt,
          world.flop() / prompt * 1e-9, decode);
      separator = ",\n";
      std::fflush(stdout);
    }
  }
  fmt::print("\n]}}\n");
}

void run(const std::string& formats, bool once) {
  Device device(0);
  DeviceMemory memory(device);
  const char* separator = "";
  fmt::print("{{\"cases\": [\n");
  for (const DType format : {DType::bf16, DType::f8_e4m3}) {
    if (formats != "all" && formats != kernels::cache_format_name(format)) continue;
    std::vector<Case> cases = {
        {format, 1, 1, 1020, 64},         {format, 1, 1, 8191, 64},   {format, 1, 6, 8190, 64},
        {format, 8, 1, 8189, 16},         {format, 32, 1, 8188, 4},   {format, 1, 1, 131071, 16},
        {format, 1, 6, 131070, 16},       {format, 32, 1, 131072, 2}, {format, 1, 1, (1 << 20) - 1, 5},
        {format, 1, 6, (1 << 20) - 9, 5}, {format, 1, 8192, 0, 2},    {format, 1, 8192, 8192, 2},
        {format, 1, 8192, 131072, 1},     {format, 1, 1280, 8192, 2}, {format, 1, 128, 8192, 4},
    };
    if (once) cases = {cases[1], cases[4], cases[8], cases[11]};
    for (const Case& c : cases) {
      World world(memory, device.stream(), c);
      if (once) {
        for (int layer = 0; layer < 2; ++layer) {
          if (c.is_slice()) {
            world.attend_slice(layer);
            continue;
          }
          world.write(layer);
          world.select(layer);
          world.attend(layer);
        }
        continue;
      }
      fmt::print("{}  {{\"format\": \"{}\", \"sequences\": {}, \"rows\": {}, \"context\": {}, ", separator,
                 kernels::cache_format_name(format), c.sequences, c.rows, c.context);
      separator = ",\n";
      const int rounds = 15;
      if (c.is_slice()) {
        world.compare_slice();
        const double decode = world.time([&](int l) { world.attend_slice(l, true); }, 5);
        const double prompt = world.time([&](int l) { world.attend_slice(l); }, rounds);
        fmt::print(
            "\"decode_form_us\": {:.1f}, \"prompt_form_us\": {:.1f}, \"prompt_form_us_a_row\": {:.4f}}}",
            decode, prompt, prompt / c.rows);
        std::fflush(stdout);
        continue;
      }
      world.compare();
      const double write = world.time([&](int l) { world.write(l); }, rounds);
      const double select = world.time([&](int l) { world.select(l); }, rounds);
      const double attend = world.time([&](int l) { world.attend(l); }, rounds);
      const double all = world.time(
          [&](int l) {
            world.write(l);
            world.select(l);
            world.attend(l);
          },
          rounds);
      fmt::print("\"write_us\": {:.2f}, \"select_us\": {:.2f}, \"attend_us\": {:.2f}, \"all_us\": {:.2f}}}",
                 write, select, attend, all);
      std::fflush(stdout);
    }
  }
  fmt::print("\n]}}\n");
}

}  // namespace
}  // namespace godwit::sm90

int main(int argc, char** argv) {
  try {
    const std::string formats = argc > 1 ? argv[1] : "all", what = argc > 2 ? argv[2] : "";
    if (what == "select") {
      godwit::sm90::run_prompt_selection(formats);
    } else {
      godwit::sm90::run(formats, what == "once");
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
