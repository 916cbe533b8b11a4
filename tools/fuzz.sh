#!/bin/bash
# Fuzzes what the loader parses: `tools/fuzz.sh PYTHON`, two targets at a time, each for FUZZ_RUNS inputs or, when that
# is 0, for FUZZ_SECONDS. Fails on any finding; its input is then kept under build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 runs=${FUZZ_RUNS:-1000000} seconds=${FUZZ_SECONDS:-20}
out=build/fuzz
# Refusals are exceptions: most of the time goes into stacks of allocations and a large quarantine otherwise.
export ASAN_OPTIONS=malloc_context_size=4:quarantine_size_mb=16

if ! command -v clang++ > /dev/null; then
  echo "fuzzing needs clang++ with libFuzzer; trying: apt-get update && apt-get install -y clang" >&2
  { [ "$(id -u)" = 0 ] && apt-get update -qq > /dev/null && apt-get install -y -qq clang > /dev/null; } || {
    echo "clang++ is missing and cannot be installed here: install it as root (Debian, Ubuntu: apt-get install clang)" >&2
    exit 2
  }
fi
cmake -S tests/fuzz -B $out/bin -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DPython_EXECUTABLE="$python" > $out-cmake.log 2>&1 ||
  { cat $out-cmake.log >&2; exit 1; }
cmake --build $out/bin -j "$(nproc)"
"$python" tools/gen/fuzz_seeds.py $out
mkdir -p $out/findings $out/logs

fuzz() { # target, longest input
  local limit=(-runs="$runs")
  [ "$runs" != 0 ] || limit=(-max_total_time="$seconds")
  mkdir -p "$out/corpus/$1"
  "$out/bin/fuzz_$1" "${limit[@]}" -seed=1 -max_len="$2" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
    -dict="$out/$1.dict" -artifact_prefix="$out/findings/$1-" \
    "$out/corpus/$1" "$out/seeds/$1" "tests/fuzz/corpus/$1" > "$out/logs/$1.log" 2>&1 ||
    { tail -n 60 "$out/logs/$1.log" >&2; echo "fuzz_$1 found something: its input is in $out/findings" >&2; return 1; }
  echo "fuzz_$1: $(awk '/number_of_executed_units|average_exec_per_sec/ { printf "%s %s  ", $1, $2 }' "$out/logs/$1.log")"
}

fuzz plan 8192 & plan=$!
failed=0
fuzz manifest 2048 || failed=1
fuzz safetensors_header 2048 || failed=1
fuzz options 1024 || failed=1
wait $plan || failed=1
exit $failed
