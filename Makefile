# godwit: `make help` lists the targets. Every target installs what it lacks (tools/install_deps.sh).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
PORT ?= 8000
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

ctest := ctest --test-dir build --output-on-failure -j $(JOBS)

.PHONY: help run build test check bench device install format tidy clean deps-build deps-test deps-ci

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

run: build ## Serve the tiny model on http://127.0.0.1:8000 (PORT=9000 for another port)
	@exec build/godwit serve --port $(PORT)

build: deps-build ## Compile; the binary is build/godwit
	@test -f build/build.ninja || cmake --preset release
	@cmake --build build -j $(JOBS)

test: deps-test build ## Build and run every test (CI=1: also what .ci/run adds)
	@cmake build -DGODWIT_CI=$(if $(CI),ON,OFF) >/dev/null
	@$(ctest)

check: build ## Unit tests only, about a minute
	@$(ctest) -L '^unit$$'

bench: build ## Run every program of bench/ with its defaults
	@for program in $$(find build/bench -maxdepth 1 -type f -executable | sort); do echo "== $$program"; "$$program"; done

device: deps-build ## Build with the CUDA backend (needs nvcc) into build-device/bundle, which runs on a bare GPU host
	@cmake --preset device >/dev/null
	@cmake --build build-device -j $(JOBS) --target godwit test_ops quantize_fp8 synthetic_checkpoint
	@tools/bundle.sh build-device

install: deps-build ## Install under PREFIX (default /usr/local), built without tests and fault points
	@cmake --preset install -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --build build-install -j $(JOBS)
	@cmake --install build-install

format: deps-ci ## Format all sources in place
	@git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

tidy: deps-ci build ## clang-tidy over the files that differ from main
	@tools/checks/tidy.sh build

clean: ## Remove every build directory (not .venv)
	@rm -rf build build-device build-install build-asan build-tsan build-fuzz build-debug

deps-build:
	@tools/install_deps.sh build
deps-test:
	@tools/install_deps.sh test
deps-ci:
	@tools/install_deps.sh ci
