# `make` alone lists the targets. JOBS=N sets how many tests run at once.
.PHONY: help quickstart test build bench format lint fuzz clean-room deps deps-test deps-clang oracles oracles-lm oracles-gptq
FUZZ_RUNS ?= 1000000
FUZZ_SECONDS ?= 300

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

quickstart: deps build/build.ninja ## build the command and run the tutorial: train, quantize, compare, look
	@cmake --build build --target kaon
	build/kaon quickstart

test: deps-test ## build, run every test; the last line is `N passed, N failed`
	@scripts/test.sh

build: deps build/build.ninja ## build/kaon and build/bench/*
	@cmake --build build --target kaon benches tools

build/build.ninja: CMakePresets.json | deps
	cmake --preset release

bench: build deps-test ## check and time everything in build/bench
	@scripts/oracles.sh || echo "Benchmarks whose peer is an oracle will say that it is missing."
	@for bench in build/bench/*; do if [ -x $$bench ] && [ -f $$bench ]; then $$bench || exit 1; fi; done

format: deps-clang ## clang-format every source
	@scripts/lint.sh --format

lint: deps deps-clang ## clang-format and clang-tidy, clean or failing
	@scripts/lint.sh

fuzz: deps deps-clang ## each fuzzer for FUZZ_RUNS executions or FUZZ_SECONDS
	@scripts/fuzz.sh $(FUZZ_RUNS) $(FUZZ_SECONDS)

clean-room: ## the README's two commands on a bare Debian, as root; takes half an hour
	@[ "$$(id -u)" -ne 0 ] || scripts/deps.sh clean-room
	@scripts/clean_room.sh

deps: ## the Debian packages that building needs and are missing
	@scripts/deps.sh build

deps-test:
	@scripts/deps.sh build test

deps-clang:
	@scripts/deps.sh clang

oracles: deps-test ## build/oracles: the Python peers that tests compare with
	@scripts/oracles.sh

oracles-lm: deps-test ## build/oracles-lm: torch, transformers and llama.cpp, for bench/lm, oracles.lm_folders and oracles.lm_gguf
	@scripts/oracles.sh lm

oracles-gptq: deps-test ## build/oracles-gptq: llm-compressor, for bench/lm_quantize
	@scripts/oracles.sh gptq
