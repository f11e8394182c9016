#!/usr/bin/env bash
# foreign.sh s390x|arm64: build the core for another machine, and test it there under qemu-user.
# foreign.sh armhf|i386: see that a machine of 32 bits is refused, by setup.py and by the compiler.
#
# Debian's packages of that machine are unpacked (not installed) into a folder, the core is cross-compiled, and
# Python runs in a chroot. It needs root. QUICK=1 leaves out what takes minutes.
source "$(dirname "$0")/common.sh"
arch=${1:?which machine: s390x, arm64, armhf or i386}
case $arch in
    s390x) triple=s390x-linux-gnu qemu=qemu-s390x-static cell=portable ;;
    arm64)
        triple=aarch64-linux-gnu qemu=qemu-aarch64-static cell=neon
        export QEMU_CPU=cortex-a72 # by default pointer authentication is emulated: ten times slower
        ;;
    armhf) triple=arm-linux-gnueabihf qemu=qemu-arm-static cell=refused ;;
    i386) triple=i686-linux-gnu qemu="" cell=refused ;;
    *) skip "no way to test $arch is known" ;;
esac
[ "$(id -u)" = 0 ] || skip "unpacking a foreign Debian and chroot need root"
cross=gcc-$triple
need ${qemu:+qemu-user-static:$qemu} "$cross:$triple-gcc" "libc6-dev-$arch-cross:/usr/$triple/include/stdlib.h"
keep "$arch"
root=$work/root
unshare -m true 2>/dev/null || skip "this machine allows no mounts (unshare -m)"

if [ ! -e "$root/.made" ]; then
    echo "unpacking Debian's packages for $arch"
    private_apt "$work" deb bookworm "$arch"
    APT_CONFIG=$work/apt/conf apt-get install -qq -y --download-only --no-install-recommends \
        libc6 bash coreutils python3.11 libpython3.11-dev python3-numpy ||
        skip "the packages of Python for $arch cannot be had"
    rm -rf "$root"
    mkdir -p "$root"/{proc,dev,tmp}
    for link in bin sbin lib; do
        mkdir -p "$root/usr/$link"
        ln -s "usr/$link" "$root/$link"
    done
    for deb in "$work"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"
    done
    rm -f "$work"/apt/cache/archives/*.deb
    if [ -n "$qemu" ]; then cp "$(command -v "$qemu")" "$root/usr/bin/$qemu"; fi
    touch "$root/.made"
fi
python=$(host_python)
pure_wheels "$root/opt/pure"
if [ "$cell" != refused ] && [ ! -e "$root/opt/pure/xxhash" ]; then
    "$python" -m pip download -q --no-deps --only-binary :all: --python-version 3.11 -d "$work/wheels" xxhash \
        --platform "manylinux2014_${triple%%-*}" --platform "manylinux_2_17_${triple%%-*}" ||
        skip "the tests compare with xxhash, which cannot be had for $arch"
    "$python" -m zipfile -e "$work"/wheels/xxhash-*.whl "$root/opt/pure"
fi
copy_source "$root/opt/ringhash"

# there COMMAND...: run a program of that machine in the source folder. By Python, as chroot has no working folder.
there() {
    env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 OPENBLAS_NUM_THREADS=1 ${QEMU_CPU:+QEMU_CPU=$QEMU_CPU} \
        LD_LIBRARY_PATH="/usr/lib/$triple/blas:/usr/lib/$triple/lapack" \
        PYTHONPATH=/opt/ringhash/src:/opt/pure RINGHASH_PORTABLE_CORE=/opt/portable \
        unshare -m bash -c 'mount -t proc proc "$1/proc"; mount --bind /dev "$1/dev"
            exec "$2" -c "import os, sys
os.chroot(sys.argv[1])
os.chdir(\"/opt/ringhash\")
os.execv(sys.argv[2], sys.argv[2:])" "$1" "${@:3}"' there "$root" "$python" "$@"
}

if [ "$cell" = refused ]; then
    if said=$(there ${qemu:+/usr/bin/$qemu} /usr/bin/python3.11 setup.py --version 2>&1); then
        echo "setup.py takes a Python of 32 bits"
        exit 1
    fi
    grep -F "ringhash needs a 64-bit Python" <<<"$said" || { echo "$said"; exit 1; }
fi

# setup.py writes the C when it is read, with the directives that it is built with.
cd "$root/opt/ringhash"
"$python" setup.py --version >/dev/null
compile() { # FOLDER FLAGS...: every module, into that folder
    local folder=$1 file module
    shift
    find build/src -name '*.c' | while read -r file; do
        module=${file#build/src/}
        mkdir -p "$(dirname "$folder/$module")"
        nice -n 5 "$triple-gcc" -shared -fPIC -O3 -g0 -DNDEBUG -fwrapv "$@" -I"$root/usr/include/python3.11" \
            -idirafter "$root/usr/include" -o "$folder/${module%.c}.cpython-311-${triple/i686/i386}.so" "$file" || exit 1
    done
}
if [ "$cell" = refused ]; then
    if said=$(compile "$work/refused" 2>&1); then
        echo "the core compiles for 32 bits"
        exit 1
    fi
    grep -m1 -oF "ringhash needs a 64-bit machine" <<<"$said" || { echo "$said" | tail; exit 1; }
    echo "$arch: refused, as it should be"
    exit 0
fi
compile src
compile "$root/opt/portable" -DRINGHASH_PORTABLE
said=$(there "/usr/bin/$qemu" /usr/bin/python3.11 -c 'import sys; from ringhash import _core; print(_core.CELL_CODE, sys.byteorder)')
echo "$arch: $said endian"
[ "${said% *}" = "$cell" ] || { echo "the cell should be compared by the code for $cell"; exit 1; }
if [ -n "${QUICK:-}" ]; then
    tests="tests/test_vectors.py tests/test_portable.py tests/test_xxh3.py tests/test_interop_vectors.py"
else
    tests="tests/test_vectors.py tests/test_interop_vectors.py $(core_tests tests | tr '\n' ' ')"
fi
# What starts another Python would start one of this machine.
# shellcheck disable=SC2086
there "/usr/bin/$qemu" /usr/bin/python3.11 -m pytest -q -p no:cacheprovider -m "not slow" \
    --hypothesis-profile=few -k "not does_not_crash_or_hang and not spawned and not stress" $tests
