#!/bin/bash
# `make gpu-check`: on a machine with a GPU, builds the native part against the torch that is there, then checks, runs
# the tests marked gpu and times everything. Short tables last; JSON and logs go to $OUT (build/gpu-out by default).
set -uo pipefail
cd "$(dirname "$0")/.."
export OUT="${OUT:-$PWD/build/gpu-out}" PYTHONUNBUFFERED=1
export DSV41C_CACHE_DIR="${DSV41C_CACHE_DIR:-$PWD/build/gpu/cache}"
mkdir -p "$OUT"
python="${PYTHON:-python3}"
[ -d build/gpu/site ] && export PYTHONPATH="$PWD/build/gpu/site${PYTHONPATH:+:$PYTHONPATH}"

"$python" tools/gen/typing_links.py || exit 1
export PYTHONPATH="$PWD/build/typing${PYTHONPATH:+:$PYTHONPATH}"
cmake -S runtime/cpp -B build/gpu-native -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v "$python")" \
  > "$OUT/cmake.log" 2>&1 && cmake --build build/gpu-native >> "$OUT/cmake.log" 2>&1 \
  && cmake --install build/gpu-native --prefix build/gpu-native/install >> "$OUT/cmake.log" 2>&1 \
  || { tail -n 40 "$OUT/cmake.log"; echo "the native build failed"; exit 1; }
mkdir -p runtime/lib && cp -f build/gpu-native/install/dsv41c/runtime/lib/*.so runtime/lib/

status=0
run() { # name, command...
  local name="$1"; shift
  "$@" > "$OUT/$name.log" 2>&1 || { status=1; echo "$name FAILED ($?)"; }
  grep -v 'TileLang' "$OUT/$name.log" | tail -n "${LINES_SHOWN:-12}" | cut -c1-400
}
run ops timeout 200 "$python" tools/bench/gpu_ops.py run
run tests timeout 400 "$python" -m pytest -q -m gpu -p no:cacheprovider tests/gpu
run executor timeout 400 "$python" tools/bench/gpu_executor.py "$@"
[ -n "${SKIP_KERNELS:-}" ] || LINES_SHOWN=40 run kernels timeout 250 "$python" tools/bench/kernels.py
exit $status
