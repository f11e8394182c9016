"""A wire between clients and PostgreSQL that can break at the worst moment: after the commit, before its answer."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from pathlib import Path

_COMMIT = b"COMMIT\0"


class Proxy:
    """Listens on a socket like PostgreSQL's in `folder`, and passes everything on to the one in `server`.

    Of the commits it cuts off `commits`, of all other messages `others` (parts of one): the message goes through,
    the server answers, and then the client finds a dead connection in place of the answer.
    """

    def __init__(self, server: Path, folder: Path, commits: float, others: float, seed: int) -> None:
        self._server = server / ".s.PGSQL.5432"
        self._rates = (commits, others)
        self._random = random.Random(seed)
        self.cut_commits = self.cut_others = 0
        self.active = True
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(200)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server))
            except OSError:
                client.close()
                server.close()
                continue
            cutting = threading.Event()
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=pump, args=(client, server, cutting), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, cutting: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                commit = data.endswith(_COMMIT)
                if self.active and self._random.random() < self._rates[0 if commit else 1]:
                    self.cut_commits += commit
                    self.cut_others += not commit
                    cutting.set()
                server.sendall(data)
        shut(server, client)

    def _to_client(self, client: socket.socket, server: socket.socket, cutting: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if cutting.is_set():
                    break  # the server has answered, so it has done it
                client.sendall(data)
        shut(client, server)
        client.close()
        server.close()


def shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
