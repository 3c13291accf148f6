#!/bin/sh
# Find a Python that can make the environment, check what else set-up needs, and run it.
#
#   tools/setup.sh [PYTHON]
#
# Without PYTHON an environment that works keeps the Python it was made with; otherwise the first of
# python3, python3.14 ... python3.11 that is new enough is taken. What is missing is named with the
# command that installs it. The shell does this part because no Python may be there yet.
set -eu
cd "$(dirname "$0")/.."
asked=${1:-}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "$asked" ]; then
        is_new_enough "$asked" && echo "$asked"
        return
    fi
    for name in .venv/bin/python python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$name"; then
            # Not that of an environment: its packages would be taken for the system's.
            "$name" -c 'import sys; print(sys._base_executable)'
            return
        fi
    done
}

find_compiler() {
    for name in "${CC:-cc}" gcc clang; do
        if command -v "$name" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
}

# install_command APT DNF PACMAN ZYPPER APK: the command of the package manager that is here.
install_command() {
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root="sudo "
    if command -v apt-get >/dev/null 2>&1; then
        echo "${as_root}apt-get install $1"
    elif command -v dnf >/dev/null 2>&1; then
        echo "${as_root}dnf install $2"
    elif command -v pacman >/dev/null 2>&1; then
        echo "${as_root}pacman -S $3"
    elif command -v zypper >/dev/null 2>&1; then
        echo "${as_root}zypper install $4"
    elif command -v apk >/dev/null 2>&1; then
        echo "${as_root}apk add $5"
    else
        echo "your package manager, package $1"
    fi
}

missing=0
# lacks WHAT COMMAND
lacks() {
    echo "set-up needs $1. Install it with: $2" >&2
    missing=1
}

python=$(find_python) || python=
if [ -z "$python" ]; then
    found=$("${asked:-python3}" --version 2>/dev/null) || found="no ${asked:-python3}"
    lacks "Python 3.11 or newer, got $found" \
        "$(install_command "python3 python3-venv" python3.11 python python311 python3)"
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    lacks "the venv module with ensurepip of $python" \
        "$(install_command python3-venv python3-pip python python311 py3-pip)"
fi
if [ -z "$(find_compiler)" ]; then
    lacks "a C compiler (none of \$CC, cc, gcc, clang was found)" \
        "$(install_command gcc gcc gcc gcc "gcc musl-dev")"
fi
[ "$missing" -eq 0 ] || exit 1

exec "$python" tools/environment.py
