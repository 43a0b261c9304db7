// Recordings of the ops as CUDA graphs (kernels spec §3.14).
#include "kernels/sm90/cuda_ops.h"

namespace godwit::sm90 {
namespace {

class Graph final : public kernels::Recording {
 public:
  Graph(const Device& device, cudaGraphExec_t exec) : device_(device), exec_(exec) {}
  ~Graph() override { cudaGraphExecDestroy(exec_); }
  void replay() override { check(cudaGraphLaunch(exec_, device_.stream()), "graph launch"); }

 private:
  const Device& device_;
  cudaGraphExec_t exec_;
};

}  // namespace

std::unique_ptr<kernels::Recording> CudaOps::record(const std::function<void()>& issue) {
  cudaStream_t stream = device_.stream();
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph capture");
  cudaGraph_t graph = nullptr;
  try {
    issue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "graph capture");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "graph instantiation");
  check(cudaGraphUpload(exec, stream), "graph upload");
  return std::make_unique<Graph>(device_, exec);
}

}  // namespace godwit::sm90
