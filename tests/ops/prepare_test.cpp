// A shape the CPU backend cannot do is refused when it is prepared, with the name of the config's field.
#include "harness.h"

namespace godwit::ops_test {
namespace {

kernels::Dims good_dims() {
  kernels::Dims d;
  d.hidden = 256, d.streams = 4, d.vocab = 300;
  d.kda_heads = 2, d.kda_key = 16, d.conv_taps = 4;
  d.mla_heads = 2, d.latent = 32, d.nope = 16, d.value = 16;
  d.index_heads = 2, d.index_dim = 16, d.index_pool = 4, d.index_topk = 32;
  d.experts = 100, d.experts_topk = 4, d.expert_inner = 32, d.widest_inner = 64;
  return d;
}

void expect_refused(const kernels::Dims& dims, const kernels::StepLimits& limits, const std::string& field,
                    const std::string& limit) {
  const auto ready = kernels::make_cpu_ops(1)->prepare(dims, limits);
  ASSERT_FALSE(ready.ok()) << field;
  EXPECT_EQ(ready.error().code, ErrorCode::data_refused);
  EXPECT_NE(ready.error().message.find(field), std::string::npos) << ready.error().message;
  EXPECT_NE(ready.error().message.find(limit), std::string::npos) << ready.error().message;
}

TEST(CpuPrepare, RefusesShapesAboveItsLimits) {
  kernels::StepLimits limits;
  limits.rows = 64, limits.decode_rows = 8, limits.sequences = 4, limits.context = 1024,
  limits.sampled_rows = 8;
  ASSERT_TRUE(kernels::make_cpu_ops(1)->prepare(good_dims(), limits).ok());
  const struct {
    int64_t kernels::Dims::*field;
    int64_t most;
    const char* name;
  } bounds[] = {{&kernels::Dims::streams, 8, "hc_mult"},
                {&kernels::Dims::conv_taps, 8, "short_conv_kernel_size"},
                {&kernels::Dims::index_heads, 256, "index_n_heads"},
                {&kernels::Dims::experts_topk, 64, "num_experts_per_tok"},
                {&kernels::Dims::widest_inner, 192 * 1024, "intermediate_size"}};
  for (const auto& bound : bounds) {
    kernels::Dims dims = good_dims();
    dims.*bound.field = bound.most;
    EXPECT_TRUE(kernels::make_cpu_ops(1)->prepare(dims, limits).ok()) << bound.name;
    dims.*bound.field = bound.most + 1;
    expect_refused(dims, limits, bound.name, std::to_string(bound.most));
  }
  kernels::Dims dims = good_dims();
  dims.experts = 3;
  expect_refused(dims, limits, "num_experts_per_tok", "3");
  dims = good_dims();
  dims.index_topk = 30;
  expect_refused(dims, limits, "index_kpool", "30");
  limits.rows = 1 << 20;
  dims = good_dims();
  dims.hidden = 8;
  expect_refused(dims, limits, "rows of a step", "1048575");
}

}  // namespace
}  // namespace godwit::ops_test
