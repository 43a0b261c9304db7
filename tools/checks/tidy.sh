#!/usr/bin/env bash
# tidy.sh BUILD_DIR: clang-tidy over the sources that differ from origin/main (else from the last commit), within four
# minutes. Files of a large change that do not fit into that time are named, not dropped silently.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
base=$(git merge-base HEAD origin/main 2>/dev/null || true)
if [[ -z $base || $base == $(git rev-parse HEAD) ]]; then
  base=$(git rev-parse --verify -q HEAD~1 || git rev-parse HEAD)
fi
# A source that this build does not compile has no flags to be read with: of the CUDA engine's, on a machine without CUDA's.
mapfile -t changed < <(git diff --name-only --diff-filter=AM "$base" -- 'src/*.cpp' 'apps/*.cpp')
files=()
for file in "${changed[@]}"; do
  if grep -qF "\"$PWD/$file\"" "$build/compile_commands.json"; then files+=("$file"); else echo "not compiled here: $file"; fi
done
((${#files[@]} == 0)) && { echo "no changed source"; exit 0; }

deadline=$((SECONDS + 240))
left=()
failed=0
for file in "${files[@]}"; do
  if ((SECONDS >= deadline)); then left+=("$file"); continue; fi
  clang-tidy -p "$build" --quiet "$file" 2>/dev/null || failed=1
done
echo "clang-tidy: $((${#files[@]} - ${#left[@]})) of ${#files[@]} changed files"
((${#left[@]} == 0)) || printf 'out of time, not looked at: %s\n' "${left[@]}"
exit $failed
