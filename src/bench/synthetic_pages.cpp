#include <algorithm>
#include <random>

#include "bench/synthetic.h"
#include "kernels/cache_format.h"

namespace godwit::bench {
namespace {

constexpr float kScale = Noise::kValue / Noise::kCode;

std::byte* place(kernels::Memory& memory, const void* host, size_t bytes) {
  auto* p = static_cast<std::byte*>(memory.allocate(static_cast<int64_t>(bytes)));
  memory.upload(p, host, static_cast<int64_t>(bytes));
  return p;
}

// Latents whose codes have their scales behind them.
std::vector<std::byte> fp8_latents(int64_t rows, int64_t width) {
  const int64_t row = kernels::row_bytes(DType::f8_e4m3, width), codes = kernels::padded_codes(width);
  std::vector<std::byte> out(static_cast<size_t>(rows * row));
  std::mt19937 random(2027);
  std::normal_distribution<float> normal;
  for (std::byte* at = out.data(); at != out.data() + out.size(); at += row) {
    for (int64_t i = 0; i < codes; ++i) at[i] = std::byte{to_e4m3(Noise::kCode * normal(random)).bits};
    std::fill_n(kernels::floats_at(at + codes), kernels::fp8_groups(width), kScale);
  }
  return out;
}

}  // namespace

void fill_pages(const model::RankState& state, int64_t pages, DType kv, const kernels::Dims& dims,
                kernels::Memory& memory, Noise& noise) {
  const model::StateLayout& layout = state.layout();
  if (kv != DType::f8_e4m3) return noise.fill(state.page(0), pages * layout.page_bytes);
  constexpr int64_t kRows = int64_t{1} << 14;
  const int64_t row = kernels::row_bytes(kv, dims.latent);
  const int64_t pools = dims.index_pool > 0 ? kernels::kPageTokens / dims.index_pool : 0;
  const int64_t key_codes = pools * kernels::row_value_bytes(kv, dims.index_dim);
  const int64_t key_scales = pools * kernels::row_scale_bytes(kv, dims.index_dim);
  const std::vector<std::byte> rows = fp8_latents(kRows, dims.latent);
  const std::vector<float> scales(static_cast<size_t>(key_scales) / sizeof(float), kScale);
  std::byte* latents = place(memory, rows.data(), rows.size());
  std::byte* behind_keys = place(memory, scales.data(), scales.size() * sizeof(float));
  std::mt19937 random(2028);
  for (int64_t page = 0; page < pages; ++page)
    for (const model::StateLayout::DsaLayer& layer : layout.dsa) {
      std::byte* keys = state.page(page) + layer.pooled;
      const int64_t from = static_cast<int64_t>(random()) % (kRows - kernels::kPageTokens);
      memory.copy(state.page(page) + layer.latent, latents + from * row, kernels::kPageTokens * row);
      noise.fill_codes(keys, key_codes);
      memory.copy(keys + key_codes, behind_keys, key_scales);
    }
  memory.release(latents);
  memory.release(behind_keys);
}

}  // namespace godwit::bench
