"""The compiled modules: the core, and the tables of interop and range maps. All else is in pyproject.toml."""

import os
import sys
from pathlib import Path
from typing import ClassVar

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# RINGHASH_SANITIZE=address builds the core for AddressSanitizer: see `make asan`.
SANITIZE = os.environ.get("RINGHASH_SANITIZE", "")
SANITIZE_FLAGS = [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g"] if SANITIZE else []

# RINGHASH_PORTABLE=1 builds it as machines without SSE2 and NEON have it: see `make portable`.
PORTABLE = os.environ.get("RINGHASH_PORTABLE", "") not in {"", "0"}
# RINGHASH_CORE_ALONE=1 builds the core and nothing else, quickly: a test compares it with the one in use.
ALONE = os.environ.get("RINGHASH_CORE_ALONE", "") not in {"", "0"}
OPTIMIZE = "-O1" if ALONE else "-O3"
KIND = "-".join(filter(None, [SANITIZE, "portable" * PORTABLE, "alone" * ALONE]))

if sys.maxsize < 2**32:
    raise SystemExit("ringhash needs a 64-bit Python: sizes and sums of a ring do not fit into 32 bits.")


class BuildCore(build_ext):
    """Chooses the flags once the compiler is known. Nothing machine-specific: a wheel runs everywhere."""

    compile_args: ClassVar = {"msvc": ["/O2"]}

    def build_extensions(self):
        # The folder of a build is another each time; without it two builds are one file.
        unix = [OPTIMIZE, *SANITIZE_FLAGS, f"-ffile-prefix-map={Path.cwd()}=."]
        for extension in self.extensions:
            extension.extra_compile_args = self.compile_args.get(self.compiler.compiler_type, unix)
            extension.extra_link_args = SANITIZE_FLAGS
        super().build_extensions()


core = Extension(
    "ringhash._core",
    ["src/ringhash/_core.pyx"],
    depends=[path.as_posix() for path in sorted(Path("src/ringhash").glob("*.px[di]"))],
    define_macros=[("RINGHASH_PORTABLE", "1")] if PORTABLE else [],
)

table = Extension(
    "ringhash.interop._table",
    ["src/ringhash/interop/_table.pyx"],
    depends=["src/ringhash/interop/_hashes.pxd"],
)

ordered = Extension(
    "ringhash._ordered",
    ["src/ringhash/_ordered.pyx"],
    depends=[path.as_posix() for path in sorted(Path("src/ringhash").glob("*.px[di]"))],
)

setup(
    ext_modules=cythonize(
        [core] if ALONE else [core, table, ordered],
        build_dir="build",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": False,
            "freethreading_compatible": True,
        },
    ),
    cmdclass={"build_ext": BuildCore},
    # Objects of one kind and another must never be mixed.
    options={"build": {"build_base": f"build/{KIND}"}} if KIND else {},
)
