#!/usr/bin/env bash
# Checks before a build that Python, Rust and a linker are there. Reports on standard error what is missing and how
# to install it. Prints only the path of the Python to use on standard output.
#
# PYTHON=/path/to/python chooses one; otherwise it is python3 if that is new enough, else the newest of 3.11 to 3.14.
set -euo pipefail

readonly OLDEST_PYTHON=3.11 OLDEST_RUST=1.90

say() { printf '%s\n' "$*" >&2; }

die() {
    say "hbroker: $1"
    say "         $2"
    exit 1
}

at_least() { # at_least OLDEST ACTUAL
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# Runs it, because a name on PATH may be a shim without a Python behind it.
python_is_usable() {
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    at_least "$OLDEST_PYTHON" "$version"
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if python_is_usable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python $OLDEST_PYTHON or later answers (tried: ${PYTHON:-python3, python3.11 to python3.14})" \
        "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python"
}

check_rust() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || true
    [ -n "$version" ] ||
        die "cargo is missing: the native core is written in Rust" "Install it from https://rustup.rs"
    at_least "$OLDEST_RUST" "$version" ||
        die "cargo $version is too old: $OLDEST_RUST or later is needed" "rustup update stable"
    command -v cc >/dev/null ||
        die "no C linker (cc) was found: Rust needs one" "Debian, Ubuntu: apt install gcc libc6-dev"
}

python=$(find_python)
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python cannot make virtual environments" "Debian, Ubuntu: apt install python3-venv"
check_rust
command -v java >/dev/null ||
    say "hbroker: java is missing; only the load analysis on Spark needs it (Debian, Ubuntu: apt install default-jre-headless)"
printf '%s\n' "$python"
