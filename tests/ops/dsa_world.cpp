#include "dsa_world.h"

#include <algorithm>
#include <cmath>

namespace godwit::ops_test {
namespace {

enum What : uint64_t { kLatent = 71, kKey, kGate, kIndexQuery, kIndexWeight, kQuery };

float value(What what, const DsaShape& shape, uint64_t stream, int64_t position, int64_t c) {
  const float x = noise(what, stream * 1000003u + static_cast<uint64_t>(position), static_cast<uint64_t>(c));
  const bool scored = what == kKey || what == kGate || what == kIndexQuery;
  if (shape.levels == 0 || !scored) return x;
  // One channel carries everything, the rest is zero.
  return c % shape.index_dim == 0 ? std::round(x * static_cast<float>(shape.levels) / 2) : 0;
}

float to_bits(float x, int bits) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}
float index_query(const DsaShape& shape, const SequenceSpec& s, int64_t position, int64_t c) {
  const float x = value(kIndexQuery, shape, s.stream, position, c);
  return shape.half_queries && s.kind == kernels::RowKind::prefill ? to_float(to_bf16(x)) : x;
}

}  // namespace

PromptForm prompt_form(const std::string& backend, int64_t latent, DType format) {
  if (backend != "cuda" || latent != 512 || format == DType::f32) return {};
  // Weights of b bits are each off by at most 2^-b of themselves, by 2^-b / sqrt(3) in the mean of squares,
  // and so is a sum of many of them.
  const int bits = format == DType::bf16 ? 8 : 11;
  return {bits, {std::ldexp(1.0, -bits) / std::sqrt(3.0), std::ldexp(1.0, -bits)}};
}

void round_prompts(const Step& step, const PromptForm& form, Matrix& query) {
  for (int64_t r = step.view.decode_rows; r < query.rows; ++r)
    for (int64_t c = 0; c < query.cols; ++c) query.at(r, c) = to_bits(query.at(r, c), form.query_bits);
}

void expect_same_attention(const Step& step, const PromptForm& form, const Matrix& got,
                           const Matrix& expected) {
  Rows decode, prompts;
  for (int64_t r = 0; r < expected.rows; ++r) (r < step.view.decode_rows ? decode : prompts).push_back(r);
  expect_close(pick(got, decode), pick(expected, decode), PromptForm{}.tolerance, "attention");
  expect_close(pick(got, prompts), pick(expected, prompts), form.tolerance, "attention of prompts");
}

DsaWorld::DsaWorld(Side& side, const DsaShape& shape, std::byte* pages, std::byte* rings)
    : side_(side), shape_(shape) {
  const int64_t latent_bytes = kernels::kPageTokens * kernels::row_bytes(shape.latent_dtype, shape.latent);
  const int64_t pooled_bytes =
      kernels::kPageTokens / shape.pool * kernels::row_bytes(shape.pooled_dtype, shape.index_dim);
  cache_.pooled_offset = 64;
  cache_.latent_offset = 64 + (pooled_bytes + 63) / 64 * 64;
  cache_.page_stride =
      shape.page_stride ? shape.page_stride : cache_.latent_offset + (latent_bytes + 63) / 64 * 64;
  cache_.latent_dtype = shape.latent_dtype;
  cache_.pooled_dtype = shape.pooled_dtype;
  cache_.base = pages ? pages : side.raw(shape.pages * cache_.page_stride);
  cache_.ring_length = shape.ring_length;
  cache_.ring_stride = shape.ring_stride
                           ? shape.ring_stride
                           : (int64_t{shape.ring_length} * 2 * shape.index_dim * 4 + 127) / 64 * 64;
  cache_.ring = rings ? rings : side.raw(shape.slots * cache_.ring_stride);
  ape_ = side.floats(shape.levels > 0 ? Matrix(shape.pool, shape.index_dim).v
                                      : random_matrix(70, shape.pool, shape.index_dim).v);
  index_scale_ = 1 / std::sqrt(static_cast<float>(shape.index_heads * shape.index_dim));
}

Matrix DsaWorld::data(const Step& step, uint64_t what, int64_t cols) const {
  Matrix m(step.view.rows, cols);
  step.each_row([&](int64_t row, const SequenceSpec& s, int64_t position) {
    for (int64_t c = 0; c < cols; ++c)
      m.at(row, c) = what == kIndexQuery ? index_query(shape_, s, position, c)
                                         : value(What(what), shape_, s.stream, position, c);
  });
  return m;
}

std::function<void()> DsaWorld::writes(const Step& step) {
  const kernels::LatentWrite latent{side_.input(data(step, kLatent, shape_.latent)), cache_};
  const kernels::IndexWrite index{side_.input(data(step, kKey, shape_.index_dim)),
                                  side_.input(data(step, kGate, shape_.index_dim)), ape_, shape_.pool,
                                  cache_};
  return [this, view = step.view, latent, index] {
    side_.ops.latent_write(view, latent);
    side_.ops.index_write(view, index);
  };
}

