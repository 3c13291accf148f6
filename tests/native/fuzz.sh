#!/bin/sh
# Fuzzes the parser of plans for some seconds (60): by libFuzzer where clang has it, else by our own
# driver. Exits with 1, and leaves the input behind, if one does harm.
#
#   tests/native/fuzz.sh [SECONDS]
set -eu
seconds=${1:-60}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=c11 -D_GNU_SOURCE -pthread -g -O2 -I$root/loaders/engine/src"
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
(cd "$root" && "$python" -m tests.native.seeds "$work/corpus")

for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
    # shellcheck disable=SC2086
    if command -v "$clang" >/dev/null && "$clang" $flags -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=all -o "$work/fuzz" "$here/fuzz_plan.c" "$root"/loaders/engine/src/*.c 2>"$work/log"
    then
        echo "libFuzzer of $clang, $seconds s"
        "$work/fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 \
            "$work/corpus" && exit 0
        exit 1
    fi
done

# shellcheck disable=SC2086
${CC:-cc} $flags -fsanitize=address,undefined -fno-sanitize-recover=all -o "$work/fuzz" \
    "$here/fuzz_main.c" "$here/fuzz_plan.c" "$root"/loaders/engine/src/*.c
echo "no clang with libFuzzer: our own driver, $seconds s"
runs=1000000
end=$(($(date +%s) + seconds))
while [ "$(date +%s)" -lt "$end" ]; do
    "$work/fuzz" "$runs" "$work"/corpus/*.plan
    runs=$((runs + 1000000))
done
