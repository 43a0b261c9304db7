// Ops without a reduction over columns: one thread an element, or a column of all streams.
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 256;

// f(row, column) for every element of rows x columns.
template <class F>
__global__ void __launch_bounds__(kThreads) each_kernel(int64_t rows, int64_t columns, F f) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < rows * columns) f(i / columns, i % columns);
}
template <class F>
void each(cudaStream_t stream, const char* op, int64_t rows, int64_t columns, F f) {
  if (rows * columns == 0) return;
  launch_dependent(stream, op, blocks_for(rows * columns, kThreads), kThreads, 0, each_kernel<F>, rows,
                   columns, f);
}

struct EmbedElement {
  StepView step;
  const void* table;  // [count, D]
  DType dtype;
  int64_t stride, count, first_id;
  const int32_t* last_token;
  Rows<float> out;
  __device__ void operator()(int64_t t, int64_t c) const {
    int32_t id = step.ids[t];
    if (id == kernels::kFromSlot) id = last_token[step.sequence[step.row_sequence[t]].slot];
    const int64_t local = id - first_id;
    out(t)[c] = local >= 0 && local < count ? load(table, dtype, local * stride + c) : 0.0f;
  }
};

struct SwiGluElement {
  Rows<const float> gate_up;
  int64_t inner;
  float limit;
  Rows<float> out;
  __device__ void operator()(int64_t t, int64_t c) const {
    out(t)[c] = clamped_swiglu(gate_up(t)[c], gate_up(t)[inner + c], limit);
  }
};

struct AddElement {
  Rows<const float> a, b;
  Rows<float> out;
  __device__ void operator()(int64_t t, int64_t c) const { out(t)[c] = a(t)[c] + b(t)[c]; }
};

struct GatherElement {
  Rows<const float> x;
  const int32_t* rows;
  Rows<float> out;
  __device__ void operator()(int64_t i, int64_t c) const { out(i)[c] = x(rows[i])[c]; }
};

struct BroadcastElement {
  Rows<const float> x;
  int64_t width;
  Rows<float> streams;
  __device__ void operator()(int64_t t, int64_t c) const { streams(t)[c] = x(t)[c % width]; }
};

struct MeanElement {
  Rows<const float> streams;
  int64_t count, width;
  Rows<float> out;
  __device__ void operator()(int64_t t, int64_t c) const {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += streams(t)[i * width + c];
    out(t)[c] = sum / static_cast<float>(count);
  }
};

// All streams of one column, because they are read and written in place.
struct ExpandColumn {
  Rows<const float> mix, y;
  int64_t count, width;
  Rows<float> streams;
  __device__ void operator()(int64_t t, int64_t c) const {
    float old[kMaxStreams];
#pragma unroll
    for (int i = 0; i < kMaxStreams; ++i) old[i] = i < count ? streams(t)[i * width + c] : 0.0f;
    const float* m = mix(t);
    for (int64_t j = 0; j < count; ++j) {
      float sum = m[j] * y(t)[c];
#pragma unroll
      for (int i = 0; i < kMaxStreams; ++i) {
        if (i < count) sum = fmaf(m[count + i * count + j], old[i], sum);
      }
      streams(t)[j * width + c] = sum;
    }
  }
};

}  // namespace

void embed(cudaStream_t stream, const StepView& step, const kernels::Embed& a) {
  each(stream, "embed", step.rows, a.out.cols,
       EmbedElement{step, a.table.data.data, a.table.data.dtype, a.table.data.stride, a.table.out(),
                    a.first_id, a.last_token, rows_of<float>(a.out)});
}

void swiglu(cudaStream_t stream, const kernels::SwiGlu& a) {
  each(stream, "swiglu", a.out.rows, a.out.cols,
       SwiGluElement{rows_of<const float>(a.gate_up), a.out.cols, a.limit, rows_of<float>(a.out)});
}

void add(cudaStream_t stream, const kernels::Add& a) {
  each(stream, "add", a.out.rows, a.out.cols,
       AddElement{rows_of<const float>(a.a), rows_of<const float>(a.b), rows_of<float>(a.out)});
}

void gather_rows(cudaStream_t stream, const kernels::GatherRows& a) {
  each(stream, "gather_rows", a.out.rows, a.out.cols,
       GatherElement{rows_of<const float>(a.x), a.rows, rows_of<float>(a.out)});
}

void mhc_broadcast(cudaStream_t stream, const kernels::MhcBroadcast& a) {
  each(stream, "mhc_broadcast", a.x.rows, a.streams.cols,
       BroadcastElement{rows_of<const float>(a.x), a.x.cols, rows_of<float>(a.streams)});
}

void mhc_mean(cudaStream_t stream, const kernels::MhcMean& a) {
  each(stream, "mhc_mean", a.out.rows, a.out.cols,
       MeanElement{rows_of<const float>(a.streams), a.streams.cols / a.out.cols, a.out.cols,
                   rows_of<float>(a.out)});
}

void mhc_expand(cudaStream_t stream, const kernels::MhcExpand& a) {
  each(stream, "mhc_expand", a.y.rows, a.y.cols,
       ExpandColumn{rows_of<const float>(a.mix), rows_of<const float>(a.y), a.streams.cols / a.y.cols,
                    a.y.cols, rows_of<float>(a.streams)});
}

}  // namespace godwit::sm90
