# `make install` creates .venv and installs the project in place, with the C++ libraries built against its torch.
SHELL := /bin/bash
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
BASE_PYTHON := $(shell for p in python3.11 python3 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
# torch is pinned first: pip then takes the CPU build, and CMake finds it while the project is built.
TORCH := torch==2.13.0
BUILD_TOOLS := 'scikit-build-core>=1.1,<1.2' 'nlohmann_json>=3.11,<4' cmake ninja
CPP_SOURCES := $(shell find runtime/cpp runtime/triton -name '*.cc' -o -name '*.h' -o -name '*.cmake' -o -name CMakeLists.txt -o -name '*.map' -o -name '*.in')

FORMATTED := $(filter %.cc %.h,$(CPP_SOURCES)) $(wildcard tests/native/triton/*.cc tests/native/triton/*.h)
# What `make demo` makes its model say; no token may occur twice.
RECITED := The checkpoint became a plan, one reservation and many frozen launches; nothing here is decided while it runs.
DEMO := build/demo

.PHONY: install demo browser test test-triton mutate sanitize sanitize-engine soak fuzz lint format clean gpu-artifacts gpu-check

install: $(VENV)/.installed

$(VENV)/.tools: Makefile
	@test -n "$(BASE_PYTHON)" || { echo "no python >= 3.11 found: install one, or put it on PATH" >&2; exit 2; }
	test -x $(BIN)/python || "$(BASE_PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) numpy $(BUILD_TOOLS)
	touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml $(CPP_SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[test,lint,kernels]'
	touch $@

demo: install
	rm -rf $(DEMO)
	$(BIN)/dsv41c checkpoint make --config demo --recite "$(RECITED)" -o $(DEMO)/ckpt
	$(BIN)/dsv41c compile $(DEMO)/ckpt -o $(DEMO)/art
	$(BIN)/python tools/demo/demo.py $(DEMO)/ckpt $(DEMO)/art

# Chromium, for the tests of pages.
browser:
	tools/browser.sh

# One thread for each worker: more than cores would only slow each other down.
test: install browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

# A real Triton server from its wheel, in an environment of its own: fails where it cannot be installed.
TRITON := build/triton
TRITON_BIN := $(TRITON)/venv/bin
TRITON_PACKAGES = $$($(TRITON_BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
TRITON_HOSTS := $(TRITON)/plain/.built $(TRITON)/asan/.built $(TRITON)/tsan/.built
$(TRITON)/plain/.built: FLAGS := -O2
$(TRITON)/asan/.built: FLAGS = $(ADDRESS)
$(TRITON)/tsan/.built: FLAGS = $(THREAD)

$(TRITON_BIN)/.installed: tests/triton_server/requirements.txt
	rm -rf $(TRITON)/venv
	"$(BASE_PYTHON)" -m venv $(TRITON)/venv
	$(TRITON_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	mkdir -p $(TRITON)/link
	ln -sfn $(TRITON_PACKAGES)/nvidia_pytriton.libs/libtritonserver-*.so $(TRITON)/link/libtritonserver.so
	touch $@

$(TRITON_HOSTS): $(TRITON)/%/.built: $(CPP_SOURCES) $(wildcard tests/native/triton/*) $(TRITON_BIN)/.installed | install
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S tests/native/triton -B $(TRITON)/$* -G Ninja -DCMAKE_BUILD_TYPE=None \
		-DCMAKE_CXX_FLAGS="$(FLAGS)" -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" \
		-DTRITON_LIBRARY="$(CURDIR)/$(TRITON)/link/libtritonserver.so"
	$(BIN)/cmake --build $(TRITON)/$*
	touch $@

test-triton: install $(TRITON_HOSTS)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.triton_server.prepare $(TRITON) "$(TRITON_PACKAGES)"
	OMP_NUM_THREADS=1 $(TRITON_BIN)/python -m pytest -q tests/triton_server --triton $(TRITON)

# Deletes each guard, constraint, hook and literal check of the fusions in turn; ends with 1 if the tests let one pass.
mutate: install
	$(BIN)/python tools/mutate/mutate.py

# The damage suite through a loader with AddressSanitizer and UndefinedBehaviorSanitizer, and eight threads on four
# engines with these and with ThreadSanitizer, without torch.
SANITIZERS := -O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all
ADDRESS := $(SANITIZERS) -fsanitize=address,undefined
THREAD := $(SANITIZERS) -fsanitize=thread
SANITIZED_HOST := build/sanitize/sanitized_host
STORMS := build/sanitize/lib/engine_storm build/sanitize/thread/engine_storm
STORM_TESTS := tests/sanitized/test_engine_storm.py
SANITIZED_TESTS := tests/sanitized tests/damage/test_artifact_files.py tests/damage/test_plan_mutations.py \
	tests/unit/runtime/test_damaged_artifact.py tests/unit/runtime/test_mapped_weights.py
JSON_INCLUDE = "$$($(BIN)/python -c 'import nlohmann_json; print(nlohmann_json.get_include())')"

build/sanitize/lib/libdsv41c.so.1: FLAGS := $(ADDRESS)
build/sanitize/thread/libdsv41c.so.1: FLAGS := $(THREAD)
build/sanitize/%/libdsv41c.so.1: $(CPP_SOURCES) | install
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S runtime/cpp -B $(@D) -G Ninja -DCMAKE_BUILD_TYPE=None \
		-DDSV41C_WITH_ATEN=OFF -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -DCMAKE_CXX_FLAGS="$(FLAGS)"
	$(BIN)/cmake --build $(@D) --target dsv41c dsv41c_executor

$(SANITIZED_HOST): build/sanitize/lib/libdsv41c.so.1 $(wildcard tests/native/guarded_kernels.* tests/native/sanitized_host.cc)
	g++ -std=c++20 $(ADDRESS) -Wall -Wextra -Iruntime/cpp/include -isystem $(JSON_INCLUDE) \
		tests/native/sanitized_host.cc tests/native/guarded_kernels.cc \
		-Lbuild/sanitize/lib -ldsv41c_executor '-Wl,-rpath,$$ORIGIN/lib' -o $@

build/sanitize/lib/engine_storm: FLAGS := $(ADDRESS)
build/sanitize/thread/engine_storm: FLAGS := $(THREAD)
build/sanitize/%/engine_storm: build/sanitize/%/libdsv41c.so.1 tests/native/engine_storm.cc tests/native/finite_aten.cc
	g++ -std=c++20 $(FLAGS) -Wall -Wextra -fPIC -shared -fvisibility=hidden -Iruntime/cpp/include \
		-isystem $(JSON_INCLUDE) tests/native/finite_aten.cc -o $(@D)/libdsv41c_aten.so
	g++ -std=c++20 $(FLAGS) -Wall -Wextra -Iruntime/cpp/include tests/native/engine_storm.cc \
		-L$(@D) -l:libdsv41c.so.1 '-Wl,-rpath,$$ORIGIN' -o $@

sanitize: $(SANITIZED_HOST) $(STORMS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal $(SANITIZED_TESTS) --sanitized $(SANITIZED_HOST)

sanitize-engine: $(SANITIZED_HOST) $(STORMS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(STORM_TESTS) --sanitized $(SANITIZED_HOST)

# Random traffic on one engine for SOAK_SECONDS: memory stays, every request ends.
SOAK_SECONDS ?= 60
soak: install
	$(BIN)/python tools/soak/soak.py --seconds $(SOAK_SECONDS)

# libFuzzer on manifest, plan and safetensors header: FUZZ_RUNS inputs each, or with FUZZ_RUNS=0 FUZZ_SECONDS each.
fuzz: install
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/fuzz.sh "$(CURDIR)/$(BIN)/python"

lint: install
	$(BIN)/ruff check --output-format concise .
	$(BIN)/python tools/gen/typing_links.py
	$(BIN)/mypy
	$(BIN)/python tools/lint/layers.py
	$(BIN)/clang-format --dry-run -Werror $(FORMATTED)
	$(BIN)/python tools/gen/plan_header.py --check
	$(BIN)/python tools/gen/errors_doc.py --check
	$(BIN)/python tools/gen/c_api_doc.py --check
	$(BIN)/python tools/lint/sizes.py

format: install
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/clang-format -i $(FORMATTED)

# On a box with nvcc and no GPU: every cubin that gpu-check wants, a warm kernel cache and pytest, under build/gpu.
gpu-artifacts: install
	$(BIN)/python tools/gen/gpu_site.py
	$(BIN)/python tools/gen/gpu_artifacts.py
	$(BIN)/python tools/bench/gpu_ops.py build
	DSV41C_CACHE_DIR=build/gpu/cache $(BIN)/python tools/bench/gpu_executor.py --compile-only

# On a box with a GPU, nvcc and a torch with CUDA: builds against that torch, checks, times. See tools/gpu_check.sh.
gpu-check:
	tools/gpu_check.sh

clean:
	rm -rf build $(VENV)
