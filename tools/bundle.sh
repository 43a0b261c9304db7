#!/usr/bin/env bash
# bundle.sh BUILD: BUILD/bundle holds what a GPU host needs to run selftest, op tests and a bench without our packages:
# stripped programs and, in lib/, every shared library they use except glibc's. The CUDA runtime is linked in.
set -euo pipefail
build=$1
out=$build/bundle
rm -rf "$out"
mkdir -p "$out/lib"
programs=("$build/godwit" "$build/tests/ops/test_ops" "$build/tools/quantize_fp8"
          "$build/tools/synthetic_checkpoint")
for program in "${programs[@]}"; do
  strip -o "$out/$(basename "$program")" "$program"
done
glibc='^(linux-vdso|ld-linux|libc|libm|libpthread|libdl|librt)[.-]'
ldd "${programs[@]}" | awk '$2 == "=>" {print $1, $3}' | sort -u | while read -r name path; do
  [[ $name =~ $glibc ]] || strip -o "$out/lib/$name" "$path"
done
bytes=$(du -sb "$out" | cut -f1)
limit=$((24 << 20))
if ((bytes > limit)); then
  echo "$out has $bytes bytes, limit $limit" >&2
  exit 1
fi
echo "$out: $bytes bytes"
