#!/usr/bin/env bash
# Installs what a Debian 12 machine lacks. Silent, offline and quick when nothing is missing.
#
#   tools/install_deps.sh build   compile and run
#   tools/install_deps.sh test    build + the Python environment of the client tests (.venv)
#   tools/install_deps.sh ci      test + clang, clang-tidy, clang-format
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  g++ cmake ninja-build ccache pkg-config git
  libboost1.81-dev        # Asio, Beast: HTTP
  libsimdjson-dev         # JSON parsing
  nlohmann-json3-dev      # JSON in tests
  libspdlog-dev libfmt-dev libcli11-dev
  prometheus-cpp-dev libcurl4-openssl-dev zlib1g-dev  # metrics; its CMake file asks for the other two
  libpcre2-dev            # pre-tokenizer regexes that are not GLM's
  libhwy-dev              # Highway: CPU kernels
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev
)
test_packages=(python3 python3-venv curl)
ci_packages=(clang clang-tidy clang-format libclang-rt-14-dev)

case "${1:-}" in
  build) packages=("${build_packages[@]}") ;;
  test) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
  ci) packages=("${build_packages[@]}" "${test_packages[@]}" "${ci_packages[@]}") ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "install_deps: no dpkg here, assuming that these Debian 12 packages are installed by other means:" >&2
    echo "  ${packages[*]}" >&2
    return
  fi
  local missing=() package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] || missing+=("$package")
  done
  ((${#missing[@]} == 0)) && return
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "install_deps: not root and no sudo. Ask an administrator to run:" >&2
      echo "  apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "install_deps: installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -q update &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q install -y \
           --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "install_deps: apt-get failed (all of its output: $log)" >&2
    exit 1
  fi
  rm -f "$log"
}

# The stamp holds the checksum of the requirements, so pip runs only when they change.
make_python_environment() {
  local requirements=(tests/clients/requirements.txt tests/clients/requirements-eval.txt) stamp=.venv/requirements.sha256
  local want
  want=$(cat "${requirements[@]}" | sha256sum)
  [[ -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$want" ]] && return
  echo "install_deps: making .venv from ${requirements[*]}"
  [[ -x .venv/bin/python ]] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${requirements[@]/#/--requirement=}"
  echo "$want" >"$stamp"
}

install_packages
[[ $1 == build ]] || make_python_environment
