// Products of prefill rows (kernels spec §4.7): operands as the library reads them, then one call for all
// whole multiples of kDenseRows rows and one for the rest.
#include <algorithm>

#include "kernels/sm90/cuda_ops.h"
#include "kernels/sm90/dense/operands.h"

namespace godwit::sm90 {
namespace {

// Matrices with no side as long as this take the decode form: nothing is gained by another.
constexpr int64_t kLongSide = 1024;

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}
bool aligned_rows(const View& v) {
  return aligned(v.data) && v.stride * size_of(v.dtype) % 16 == 0;
}

DenseProduct dense_product(const Product& p) {
  DenseProduct d;
  d.type = p.w.data.dtype;
  d.n = p.w.out() / p.heads;
  d.k = p.w.in();
  d.batch = p.heads;
  d.w = p.w.data.data;
  d.w_scales = p.w.scales;
  d.y = p.out.data;
  d.y_stride = d.type == DType::bf16 ? p.out.stride : p.out.cols;
  return d;
}

// Where the codes of rows lie in the operand scratch.
DenseCodes codes_at(std::byte* base, int64_t rows, int64_t columns) {
  DenseCodes codes;
  codes.codes = reinterpret_cast<uint8_t*>(base);
  codes.scales = reinterpret_cast<float*>(base + padded_rows(rows) * columns);
  codes.rest_scales = codes.scales + columns / kFp8Block * (rows / kDenseRows * kDenseRows);
  return codes;
}

int64_t operand_bytes(DType type, int64_t rows, int64_t columns) {
  const int64_t padded = padded_rows(rows);
  if (type == DType::bf16) return padded * columns * size_of(type);
  return padded * columns + columns / kFp8Block * padded * int64_t{sizeof(float)};
}

}  // namespace

int64_t dense_operand_bytes(int64_t rows, int64_t columns) {
  return operand_bytes(DType::bf16, rows, columns);
}

// Depends on shapes and places only, so that a row's form never depends on how many rows came with it.
bool CudaOps::fits_dense(const Product& p) {
  const DType type = p.w.data.dtype;
  const int64_t n = p.w.out() / p.heads, k = p.w.in();
  if (std::max(p.w.out(), k) < kLongSide || p.w.data.stride != k) return false;
  if (!aligned(p.w.data.data) || !aligned_rows(p.x) || !aligned_rows(p.out)) return false;
  if (p.x.cols > dense_columns_) return false;
  if (type == DType::f8_e4m3) {
    if (p.heads > 1 || n % kFp8Block != 0 || k % (4 * kFp8Block) != 0) return false;
    if (p.w.scale_stride != k / kFp8Block || !aligned(p.w.scales) || p.out.cols > dense_results_)
      return false;
  } else if (type != DType::bf16 || n % 8 != 0 || k % 64 != 0 ||
             kDenseRows * p.out.stride * int64_t{sizeof(float)} > rest_.bytes) {
    return false;
  }
  return dense_->has(dense_product(p));
}

void CudaOps::multiply_dense(std::span<const Product> products) {
  const Product* held = nullptr;  // whose x lies in the scratch
  for (const Product& p : products) {
    const DType type = p.w.data.dtype;
    const bool fresh = held == nullptr || !same_rows(held->x, p.x) || held->w.data.dtype != type;
    GODWIT_ASSERT(!fresh || operand_bytes(type, p.x.rows, p.x.cols) <= operand_.bytes);
    held = &p;
    if (type == DType::bf16) {
      multiply_halves(p, fresh);
      continue;
    }
    const DenseCodes codes = codes_at(operand_.base, p.x.rows, p.x.cols);
    if (fresh) encode_rows(device_.stream(), p.x, codes);
    multiply_codes(p, codes, result_.base);
    widen_rows(device_.stream(), result_.base, p.out);
  }
}

