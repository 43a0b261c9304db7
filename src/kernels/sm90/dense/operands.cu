// What cuBLASLt reads in front of the prefill family's products, and where it writes rows that are no whole
// multiple of kDenseRows.
#include "kernels/sm90/dense/operands.h"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/linear/quantize.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 256;

// Rows are cut into as many blocks as they are long; 32-bit division is the short one.
struct Place {
  uint32_t row, block;
  __device__ explicit Place(uint32_t blocks) : row(blockIdx.x / blocks), block(blockIdx.x - row * blocks) {}
};

// Eight values as bf16, and four as f32.
__device__ inline uint4 narrow_eight(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  return {two_bf16(a.x, a.y), two_bf16(a.z, a.w), two_bf16(b.x, b.y), two_bf16(b.z, b.w)};
}
__device__ inline uint4 narrow_eight(const bf16* from) {
  return *reinterpret_cast<const uint4*>(from);
}
__device__ inline float4 widen_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ inline float4 widen_four(const bf16* from) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  return {low_half(v.x), high_half(v.x), low_half(v.y), high_half(v.y)};
}

// A thread takes eight values of a row; `eights` is how many a row has. Rows past the last are zeros.
template <class X>
__global__ void __launch_bounds__(kThreads)
    narrow_kernel(Rows<const X> x, uint32_t rows, uint32_t eights, uint32_t blocks, uint4* to) {
  begin_dependent();
  const Place place(blocks);
  const uint32_t row = place.row, at = place.block * kThreads + threadIdx.x;
  if (at >= eights) return;
  uint4 out{0, 0, 0, 0};
  if (row < rows) out = narrow_eight(x(row) + 8 * at);
  to[int64_t{row} * eights + at] = out;
}

// Rows to encode as they are, and as SwiGLU of two results that lie side by side.
template <class X>
struct Plain {
  Rows<const X> x;
  __device__ float4 operator()(uint32_t row, uint32_t column) const { return widen_four(x(row) + column); }
};
struct Gated {
  Rows<const bf16> gate, up;
  float limit;
  __device__ float4 operator()(uint32_t row, uint32_t column) const {
    const float4 g = widen_four(gate(row) + column), u = widen_four(up(row) + column);
    return {clamped_swiglu(g.x, u.x, limit), clamped_swiglu(g.y, u.y, limit), clamped_swiglu(g.z, u.z, limit),
            clamped_swiglu(g.w, u.w, limit)};
  }
};

// The quantiser of kernels/quantize.h, bit for bit: a warp a group.
template <class From>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(From from, uint32_t rows, uint32_t whole, uint32_t groups, uint32_t blocks, DenseCodes to) {
  begin_dependent();
  const Place place(blocks);
  const uint32_t row = place.row, group = place.block * (kThreads / 32) + threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  if (group >= groups) return;
  float4 v{0, 0, 0, 0};
  if (row < rows) v = from(row, group * kFp8Block + 4 * lane);
  const EncodedFour encoded = encode_group(v);
  reinterpret_cast<uint32_t*>(to.codes + int64_t{row} * groups * kFp8Block)[group * (kFp8Block / 4) + lane] =
      encoded.codes;
  if (lane != 0) return;
  if (row < whole) {
    to.scales[int64_t{group} * whole + row] = encoded.scale;
  } else {
    to.rest_scales[group * kDenseRows + (row - whole)] = encoded.scale;
  }
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const float* from, int64_t stride, uint32_t columns, uint32_t blocks, Rows<float> to) {
  begin_dependent();
  const Place place(blocks);
  const uint32_t column = place.block * kThreads + threadIdx.x;
  if (column < columns) to(place.row)[column] = from[place.row * stride + column];
}

// A thread takes eight values of a row.
__global__ void __launch_bounds__(kThreads)
    widen_kernel(const uint4* from, uint32_t eights, uint32_t blocks, Rows<float> to) {
  begin_dependent();
  const Place place(blocks);
  const uint32_t at = place.block * kThreads + threadIdx.x;
  if (at >= eights) return;
  const uint4 v = from[int64_t{place.row} * eights + at];
  float4* out = reinterpret_cast<float4*>(to(place.row)) + 2 * at;
  out[0] = {low_half(v.x), high_half(v.x), low_half(v.y), high_half(v.y)};
  out[1] = {low_half(v.z), high_half(v.z), low_half(v.w), high_half(v.w)};
}

template <class... Parameters, class... Arguments>
void launch_rows(cudaStream_t stream, int64_t rows, unsigned blocks, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  launch_dependent(stream, "linear", blocks_for(rows * blocks, 1), kThreads, 0, kernel, arguments...);
}

}  // namespace

void narrow_rows(cudaStream_t stream, const View& x, void* to) {
  const auto eights = static_cast<uint32_t>(x.cols / 8);
  const unsigned blocks = blocks_for(eights, kThreads);
  const auto launch = [&](auto rows) {
    using X = std::remove_cvref_t<decltype(*rows.data)>;
    launch_rows(stream, padded_rows(x.rows), blocks, narrow_kernel<X>, rows, static_cast<uint32_t>(x.rows),
                eights, blocks, static_cast<uint4*>(to));
  };
  if (x.dtype == DType::bf16) return launch(rows_of<const bf16>(x));
  launch(rows_of<const float>(x));
}

namespace {

template <class From>
void encode(cudaStream_t stream, const From& from, int64_t rows, int64_t columns, const DenseCodes& to) {
  const auto groups = static_cast<uint32_t>(columns / kFp8Block);
  const unsigned blocks = blocks_for(groups, kThreads / 32);
  launch_rows(stream, padded_rows(rows), blocks, encode_kernel<From>, from, static_cast<uint32_t>(rows),
              static_cast<uint32_t>(rows / kDenseRows * kDenseRows), groups, blocks, to);
}

}  // namespace

void encode_rows(cudaStream_t stream, const View& x, const DenseCodes& to) {
  if (x.dtype == DType::bf16) return encode(stream, Plain<bf16>{rows_of<const bf16>(x)}, x.rows, x.cols, to);
  encode(stream, Plain<float>{rows_of<const float>(x)}, x.rows, x.cols, to);
}

void encode_swiglu(cudaStream_t stream, const View& gate, const View& up, float limit, const DenseCodes& to) {
  encode(stream, Gated{rows_of<const bf16>(gate), rows_of<const bf16>(up), limit}, gate.rows, gate.cols, to);
}

void copy_rows(cudaStream_t stream, const float* from, int64_t stride, const View& to) {
  const auto columns = static_cast<uint32_t>(to.cols);
  const unsigned blocks = blocks_for(columns, kThreads);
  launch_rows(stream, to.rows, blocks, copy_kernel, from, stride, columns, blocks, rows_of<float>(to));
}

void widen_rows(cudaStream_t stream, const void* from, const View& to) {
  const auto eights = static_cast<uint32_t>(to.cols / 8);
  const unsigned blocks = blocks_for(eights, kThreads);
  launch_rows(stream, to.rows, blocks, widen_kernel, static_cast<const uint4*>(from), eights, blocks,
              rows_of<float>(to));
}

}  // namespace godwit::sm90