kernels::IndexSelect DsaWorld::selection(const Step& step) {
  kernels::IndexSelect a;
  a.query = side_.input(data(step, kIndexQuery, shape_.index_heads * shape_.index_dim));
  a.weight = side_.input(data(step, kIndexWeight, shape_.index_heads));
  a.scale = index_scale_;
  a.cache = cache_;
  a.pool = shape_.pool;
  a.topk = shape_.topk;
  a.heads = shape_.index_heads;
  a.pools = side_.output(step.view.rows, shape_.topk / shape_.pool, DType::i32);
  a.count = side_.output(step.view.rows, 1, DType::i32);
  return a;
}

void DsaWorld::write(const std::vector<SequenceSpec>& specs) {
  writes(Step(side_, specs))();
}

Selection DsaWorld::select(const std::vector<SequenceSpec>& specs) {
  const Step step(side_, specs);
  const kernels::IndexSelect a = selection(step);
  side_.ops.index_select(step.view, a);
  return {side_.read(a.pools), side_.read(a.count)};
}

Selection DsaWorld::write_and_select(const std::vector<SequenceSpec>& specs) {
  const Step step(side_, specs);
  const auto write_rows = writes(step);
  const kernels::IndexSelect a = selection(step);
  write_rows();
  side_.ops.index_select(step.view, a);
  return {side_.read(a.pools), side_.read(a.count)};
}

Matrix DsaWorld::attend(const std::vector<SequenceSpec>& specs, const Selection& selection,
                        const PromptForm& form) {
  const Step step(side_, specs);
  Matrix query = data(step, kQuery, shape_.heads * shape_.latent);
  round_prompts(step, form, query);
  const View out = side_.output(step.view.rows, shape_.heads * shape_.latent);
  kernels::MlaAttend a;
  a.query = side_.input(query);
  a.cache = cache_;
  a.pools = side_.input(selection.pools, DType::i32);
  a.count = side_.input(selection.count, DType::i32);
  a.pool = shape_.pool;
  a.heads = shape_.heads;
  a.scale = 0.25f;
  a.out = out;
  side_.ops.mla_attend(step.view, a);
  return side_.read(out);
}

// A page on the host, and its stored rows from there.
Matrix DsaWorld::stored(int32_t page, DType format, int64_t rows, int64_t cols, const RowAt& row_at) {
  kernels::DsaCache copy = cache_;
  std::vector<std::byte> bytes =
      side_.download<std::byte>(cache_.base + page * cache_.page_stride, cache_.page_stride);
  copy.base = bytes.data();
  Matrix out(rows, cols);
  for (int64_t i = 0; i < rows; ++i) kernels::load_row(row_at(copy, i), format, &out.at(i, 0), cols);
  return out;
}

Matrix DsaWorld::latents(int32_t page) {
  return stored(page, shape_.latent_dtype, kernels::kPageTokens, shape_.latent,
                [&](const kernels::DsaCache& c, int64_t i) { return c.latent(0, i, shape_.latent); });
}

Matrix DsaWorld::pooled(int32_t page) {
  const int64_t pools = kernels::kPageTokens / shape_.pool;
  return stored(page, shape_.pooled_dtype, pools, shape_.index_dim,
                [&](const kernels::DsaCache& c, int64_t i) { return c.key(0, pools, i, shape_.index_dim); });
}

void DsaWorld::adopt(DsaWorld& other) {
  const std::vector<std::byte> bytes =
      other.side_.download<std::byte>(other.cache_.base, shape_.pages * cache_.page_stride);
  side_.ops.memory().upload(cache_.base, bytes.data(), static_cast<int64_t>(bytes.size()));
}

std::vector<double> DsaWorld::scores(const SequenceSpec& spec, int64_t position) {
  const int64_t per_page = kernels::kPageTokens / shape_.pool;
  std::vector<double> out;
  std::vector<float> query(static_cast<size_t>(shape_.index_heads * shape_.index_dim));
  for (int64_t c = 0; c < shape_.index_heads * shape_.index_dim; ++c)
    query[static_cast<size_t>(c)] = index_query(shape_, spec, position, c);
  for (int64_t h = 0; h < shape_.index_heads; ++h) {
    float* head = query.data() + h * shape_.index_dim;
    kernels::meet_keys(shape_.pooled_dtype, head, shape_.index_dim, head);
  }
  Matrix keys;
  for (int64_t p = 0; p < (position + 1) / shape_.pool; ++p) {
    if (p % per_page == 0) keys = pooled(spec.pages[static_cast<size_t>(p / per_page)]);
    double score = 0;
    for (int64_t h = 0; h < shape_.index_heads; ++h) {
      double product = 0;
      for (int64_t c = 0; c < shape_.index_dim; ++c) {
        product += static_cast<double>(keys.at(p % per_page, c)) *
                   query[static_cast<size_t>(h * shape_.index_dim + c)];
      }
      score += value(kIndexWeight, shape_, spec.stream, position, h) * std::max(0.0, product);
    }
    out.push_back(index_scale_ * score);
  }
  return out;
}

}  // namespace godwit::ops_test
