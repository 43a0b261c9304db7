// Stands in for cuBLASLt: the products of dense/library.h by plain loops over the layouts that it documents.
#include "kernels/sm90/dense/library.h"

#include "cuda_runtime_api.h"
#include "device_code.h"

namespace godwit::emulation {
void issue(cudaStream_t stream, std::function<void()> work);  // runtime.cpp
}

namespace godwit::sm90 {
namespace {

class PlainLibrary final : public DenseLibrary {
 public:
  bool has(const DenseProduct&) override { return true; }

  void multiply(cudaStream_t stream, const DenseProduct& p, int64_t rows, void*) override {
    emulation::issue(stream, [p, rows] {
      for (int64_t t = 0; t < rows; ++t)
        for (int64_t n = 0; n < p.batch * p.n; ++n) {
          const float y = value(p, rows, t, n);
          if (p.type == DType::bf16) {
            static_cast<float*>(p.y)[t * p.y_stride + n] = y;
          } else {
            static_cast<bf16*>(p.y)[t * p.y_stride + n] = to_bf16(y);
          }
        }
    });
  }

 private:
  // The order of the sums is one of many that the library may take.
  static float value(const DenseProduct& p, int64_t rows, int64_t t, int64_t n) {
    const int64_t x = t * p.batch * p.k + n / p.n * p.k, w = n * p.k;
    float sum = 0;
    for (int64_t first = 0; first < p.k; first += kFp8Block) {
      const int64_t last = std::min(p.k, first + kFp8Block), block = first / kFp8Block;
      float part = 0;
      if (p.type == DType::bf16) {
        for (int64_t k = first; k < last; ++k)
          part +=
              to_float(static_cast<const bf16*>(p.x)[x + k]) * to_float(static_cast<const bf16*>(p.w)[w + k]);
        sum += part;
        continue;
      }
      for (int64_t k = first; k < last; ++k)
        part += to_float(static_cast<const f8_e4m3*>(p.x)[x + k]) *
                to_float(static_cast<const f8_e4m3*>(p.w)[w + k]);
      sum += part * (p.x_scales[block * rows + t] * p.w_scales[n / kFp8Block * (p.k / kFp8Block) + block]);
    }
    return sum;
  }
};

}  // namespace

Result<std::unique_ptr<DenseLibrary>> open_dense_library() {
  return std::unique_ptr<DenseLibrary>(std::make_unique<PlainLibrary>());
}

}  // namespace godwit::sm90
