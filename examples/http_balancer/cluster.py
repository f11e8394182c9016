"""Starts a balancer and its backends as processes of their own, on free ports of 127.0.0.1."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


class Cluster:
    """`backends` has the process of each backend by its host:port; `url` and `admin` are the balancer's."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.backends: dict[str, subprocess.Popen[str]] = {}
        self.url = self.admin = ""

    def start(self, program: str, *arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
        """Start a program that prints its ports when it is ready."""
        command = [sys.executable, str(HERE / program), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        ports = list(map(int, process.stdout.readline().split()))
        if not ports:
            raise RuntimeError(f"{program} did not start")
        return process, ports

    def start_backend(self, port: int = 0, work: float = 0.0, gate: bool = False) -> str:
        arguments = ["--port", str(port), "--work", str(work), *["--gate"] * gate]
        process, (port,) = self.start("backend.py", *arguments)
        name = f"127.0.0.1:{port}"
        self.backends[name] = process
        return name

    def kill_backend(self, name: str) -> None:
        """SIGKILL: it says no goodbye."""
        self.backends[name].kill()
        self.backends[name].wait()

    def restart_backend(self, name: str) -> None:
        self.start_backend(int(name.rpartition(":")[2]))

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def running(backends: int = 5, work: float = 0.0, gate: bool = False, **options: float) -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        names = [cluster.start_backend(work=work, gate=gate) for _ in range(backends)]
        arguments = [f"--backend={name}" for name in names]
        arguments += [f"--{name}={value}" for name, value in options.items()]
        _, (port, admin) = cluster.start("balancer.py", "--port=0", "--admin-port=0", *arguments)
        cluster.url, cluster.admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"
        yield cluster
    finally:
        cluster.stop()
