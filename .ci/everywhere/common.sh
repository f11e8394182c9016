# Sourced by the scripts beside it: where downloads and builds are kept, and how Debian's packages are had.
#
# A script ends with 77 if what it needs cannot be had here, after a line that says what.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${RINGHASH_EVERYWHERE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringhash-everywhere}
mkdir -p "$cache"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 DEBIAN_FRONTEND=noninteractive

skip() {
    echo "skipped: $*"
    exit 77
}

# keep NAME: the folder of that name in the cache, which no other run uses meanwhile.
keep() {
    work=$cache/$1
    mkdir -p "$work"
    exec 9>"$work.lock"
    flock -n 9 || skip "another run uses $work"
}

# need PACKAGE:COMMAND ...: have these commands (or files, by their whole path), or install their packages.
need() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair#*:}" >/dev/null || [ -e "${pair#*:}" ] || missing+=("${pair%%:*}")
    done
    if [ ${#missing[@]} = 0 ]; then return; fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then skip "install ${missing[*]}"; fi
    echo "installing: ${missing[*]}"
    apt-get update -qq || true
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || skip "cannot install ${missing[*]}"
}

# The mirror of Debian that this machine is set up to use.
mirror() {
    local found
    found=$(grep -rhE '^(URIs:|deb )' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
        grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n1 | tr -d ' ') || true
    [ -n "$found" ] || skip "no mirror of Debian in the configuration of apt"
    echo "$found"
}

# private_apt FOLDER KIND SUITE ARCH: let apt-get look only there (KIND: deb or deb-src), and touch nothing of
# this machine.
private_apt() {
    local apt=$1/apt kind=$2 suite=$3 arch=$4 keyring=/usr/share/keyrings/debian-archive-keyring.gpg from
    [ -e "$keyring" ] || skip "no $keyring: install debian-archive-keyring"
    from=$(mirror) || { echo "$from"; exit 77; }
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,none}
    : >"$apt/status"
    echo "$kind [arch=$arch signed-by=$keyring] $from $suite main" >"$apt/sources.list"
    cat >"$apt/conf" <<CONF
APT::Architecture "$arch"; APT::Architectures { "$arch"; };
Dir::State::lists "$apt/lists"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "$apt/none";
Dir::Etc::preferencesparts "$apt/none"; APT::Sandbox::User "root"; Acquire::Check-Valid-Until "false";
CONF
    APT_CONFIG=$apt/conf apt-get update -qq || skip "the packages of Debian $suite for $arch cannot be had"
}

# copy_source FOLDER: what the project builds and tests, without anything built.
copy_source() {
    rm -rf "$1"
    mkdir -p "$1"
    tar -C "$project" -c --exclude='*.so' --exclude=__pycache__ --exclude='*.egg-info' \
        src tests docs examples benchmarks setup.py pyproject.toml README.md LICENSE CHANGELOG.md MANIFEST.in | tar -C "$1" -x
}

# host_python: a Python of this machine with Cython and setuptools, to write C with.
host_python() {
    if [ ! -e "$cache/host/.made" ]; then
        "${PYTHON:-python3}" -m venv --clear "$cache/host"
        "$cache/host/bin/python" -m pip install -q "cython>=3.1" "setuptools>=77.0.3"
        touch "$cache/host/.made"
    fi
    echo "$cache/host/bin/python"
}

# pure_wheels FOLDER: what the tests need that is Python alone, unpacked.
pure_wheels() {
    local wheel
    [ -e "$1/.made" ] && return
    mkdir -p "$1"
    "$(host_python)" -m pip download -q --no-deps -d "$cache/wheels" "pytest>=9" "hypothesis>=6.150,<6.151" \
        sortedcontainers iniconfig pluggy pygments packaging "cython>=3.1" "setuptools>=77.0.3" \
        --only-binary :all: --platform any
    for wheel in "$cache"/wheels/*-none-any.whl; do python3 -m zipfile -e "$wheel" "$1"; done
    touch "$1/.made"
}

# core_tests FOLDER: the files of tests there that have a part which is marked `core`.
core_tests() {
    grep -lE 'pytestmark = .*mark\.core|mark\.core$' "$1"/test_*.py
}
