#!/usr/bin/env bash
# Rules on the tracked tree: no source over 600 lines, 40 MiB in all, no path of somebody's machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
failed=0

while IFS= read -r -d '' file; do
  [[ -f $file ]] || continue
  lines=$(wc -l <"$file")
  if ((lines > 600)); then
    echo "$file has $lines lines, limit 600: split it by what changes together"
    failed=1
  fi
done < <(git ls-files -z '*.cpp' '*.h' '*.cu' '*.cuh' '*.cmake' '*CMakeLists.txt' '*.py' '*.sh' 'Makefile' '.ci/run')

bytes=$(git ls-files -z | xargs -0 du -cb 2>/dev/null | awk '$2 == "total" {sum += $1} END {print sum}')
limit=$((40 << 20))
if ((bytes > limit)); then
  echo "the tracked tree is $bytes bytes, limit $limit; the largest files:"
  git ls-files -z | xargs -0 du -b 2>/dev/null | sort -rn | head -n 5
  failed=1
fi

# Written in pieces, so that this file does not match itself.
machine_paths='/(wo''rk|ro''ot|ho''me)/[a-z]'
if git grep -nIE "$machine_paths" -- ':!*.jsonl'; then
  echo "the lines above name a path of somebody's machine"
  failed=1
fi
exit $failed
