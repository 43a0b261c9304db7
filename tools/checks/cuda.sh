#!/usr/bin/env bash
# Compiles the CUDA backend for sm_90a and sm_100; needs nvcc, no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake -G Ninja -S . -B build-cuda -DGODWIT_CUDA=ON -DGODWIT_TESTS=OFF >/dev/null
cmake --build build-cuda --target godwit_kernels
