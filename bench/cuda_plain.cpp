// What the plain CUDA forms do: decode step and prefill of a small model, and the linear ops at shapes of one
// rank of the real model with cold weights. One JSON object to stdout. Usage: cuda_plain [MODEL_DIR]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "kernels/make_ops.h"
#include "selftest/rig.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Times {
  double median = 0, least = 0, most = 0;
};
Times summary(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return {all[all.size() / 2], all.front(), all.back()};
}

// Random bytes that are finite as f32, bf16 and e4m3.
std::vector<uint8_t> noise(int64_t bytes) {
  std::mt19937 random(7);
  std::vector<uint8_t> v(static_cast<size_t>(bytes));
  for (uint8_t& b : v) b = static_cast<uint8_t>((random() & 0xbf) | 0x20) & 0xbfu;
  return v;
}

class LinearBench {
 public:
  explicit LinearBench(kernels::Ops& ops) : ops_(ops), memory_(ops.memory()) {}

  // Time of one product, mean of a run over copies of the weights that together are past the L2 cache.
  void run(const char* name, DType dtype, int64_t out, int64_t in, int64_t rows, bool last) {
    const int64_t bytes = out * in * size_of(dtype);
    const int64_t copies = std::clamp<int64_t>((int64_t{512} << 20) / bytes, 2, 64);
    const std::vector<uint8_t> random = noise(bytes);
    const std::vector<float> scales(static_cast<size_t>(((out + 127) / 128) * ((in + 127) / 128)), 0.01f);
    std::vector<Weight> weights;
    for (int64_t i = 0; i < copies; ++i) {
      Weight w{make_view(take(random.data(), bytes), dtype, out, in)};
      w.scales = static_cast<const float*>(take(scales.data(), static_cast<int64_t>(scales.size()) * 4));
      w.scale_stride = (in + 127) / 128;
      weights.push_back(w);
    }
    std::vector<float> x(static_cast<size_t>(rows * in));
    std::mt19937 generator(9);
    for (float& v : x) v = std::normal_distribution<float>()(generator);
    const View input = make_view(take(x.data(), rows * in * 4), DType::f32, rows, in);
    const View output = make_view(memory_.allocate(rows * out * 4), DType::f32, rows, out);
    owned_.push_back(output.data);
    std::vector<double> times;
    for (int round = 0; round < 12; ++round) {
      wait(output);
      const auto start = Clock::now();
      for (const Weight& w : weights) ops_.linear({input, w, output});
      wait(output);
      if (round >= 2) times.push_back(microseconds_since(start) / static_cast<double>(copies));
    }
    const Times t = summary(times);
    fmt::print(
        "    {{\"linear\": \"{}\", \"dtype\": \"{}\", \"n\": {}, \"k\": {}, \"rows\": {}, \"us\": {:.2f}, "
        "\"us_min\": {:.2f}, \"us_max\": {:.2f}, \"weight_gb_per_s\": {:.0f}, \"gflop_per_s\": {:.0f}}}{}\n",
        name, name_of(dtype), out, in, rows, t.median, t.least, t.most,
        static_cast<double>(bytes) / t.median / 1e3,
        2.0 * static_cast<double>(out * in * rows) / t.median / 1e3, last ? "" : ",");
    for (void* p : owned_) memory_.release(p);
    owned_.clear();
  }

 private:
  void* take(const void* host, int64_t bytes) {
    owned_.push_back(memory_.allocate(bytes));
    memory_.upload(owned_.back(), host, bytes);
    return owned_.back();
  }
  void wait(const View& v) {
    float ignored;
    memory_.download(&ignored, v.data, 4);
  }

  kernels::Ops& ops_;
  kernels::Memory& memory_;
  std::vector<void*> owned_;
};

Result<void> run(const std::string& model_dir) {
  selftest::RigOptions options;
  options.backend = "cuda";
  {
    GODWIT_ASSIGN(const std::unique_ptr<selftest::Rig> rig, selftest::Rig::open(model_dir, options));
    std::mt19937 random(3);
    std::vector<int32_t> ids(2048 + 256);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 300);
    std::vector<double> prefill, decode;
    for (int round = 0; round < 5; ++round) {
      const auto start = Clock::now();
      for (int64_t at = 0; at < 2048; at += 512) {
        const selftest::Rig::Rows rows{1, kernels::RowKind::prefill, at,
                                       std::span(ids).subspan(static_cast<size_t>(at), 512),
                                       at == 1536 ? 1 : 0};
        rig->step({&rows, 1});
      }
      if (round > 0) prefill.push_back(microseconds_since(start));
    }
    for (int64_t at = 2048; at < 2048 + 256; ++at) {
      const selftest::Rig::Rows rows{1, kernels::RowKind::decode, at,
                                     std::span(ids).subspan(static_cast<size_t>(at), 1), 1};
      const auto start = Clock::now();
      rig->step({&rows, 1});
      if (at >= 2048 + 16) decode.push_back(microseconds_since(start));
    }
    const Times p = summary(prefill), d = summary(decode);
    fmt::print(
        "  \"model\": {{\"dir\": \"{}\", \"prefill_tokens\": 2048, \"slice\": 512, \"prefill_us\": {:.0f}, "
        "\"prefill_us_min\": {:.0f}, \"prefill_us_max\": {:.0f}, \"prefill_tokens_per_s\": {:.0f}, "
        "\"decode_step_us\": {:.1f}, \"decode_step_us_min\": {:.1f}, \"decode_step_us_max\": {:.1f}}},\n",
        model_dir, p.median, p.least, p.most, 2048 / p.median * 1e6, d.median, d.least, d.most);
  }
  GODWIT_ASSIGN(const std::unique_ptr<kernels::Ops> ops, kernels::make_ops("cuda", 0));
  kernels::Dims dims;
  dims.hidden = dims.widest_inner = 4096;
  dims.expert_inner = dims.experts = dims.experts_topk = 1;
  kernels::StepLimits limits;
  limits.rows = 512;
  GODWIT_TRY(ops->prepare(dims, limits));
  LinearBench bench(*ops);
  fmt::print("  \"linear\": [\n");
  for (const int64_t rows : {1, 8, 256}) {
    bench.run("kda_in", DType::bf16, 6416, 4096, rows, false);
    bench.run("kda_out", DType::bf16, 4096, 2048, rows, false);
    bench.run("q_b", DType::f8_e4m3, 4096, 1536, rows, false);
    bench.run("mlp_gate_up", DType::f8_e4m3, 6144, 4096, rows, false);
    bench.run("lm_head", DType::bf16, 38720, 4096, rows, rows == 256);
  }
  fmt::print("  ]\n");
  return {};
}

}  // namespace
}  // namespace godwit

int main(int argc, char** argv) {
  fmt::print("{{\n");
  const auto done = godwit::run(argc > 1 ? argv[1] : "models/tiny-glm5next");
  fmt::print("}}\n");
  if (done.ok()) return 0;
  fmt::print(stderr, "{}: {}\n", done.error().field, done.error().message);
  return 1;
}