// bf16 weights. Packed bf16 rows are read where they lie, but for a rest; others from the scratch, where they
// are put when they are `fresh`.
void CudaOps::multiply_halves(const Product& p, bool fresh) {
  cudaStream_t stream = device_.stream();
  const int64_t rows = p.x.rows, whole = rows / kDenseRows * kDenseRows;
  const bool ready = p.x.dtype == DType::bf16 && p.x.stride == p.x.cols;
  std::byte* const rest = operand_.base + whole * p.x.cols * size_of(DType::bf16);
  if (fresh && !ready) narrow_rows(stream, p.x, operand_.base);
  if (fresh && ready && whole < rows) narrow_rows(stream, p.x.row_range(whole, rows - whole), rest);
  DenseProduct d = dense_product(p);
  d.x = ready ? p.x.data : operand_.base;
  if (whole > 0) dense_->multiply(stream, d, whole, workspace_.base);
  if (whole == rows) return;
  d.x = rest, d.y = rest_.base;
  dense_->multiply(stream, d, kDenseRows, workspace_.base);
  copy_rows(stream, reinterpret_cast<const float*>(rest_.base), d.y_stride,
            p.out.row_range(whole, rows - whole));
}

// Codes of `rows` rows to bf16 results at `y`, padded_rows(rows) of them.
void CudaOps::multiply_codes(const Product& p, const DenseCodes& codes, std::byte* y) {
  const int64_t rows = p.x.rows, whole = rows / kDenseRows * kDenseRows;
  DenseProduct d = dense_product(p);
  d.x = codes.codes, d.x_scales = codes.scales, d.y = y;
  if (whole > 0) dense_->multiply(device_.stream(), d, whole, workspace_.base);
  if (whole == rows) return;
  d.x = codes.codes + whole * d.k, d.x_scales = codes.rest_scales;
  d.y = y + whole * d.y_stride * size_of(DType::bf16);
  dense_->multiply(device_.stream(), d, kDenseRows, workspace_.base);
}

// Gate, up and down without their results in f32 between them: the same values, since the library's are bf16.
bool CudaOps::dense_ffn(const kernels::Ffn& a, View* result) {
  const int64_t rows = a.x.rows, inner = a.inner.cols;
  const Product gate{a.x, {}, a.gate, 1, a.gate_up.col_range(0, inner)};
  const Product up{a.x, {}, a.up, 1, a.gate_up.col_range(inner, inner)};
  const Product down{a.inner, {}, a.down, 1, a.out};
  for (const Product* p : {&gate, &up, &down})
    if (p->w.data.dtype != DType::f8_e4m3 || !fits_dense(*p)) return false;
  const int64_t side = padded_rows(rows) * inner * size_of(DType::bf16);
  GODWIT_ASSERT(std::max(2 * side, padded_rows(rows) * a.out.cols * size_of(DType::bf16)) <= result_.bytes);
  GODWIT_ASSERT(operand_bytes(DType::f8_e4m3, rows, std::max(a.x.cols, inner)) <= operand_.bytes);
  cudaStream_t stream = device_.stream();
  const DenseCodes x = codes_at(operand_.base, rows, a.x.cols);
  encode_rows(stream, a.x, x);
  multiply_codes(gate, x, result_.base);
  multiply_codes(up, x, result_.base + side);
  const DenseCodes between = codes_at(operand_.base, rows, inner);
  encode_swiglu(stream, make_view(result_.base, DType::bf16, rows, inner),
                make_view(result_.base + side, DType::bf16, rows, inner), a.limit, between);
  multiply_codes(down, between, result_.base);
  *result = make_view(result_.base, DType::bf16, rows, a.out.cols);
  return true;
}

// Rows of prompts; the others as the ops do it.
void CudaOps::ffn(const kernels::Ffn& a) {
  const int64_t rows = a.x.rows, first = std::clamp<int64_t>(a.decode_rows, 0, rows);
  if (first > 0) Ops::ffn(part_of(a, 0, first));
  if (first == rows) return;
  kernels::Ffn prompt = part_of(a, first, rows - first);
  prompt.decode_rows = 0;
  View result;
  if (!dense_ffn(prompt, &result)) return Ops::ffn(prompt);
  forget_codes(prompt.out);
  widen_rows(device_.stream(), result.data, prompt.out);
}

}  // namespace godwit::sm90
