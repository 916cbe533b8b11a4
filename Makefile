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
CPP_SOURCES := $(shell find runtime/cpp -name '*.cc' -o -name '*.h' -o -name '*.cmake' -o -name CMakeLists.txt -o -name '*.map')

.PHONY: install clean

install: $(VENV)/.installed

$(VENV)/.tools: Makefile
	@test -n "$(BASE_PYTHON)" || { echo "no python >= 3.11 found: install one, or put it on PATH" >&2; exit 2; }
	test -x $(BIN)/python || "$(BASE_PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) numpy $(BUILD_TOOLS)
	touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml $(CPP_SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[test,lint]'
	touch $@

clean:
	rm -rf build $(VENV)
