"""check_dists.py FILE...: do the wheels and the sdist hold what they should, and nothing else?"""

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

SOURCES = (".pyx", ".pxd", ".pxi", ".c", ".h", ".html")


def check_wheel(path: Path) -> list[str]:
    """The package, its compiled core and its types: no sources of the core, no tests, one requirement."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata_name = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(metadata_name).decode())
    faults = [f"holds {name}" for name in names if name.endswith(SOURCES)]
    faults += [
        f"holds {name}"
        for name in names
        if not re.match(r"ringhash/|ringhash-[^/]+\.dist-info/|ringhash\.libs/", name)
    ]
    faults += [
        f"lacks {name}"
        for name in ("ringhash/__init__.py", "ringhash/py.typed", "ringhash/_core.pyi")
        if name not in names
    ]
    cores = [name for name in names if re.fullmatch(r"ringhash/_core\.[^/]*(so|pyd)", name)]
    if len(cores) != 1:
        faults.append(f"has {len(cores)} compiled cores")
    needs = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    if [re.match(r"[\w-]+", line).group() for line in needs] != ["numpy"]:
        faults.append(f"requires {needs}")
    return faults


def check_sdist(path: Path) -> list[str]:
    """What a packager needs to build and test; no data of the examples, nothing generated."""
    with tarfile.open(path) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    faults = [
        f"holds {name}"
        for name in names
        if name.startswith(("examples/data", "build/"))
        or name.endswith((".so", ".pyc"))
        or (name.startswith("src/") and name.endswith(".c"))  # what Cython generates
    ]
    wanted = [
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "setup.py",
        "src/ringhash/_core.pyi",
        "src/ringhash/_core.pyx",
        "src/ringhash/py.typed",
    ]
    faults += [f"lacks {name}" for name in wanted if name not in names]
    faults += [
        f"has nothing like {pattern}"
        for pattern in (r"src/ringhash/.*\.px[di]", r"tests/test_.*\.py", r"docs/.*\.md")
        if not any(re.fullmatch(pattern, name) for name in names)
    ]
    return faults


def main(paths: list[str]) -> int:
    failed = False
    for path in map(Path, paths):
        faults = check_wheel(path) if path.suffix == ".whl" else check_sdist(path)
        failed |= bool(faults)
        print(f"{path.name}: {'; '.join(faults) or 'ok'}")
    return int(failed or not paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
