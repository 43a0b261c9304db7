#!/usr/bin/env bash
# Every tracked source is as clang-format writes it.
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files -z '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -0 -n 64 -P "$(nproc)" clang-format --dry-run -Werror
