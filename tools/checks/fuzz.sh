#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds every libFuzzer target and shares SECONDS (default 100) among them. New inputs stay in
# build-fuzz/corpus; a crash is kept in build-fuzz/crashes and its path is printed.
set -euo pipefail
cd "$(dirname "$0")/../.."
total=${1:-100}
cmake --preset fuzz >/dev/null
cmake --build build-fuzz -j "$(nproc)" --target fuzzers
shopt -s nullglob
programs=(build-fuzz/tests/fuzz/*_fuzz)
((${#programs[@]} > 0)) || { echo "no fuzz target"; exit 1; }
mkdir -p build-fuzz/crashes
for program in "${programs[@]}"; do
  name=$(basename "$program" _fuzz)
  mkdir -p "build-fuzz/corpus/$name"
  seeds=()
  [[ -d tests/fuzz/corpus/$name ]] && seeds=("tests/fuzz/corpus/$name")
  words=()
  [[ -f tests/fuzz/$name.dict ]] && words=("-dict=tests/fuzz/$name.dict")
  echo "== $name"
  "$program" "build-fuzz/corpus/$name" "${seeds[@]}" "${words[@]}" -max_total_time=$((total / ${#programs[@]})) -timeout=10 \
    -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="build-fuzz/crashes/$name-" -print_final_stats=1 2>&1 |
    grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse|RELOAD)' | tail -n 40
done
