#!/bin/sh
# Fuzzes the parser of plans, and that of Criteo's rows, for some seconds (60) together: by libFuzzer
# where clang has it, else by our own driver. Exits with 1, and leaves the input behind, if one does
# harm.
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

fuzz() { # NAME SECONDS
    for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
        # shellcheck disable=SC2086
        if command -v "$clang" >/dev/null && "$clang" $flags -fsanitize=fuzzer,address,undefined \
            -fno-sanitize-recover=all -o "$work/fuzz" "$here/fuzz_$1.c" \
            "$root"/loaders/engine/src/*.c 2>"$work/log"
        then
            echo "$1: libFuzzer of $clang, $2 s"
            "$work/fuzz" -max_total_time="$2" -max_len=4096 -timeout=10 -print_final_stats=1 \
                "$work/corpus/$1"
            return
        fi
    done
    # shellcheck disable=SC2086
    ${CC:-cc} $flags -fsanitize=address,undefined -fno-sanitize-recover=all -o "$work/fuzz" \
        "$here/fuzz_main.c" "$here/fuzz_$1.c" "$root"/loaders/engine/src/*.c
    echo "$1: no clang with libFuzzer: our own driver, $2 s"
    runs=100000
    end=$(($(date +%s) + $2))
    while [ "$(date +%s)" -lt "$end" ]; do
        "$work/fuzz" "$runs" "$work/corpus/$1"/*
        runs=$((runs + 100000))
    done
}

fuzz plan "$((seconds / 2))"
fuzz rows "$((seconds / 2))"
