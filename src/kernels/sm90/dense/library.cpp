// cuBLASLt, found at start: it is half a gigabyte, so it is neither linked nor shipped.
#include "kernels/sm90/dense/library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "kernels/sm90/check.h"

namespace godwit::sm90 {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"};
// The algorithm is the library's first choice for so many rows, and must do for the least and the most.
constexpr int64_t kTypicalRows = 8192;
constexpr int64_t kCheckedRows[] = {kDenseRows, 16384};

void check_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceFailure(fmt::format("cuBLASLt failed in {}: status {}", what, static_cast<int>(status)));
}

// What is used of the library. Its *Init functions are inline wrappers of these.
struct Symbols {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulDescInit_internal) init_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
};

// The descriptors of one product; they live on the stack, so that a step allocates nothing. Row-major
// y [rows, n] is column-major y^T [n, rows] = w^T' x^T.
class Call {
 public:
  Call(const Symbols& lt, const DenseProduct& p, int64_t rows) : lt_(lt) {
    const bool fp8 = p.type == DType::f8_e4m3;
    check_lt(lt.init_desc(&desc, sizeof desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescInit");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose);
    if (fp8) {
      const cublasLtMatmulMatrixScale_t blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
      const cublasLtMatmulMatrixScale_t groups = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blocks);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, groups);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.w_scales);
      // Algorithms are looked for before there are activations, and there are none without a pointer.
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.x_scales ? p.x_scales : p.w_scales);
    }
    const cudaDataType type = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    layout(w, type, p.k, p.n, p.k, p.batch, p.n * p.k);
    layout(x, type, p.k, rows, p.batch * p.k, p.batch, p.k);
    layout(y, fp8 ? CUDA_R_16BF : CUDA_R_32F, p.n, rows, p.y_stride, p.batch, p.n);
  }

  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t w, x, y;

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_lt(lt_.set_desc(&desc, attribute, &value, sizeof value), "MatmulDescSetAttribute");
  }
  void layout(cublasLtMatrixLayoutOpaque_t& to, cudaDataType type, int64_t rows, int64_t columns,
              int64_t stride, int64_t batch, int64_t step) {
    check_lt(lt_.init_layout(&to, sizeof to, type, static_cast<uint64_t>(rows),
                             static_cast<uint64_t>(columns), stride),
             "MatrixLayoutInit");
    if (batch == 1) return;
    const auto count = static_cast<int32_t>(batch);
    check_lt(lt_.set_layout(&to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "batch count");
    check_lt(lt_.set_layout(&to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
             "batch step");
  }

  const Symbols& lt_;
};

class CublasLt final : public DenseLibrary {
 public:
  explicit CublasLt(const Symbols& symbols) : lt_(symbols) {
    check_lt(lt_.create(&handle_), "Create");
    shapes_.reserve(256);
  }
  ~CublasLt() override { lt_.destroy(handle_); }

  bool has(const DenseProduct& p) override { return algorithm(p) != nullptr; }

  void multiply(cudaStream_t stream, const DenseProduct& p, int64_t rows, void* workspace) override {
    const cublasLtMatmulAlgo_t* algo = algorithm(p);
    GODWIT_ASSERT(algo != nullptr && rows % kDenseRows == 0);
    Call call(lt_, p, rows);
    const float one = 1, zero = 0;
    check_lt(lt_.matmul(handle_, &call.desc, &one, p.w, &call.w, p.x, &call.x, &zero, p.y, &call.y, p.y,
                        &call.y, algo, workspace, kDenseWorkspace, stream),
             "Matmul");
  }

 private:
  using Key = std::array<int64_t, 5>;
  struct Shape {
    Key key;
    std::optional<cublasLtMatmulAlgo_t> algo;
  };

  const cublasLtMatmulAlgo_t* algorithm(const DenseProduct& p) {
    const Key key = {static_cast<int64_t>(p.type), p.n, p.k, p.batch, p.y_stride};
    auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& s) { return s.key == key; });
    if (found == shapes_.end()) found = shapes_.insert(shapes_.end(), {key, choose(p)});
    return found->algo ? &*found->algo : nullptr;
  }

  // Without split K: its sums would be joined by an order of their own.
  std::optional<cublasLtMatmulAlgo_t> choose(const DenseProduct& p) const {
    cublasLtMatmulPreferenceOpaque_t preference;
    check_lt(lt_.init_preference(&preference, sizeof preference), "MatmulPreferenceInit");
    const size_t workspace = kDenseWorkspace;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
    check_lt(lt_.set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                sizeof workspace),
             "workspace");
    check_lt(lt_.set_preference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                sizeof reductions),
             "reductions");
    // Rows of a prompt begin behind those of the decode family, wherever that is; 256 is the default.
    const uint32_t alignment = 16;
    for (const auto matrix :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      check_lt(lt_.set_preference(&preference, matrix, &alignment, sizeof alignment), "alignment");
    Call typical(lt_, p, kTypicalRows);
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    if (lt_.heuristic(handle_, &typical.desc, &typical.w, &typical.x, &typical.y, &typical.y, &preference, 8,
                      found, &count) != CUBLAS_STATUS_SUCCESS)
      return {};
    const auto runs = [&](const cublasLtMatmulHeuristicResult_t& one) {
      return one.state == CUBLAS_STATUS_SUCCESS && std::ranges::all_of(kCheckedRows, [&](int64_t rows) {
               Call call(lt_, p, rows);
               cublasLtMatmulHeuristicResult_t fit{};
               return lt_.algo_check(handle_, &call.desc, &call.w, &call.x, &call.y, &call.y, &one.algo,
                                     &fit) == CUBLAS_STATUS_SUCCESS &&
                      fit.workspaceSize <= workspace;
             });
    };
    const auto first = std::find_if(found, found + count, runs);
    if (first == found + count) return {};
    return first->algo;
  }

  Symbols lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::vector<Shape> shapes_;
};

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::unique_ptr<DenseLibrary>> open_dense_library() {
  void* library = nullptr;  // stays loaded until the process ends, as the driver's own libraries do
  for (const char* name : kNames) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr)
    return make_error(
        ErrorCode::device, "--device",
        "the CUDA backend needs {} (cuBLAS of CUDA 13, also looked for in /usr/local/cuda/lib64): "
        "install it, or name its folder in LD_LIBRARY_PATH",
        kNames[0]);
  Symbols s;
  const bool all = find(library, "cublasLtCreate", s.create) && find(library, "cublasLtDestroy", s.destroy) &&
                   find(library, "cublasLtMatmul", s.matmul) &&
                   find(library, "cublasLtMatmulAlgoGetHeuristic", s.heuristic) &&
                   find(library, "cublasLtMatmulAlgoCheck", s.algo_check) &&
                   find(library, "cublasLtMatmulDescInit_internal", s.init_desc) &&
                   find(library, "cublasLtMatmulDescSetAttribute", s.set_desc) &&
                   find(library, "cublasLtMatrixLayoutInit_internal", s.init_layout) &&
                   find(library, "cublasLtMatrixLayoutSetAttribute", s.set_layout) &&
                   find(library, "cublasLtMatmulPreferenceInit_internal", s.init_preference) &&
                   find(library, "cublasLtMatmulPreferenceSetAttribute", s.set_preference);
  if (!all)
    return make_error(ErrorCode::device, "--device", "{} is not cuBLASLt of CUDA 13: {}", kNames[0],
                      dlerror());
  return std::unique_ptr<DenseLibrary>(std::make_unique<CublasLt>(s));
}

}  // namespace godwit::sm90
