// The caches of one DSA layer in a side's memory, and the ops on them. As in KdaWorld, inputs are functions
// of (stream, position) only.
#pragma once

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {

struct DsaShape {
  int64_t heads = 3;
  int64_t latent = 72;
  int64_t index_heads = 9;
  int64_t index_dim = 40;
  int32_t pool = 4;
  int32_t topk = 32;
  DType latent_dtype = DType::f32;
  DType pooled_dtype = DType::f32;
  int64_t pages = 16;
  int64_t slots = 6;
  int32_t ring_length = 12;
  int64_t page_stride = 0;  // bytes; 0 = packed
  int64_t ring_stride = 0;
  bool half_queries = false;  // index queries of prompt rows are values that bf16 holds
  int levels = 0;             // > 0: queries, keys and gates take few values, so that scores tie
};

struct Selection {
  Matrix pools;  // [T, topk / P]
  Matrix count;  // [T, 1]
};

// How a backend's attention of prompt rows may differ from that of decode rows (kernels spec §2.1): queries
// are rounded to so many bits, and so is every weight, by which the result may be off.
struct PromptForm {
  int query_bits = 24;
  Tolerance tolerance = {4e-6, 1e-5};
};
PromptForm prompt_form(const std::string& backend, int64_t latent, DType format);
// Of `query` [T, n], the rows of prompts as that form reads them.
void round_prompts(const Step& step, const PromptForm& form, Matrix& query);
// Rows of each family with the tolerance of their form.
void expect_same_attention(const Step& step, const PromptForm& form, const Matrix& got,
                           const Matrix& expected);

class DsaWorld {
 public:
  // `pages`, `rings`: page 0 and slot 0, when they must lie at special places.
  DsaWorld(Side& side, const DsaShape& shape, std::byte* pages = nullptr, std::byte* rings = nullptr);

  void write(const std::vector<SequenceSpec>& specs);  // latent_write and index_write
  Selection select(const std::vector<SequenceSpec>& specs);
  // Both, with nothing between the launches, as in a step of the model.
  Selection write_and_select(const std::vector<SequenceSpec>& specs);
  // [T, H L]; `form`: whose queries to attend with.
  Matrix attend(const std::vector<SequenceSpec>& specs, const Selection& selection,
                const PromptForm& form = {});

  Matrix latents(int32_t page);  // [64, L]
  Matrix pooled(int32_t page);   // [64 / P, di]
  // Takes over the pages of a world of the same shape.
  void adopt(DsaWorld& other);
  // The definition of spec §10.3 in double over the pooled keys stored here.
  std::vector<double> scores(const SequenceSpec& spec, int64_t position);

 private:
  using RowAt = std::function<kernels::StoredRow(const kernels::DsaCache&, int64_t)>;
  Matrix stored(int32_t page, DType format, int64_t rows, int64_t cols, const RowAt& row_at);
  Matrix data(const Step& step, uint64_t what, int64_t cols) const;
  // Ops whose inputs are in the side's memory; nothing else is launched.
  std::function<void()> writes(const Step& step);
  kernels::IndexSelect selection(const Step& step);

  Side& side_;
  DsaShape shape_;
  kernels::DsaCache cache_;
  const float* ape_;
  float index_scale_;
};

}  // namespace godwit::ops_test
