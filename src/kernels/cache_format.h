// The formats of cached latents and pooled index keys (`--kv`), named by their element type: f32, bf16, and
// fp8 = DType::f8_e4m3. This is the one place that says what lies where and how it is rounded (design §7).
//
// fp8: a row of n values is cut into aligned groups of 128, each e4m3 codes with one f32 scale; the codes are
// padded to whole floats. A value is code * scale, rounded once to f32. A row's bits depend on that row
// alone.
//   latent  scale = max|x| / 448 (glm5_next spec §14.1). Codes, then scales: 528 B at L = 512.
//   key     a group is turned by an orthonormal Hadamard transform first, so that no channel stands out, and
//           its scale is a power of two (spec §10.6). A page holds all codes, then all scales: 132 B a pool.
//   query   of the indexer: turned and rounded like a key, because a product of two turned vectors is that
//           of the vectors themselves.
// A NaN or an infinity makes its whole group NaN, so that a broken row is seen and not hidden.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/quantize.h"

namespace godwit::kernels {

constexpr std::string_view cache_format_name(DType format) {
  return format == DType::f32 ? "f32" : format == DType::bf16 ? "bf16" : "fp8";
}
// None for a name that is no format, "auto" above all.
constexpr std::optional<DType> cache_format_of(std::string_view name) {
  for (const DType format : {DType::f32, DType::bf16, DType::f8_e4m3})
    if (name == cache_format_name(format)) return format;
  return std::nullopt;
}

// A stored latent or key: n values, or n codes with the scales of their groups.
struct StoredRow {
  std::byte* values = nullptr;
  float* scales = nullptr;  // fp8 only
};

constexpr int64_t padded_codes(int64_t n) {
  return (n + 3) / 4 * 4;
}
constexpr int64_t row_value_bytes(DType format, int64_t n) {
  return format == DType::f8_e4m3 ? padded_codes(n) : n * size_of(format);
}
constexpr int64_t row_scale_bytes(DType format, int64_t n) {
  return format == DType::f8_e4m3 ? fp8_groups(n) * size_of(DType::f32) : 0;
}
// One row, scales included; rows of latents and of keys take the same.
constexpr int64_t row_bytes(DType format, int64_t n) {
  return row_value_bytes(format, n) + row_scale_bytes(format, n);
}

inline float* floats_at(std::byte* p) {
  return static_cast<float*>(static_cast<void*>(p));
}
// Latent i of a page's latents.
inline StoredRow latent_at(std::byte* latents, DType format, int64_t i, int64_t n) {
  std::byte* row = latents + i * row_bytes(format, n);
  return {row, format == DType::f8_e4m3 ? floats_at(row + padded_codes(n)) : nullptr};
}
// Key i of a page's `pools` keys.
inline StoredRow key_at(std::byte* keys, DType format, int64_t pools, int64_t i, int64_t n) {
  std::byte* row = keys + i * row_value_bytes(format, n);
  if (format != DType::f8_e4m3) return {row};
  return {row, floats_at(keys + pools * padded_codes(n)) + i * fp8_groups(n)};
}

// The orthonormal Walsh-Hadamard transform, in place and its own inverse, of blocks of a power of two, widest
// first: 128 = 128, 40 = 32 + 8. Sums of pairs at distance 1, 2, 4, …, then one product with size^-1/2.
inline void hadamard(float* x, int64_t n) {
  for (int64_t size = 1; n > 0; x += size, n -= size) {
    for (size = 1; 2 * size <= n;) size *= 2;
    for (int64_t half = 1; half < size; half *= 2) {
      for (int64_t block = 0; block < size; block += 2 * half) {
        for (int64_t i = block; i < block + half; ++i) {
          const float a = x[i], b = x[i + half];
          x[i] = a + b;
          x[i + half] = a - b;
        }
      }
    }
    const float factor = 1 / std::sqrt(static_cast<float>(size));
    for (int64_t i = 0; i < size; ++i) x[i] *= factor;
  }
}

// max(max|x|, 1e-4) / 448, up to the next power of two.
inline float key_scale(const float* x, int64_t n) {
  const float largest = largest_magnitude(x, n);
  if (std::isnan(largest)) return largest;
  const uint32_t bits = std::bit_cast<uint32_t>(std::max(largest, 1e-4f) / kE4m3Max);
  return std::bit_cast<float>((bits + 0x7fffffu) & 0xff800000u);
}

// f(first, length, turned, scale) for each group of a key or query, turned.
template <class F>
void each_turned_group(const float* x, int64_t n, F&& f) {
  for (int64_t first = 0; first < n; first += kFp8Block) {
    float turned[kFp8Block];
    const int64_t length = std::min(n - first, kFp8Block);
    std::copy_n(x + first, length, turned);
    hadamard(turned, length);
    f(first, length, turned, key_scale(turned, length));
  }
}

inline void store_values(std::byte* to, DType format, const float* x, int64_t n) {
  if (format == DType::f32) std::copy_n(x, n, floats_at(to));
  if (format == DType::bf16)
    std::transform(x, x + n, static_cast<bf16*>(static_cast<void*>(to)), [](float v) { return to_bf16(v); });
}
inline f8_e4m3* codes_of(const StoredRow& row) {
  return static_cast<f8_e4m3*>(static_cast<void*>(row.values));
}

inline void store_latent(const StoredRow& to, DType format, const float* x, int64_t n) {
  if (format != DType::f8_e4m3) return store_values(to.values, format, x, n);
  quantize_row(x, n, codes_of(to), to.scales);
}

inline void store_key(const StoredRow& to, DType format, const float* x, int64_t n) {
  if (format != DType::f8_e4m3) return store_values(to.values, format, x, n);
  each_turned_group(x, n, [&](int64_t first, int64_t length, const float* turned, float scale) {
    encode_group(turned, length, scale, codes_of(to) + first);
    to.scales[first / kFp8Block] = scale;
  });
}

// What a stored row says, in f32.
inline void load_row(const StoredRow& from, DType format, float* x, int64_t n) {
  const void* values = from.values;
  if (format == DType::f32) std::copy_n(static_cast<const float*>(values), n, x);
  for (int64_t i = 0; format == DType::bf16 && i < n; ++i)
    x[i] = to_float(static_cast<const bf16*>(values)[i]);
  for (int64_t i = 0; format == DType::f8_e4m3 && i < n; ++i)
    x[i] = to_float(codes_of(from)[i]) * from.scales[i / kFp8Block];
}

// The query that meets keys of this format: itself, or turned and rounded.
inline void meet_keys(DType format, const float* query, int64_t n, float* out) {
  if (format != DType::f8_e4m3) {
    std::copy_n(query, n, out);
    return;
  }
  each_turned_group(query, n, [&](int64_t first, int64_t length, const float* turned, float scale) {
    f8_e4m3 codes[kFp8Block];
    encode_group(turned, length, scale, codes);
    for (int64_t i = 0; i < length; ++i) out[first + i] = to_float(codes[i]) * scale;
  });
}

}  // namespace godwit::kernels
