#include "kernels/make_ops.h"

#ifdef GODWIT_CUDA
#include "kernels/sm90/cuda_ops.h"
#endif

namespace godwit::kernels {

Result<std::unique_ptr<Ops>> make_ops(std::string_view backend, int threads) {
  if (backend == "cpu") return make_cpu_ops(threads);
  if (backend == "reference") return make_reference_ops();
  if (backend == "cuda") {
#ifdef GODWIT_CUDA
    return sm90::make_cuda_ops(0);
#else
    return make_error(ErrorCode::device, "--device",
                      "this build has no CUDA backend (cmake -DGODWIT_CUDA=ON)");
#endif
  }
  return make_error(ErrorCode::usage, "--device", "there is no backend '{}'; choose cpu, cuda or reference",
                    backend);
}

int cuda_devices() {
#ifdef GODWIT_CUDA
  return sm90::device_count();
#else
  return 0;
#endif
}

}  // namespace godwit::kernels
