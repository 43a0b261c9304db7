#!/usr/bin/env bash
# sanitize.sh PRESET TEST...: builds these test programs with the preset's sanitizers and runs them.
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=$1
shift
cmake --preset "$preset" >/dev/null
targets=()
for test in "$@"; do
  # A room without tests yet makes no program.
  if ninja -C "build-$preset" -t query "$test" >/dev/null 2>&1; then targets+=("$test"); fi
done
cmake --build "build-$preset" -j "$(nproc)" --target "${targets[@]}"
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
ctest --test-dir "build-$preset" --output-on-failure -j "$(nproc)" -R "^($(IFS='|'; echo "${targets[*]}"))\$"
