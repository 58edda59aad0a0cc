#!/usr/bin/env bash
# Everything about the CUDA backend that needs a GPU, in one go, from any directory:
#
#     tests/gpu/on_device.sh [STEP ...]     steps: build test compare sanitize bench (default: all)
#
#   build     kvant with KVANT_CUDA=ON for this machine's GPU, in build/on_device
#   test      the tests of kernels and of the backend, which the emulator runs elsewhere, with more
#             random cases and large sizes
#   compare   golden hashes (SHA-256 of codes, scales and values, to be compared between GPUs) and
#             sweeps of configs/, each beside the CPU's
#   sanitize  the tests of kernels under compute-sanitizer
#   bench     times, FLOP/s, bytes/s, kernel by kernel; and PyTorch's time for the same sweep
#
# What cannot run says why. Exit code: 1 where anything failed, 77 where nothing failed but there is
# no GPU, else 0. KVANT_CUDA_MODULE names a module to use instead of the one that is built; with an
# emulated one (libkvant_cuda_90.so) all runs at small sizes without a GPU, which tries this script.
# KVANT_PYTHON names a Python with PyTorch.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
build=$root/build/on_device
programs=$build/tests
kvant=$build/kvant
results=$build/results
steps=("$@")
[ "$#" -gt 0 ] || steps=(build test compare sanitize bench)
failed=() skipped=() passed=0

note() { printf '   %s\n' "$*"; }
skip() { note "skipped: $*" && skipped+=("$1"); }

# try WHAT COMMAND ...: runs it, and counts how it ended; 77 is a skip that gave its reason.
try() {
    local what=$1 status=0
    shift
    printf -- '-- %s\n' "$what"
    "$@" || status=$?
    case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped+=("$what") ;;
    *) failed+=("$what") && note "FAILED: $what: exit code $status" ;;
    esac
}

# ---- the machine ----

module=${KVANT_CUDA_MODULE:-$build/libkvant_cuda.so}
capability=
if command -v nvidia-smi >/dev/null 2>&1; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 || true)
fi
case $capability in
[0-9]*.[0-9]*) architecture=${capability/./} ;;
*) capability='' architecture=90 ;;
esac
is_tiny=false
if [ -n "${KVANT_CUDA_MODULE:-}" ] && grep -q gpu_set_seed "$module"; then is_tiny=true; fi

has_device() { $is_tiny || [ -n "$capability" ]; }

describe() {
    note "kvant $(git describe --always --dirty 2>/dev/null || echo '(no git)'), $(uname -srm), $(nproc) processors"
    if [ -n "$capability" ]; then
        nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    elif $is_tiny; then
        note "emulated module $module: small sizes"
    else
        note "no GPU: nvidia-smi is missing or finds none; builds for sm_$architecture, runs nothing on a device"
    fi
}

# ---- steps ----

build_all() {
    local targets=(on_device)
    [ -n "${KVANT_CUDA_MODULE:-}" ] || targets+=(kvant_cuda)
    if $is_tiny; then
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVANT_CUDA=OFF >/dev/null
    else
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVANT_CUDA=ON \
            -DKVANT_CUDA_ARCHITECTURES="$architecture" >/dev/null
    fi || return 1
    cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}"
}

step_build() { try "build for sm_$architecture" build_all; }

tests() { find "$programs" -maxdepth 1 -type f -name 'device_*' "$@" | sort; }

step_test() {
    local test times=20
    if $is_tiny; then times=1; fi
    for test in $(tests); do
        try "$(basename "$test")" timeout 1200 "$test" "$module" "$times"
    done
}

