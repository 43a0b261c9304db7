#!/usr/bin/env bash
# Compiles the CUDA backend for sm_90a and sm_100 and links it; needs nvcc, no GPU. Measured on an idle machine of two
# cores: see src/kernels/sm90/README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake -G Ninja -S . -B build-cuda -DGODWIT_CUDA=ON -DGODWIT_TESTS=OFF >/dev/null
cmake --build build-cuda --target godwit_kernels
