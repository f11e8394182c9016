#!/usr/bin/env bash
# freethreaded.sh: the core's tests and the stress of threads on a CPython 3.13 without the GIL.
#
# Debian has no such package: the first run builds one from the source package of 3.13, at -O1, which takes ten
# minutes on two cores. It is kept, and a build that was interrupted goes on. QUICK=1 leaves out what takes minutes.
source "$(dirname "$0")/common.sh"
need gcc:gcc make:make dpkg-dev:dpkg-source xz-utils:xz
keep freethreaded
cd "$work"
if [ ! -x python/bin/python3.13t ]; then
    echo "building CPython 3.13t"
    if ! compgen -G 'Python-3.13.*/configure' >/dev/null; then
        private_apt "$work" deb-src trixie "$(dpkg --print-architecture)"
        APT_CONFIG=$work/apt/conf apt-get source -qq --download-only python3.13 ||
            skip "the source package of python3.13 cannot be had"
        tar xf python3.13_*.orig.tar.xz
    fi
    mkdir -p build
    cd build
    if [ ! -e Makefile ]; then
        ../Python-3.13.*/configure -q --prefix="$work/python" --disable-gil --disable-test-modules
        printf '%s\n' '*disabled*' _decimal _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw \
            _tkinter _curses _curses_panel _dbm _gdbm >Modules/Setup.local
    fi
    nice -n 10 make -s -j2 EXTRA_CFLAGS="-O1 -g0" >"$work/make.log" 2>&1 || { tail "$work/make.log"; exit 1; }
    nice -n 10 make -s altinstall EXTRA_CFLAGS="-O1 -g0" >>"$work/make.log" 2>&1 || { tail "$work/make.log"; exit 1; }
    cd ..
fi
if [ ! -e venv/.made ]; then
    python/bin/python3.13t -m venv --clear venv
    # The newest numpy with a wheel for 3.13t, and what the tests of the core import.
    venv/bin/python -m pip install -q --only-binary numpy "numpy<2.5" "pytest>=9" "hypothesis>=6.150" sortedcontainers \
        xxhash "cython>=3.1" "setuptools>=77.0.3"
    touch venv/.made
fi
copy_source "$work/source"
venv/bin/python -m pip install -q --no-deps --no-build-isolation "$work/source"
# The import of ringhash must not turn the GIL on.
env -u PYTHON_GIL venv/bin/python -W error -c 'import sys, ringhash; assert not sys._is_gil_enabled()'
export PYTHON_GIL=0
cd source
rm -rf src # the installed core counts
run() { nice -n 5 timeout 600 "$work/venv/bin/python" "$@"; }
if [ -n "${QUICK:-}" ]; then
    run tests/stress_threads.py --seconds 3
    run -m pytest -q -p no:cacheprovider tests/test_threads.py tests/test_snapshot.py tests/test_vectors.py
else
    run tests/stress_threads.py --seconds 20 --threads 8
    # shellcheck disable=SC2046
    run -m pytest -q -p no:cacheprovider -m core $(core_tests tests)
fi