# compare_sweep NAME [KEY=VALUE ...]: a configuration on both backends.
compare_sweep() {
    local name=$1 backend sets=()
    shift
    for backend in "$@"; do sets+=(--set "$backend"); done
    mkdir -p "$results"
    for backend in cpu cuda; do
        rm -f "$results/$name.$backend.h5"
        "$kvant" sweep "configs/sweeps/$name.yaml" "${sets[@]}" -q -b "$backend" \
            -o "$results/$name.$backend.h5" || return 1
    done
    python3 tests/gpu/same_results.py "$kvant" "$results/$name.cpu.h5" "$results/$name.cuda.h5"
}

step_compare() {
    export KVANT_CUDA_MODULE=$module
    if $is_tiny; then
        try "golden hashes" "$programs/golden_cuda" 20 2
        try "sweep asymmetry" compare_sweep asymmetry heads.tokens=32
        try "sweep pair-matrix" compare_sweep pair-matrix heads.tokens=32 heads.queries=1 heads.seeds=1
        return
    fi
    try "golden hashes" "$programs/golden_cuda"
    try "sweep asymmetry" compare_sweep asymmetry
    try "sweep pair-matrix" compare_sweep pair-matrix
    try "sweep presets" compare_sweep presets heads.seeds=4
    try "sweep needle" compare_sweep needle heads.seeds=4
    try "sweep fp8" compare_sweep fp8 heads.seeds=4
    try "sweep rope-position" compare_sweep rope-position heads.seeds=4
    try "sweep length" compare_sweep length heads.seeds=2
    try "sweep stack-growth" compare_sweep stack-growth heads.seeds=2
}

find_sanitizer() {
    command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null
}

step_sanitize() {
    local sanitizer tool test
    if $is_tiny; then
        skip "compute-sanitizer: an emulated module has no code for it to watch"
        return
    fi
    if ! sanitizer=$(find_sanitizer); then
        skip "compute-sanitizer is not installed (it comes with the CUDA toolkit)"
        return
    fi
    for tool in memcheck racecheck initcheck synccheck; do
        for test in $(tests ! -name 'device_backend*'); do
            try "$tool $(basename "$test")" timeout 1800 "$sanitizer" --tool "$tool" --error-exitcode 99 \
                --report-api-errors no --print-limit 20 "$test" "$module"
        done
    done
}

# The first Python that has PyTorch, or any.
find_python() {
    local python
    for python in "${KVANT_PYTHON:-}" .venv/bin/python python3; do
        if [ -n "$python" ] && "$python" -c 'import torch' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo python3
}

step_bench() {
    local tokens bench=("$programs/bench_cuda" "$programs/libkvant_watch.so" "$module")
    if $is_tiny; then
        try "benchmark, 8 tokens" "${bench[@]}" 8 1 2
        skip "PyTorch: there is no GPU to compare on"
        return
    fi
    for tokens in 8192 131072; do
        try "benchmark, $tokens tokens" "${bench[@]}" "$tokens" 7
        try "PyTorch, $tokens tokens" "$(find_python)" tests/bench/cuda_sweep.py --bench "${bench[0]}" \
            --watch "${bench[1]}" --module "${bench[2]}" --tokens "$tokens"
    done
}

# ---- all ----

describe
for step in "${steps[@]}"; do
    case $step in
    build | test | compare | sanitize | bench) ;;
    *) echo "on_device.sh: no step $step; there are: build test compare sanitize bench" >&2 && exit 2 ;;
    esac
done
for step in "${steps[@]}"; do
    printf '== %s\n' "$step"
    if [ "$step" = build ]; then
        step_build
    elif ! has_device; then
        skip "$step: no GPU"
    elif [ ! -x "$kvant" ] || [ ! -e "$module" ]; then
        failed+=("$step") && note "FAILED: $step: $kvant or $module is not built"
    else
        "step_$step"
    fi
done
printf '== %d passed, %d failed, %d skipped\n' "$passed" "${#failed[@]}" "${#skipped[@]}"
for what in "${failed[@]}"; do note "failed: $what"; done
for what in "${skipped[@]}"; do note "skipped: $what"; done
[ "${#failed[@]}" -eq 0 ] || exit 1
has_device || exit 77
