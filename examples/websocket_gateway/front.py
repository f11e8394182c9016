"""The front: knows the router, tells clients where to go, and carries plans out on the gateways.

    python front.py HTTP_PORT CONTROL_PORT NODE,NODE,... [JOURNAL]

    GET  /route/SESSION    where a session goes
    GET  /router           the router, for Router.from_dict
    GET  /status           how far the handover is
    GET  /stats            what every gateway has counted
    POST /plan             carry a plan out: ringhash apply plan.json --router http://127.0.0.1:PORT
    POST /abort, /resume

A gateway that dies is taken out once the guard agrees; its sessions go to the next node of their walk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from ringhash import Handover, Plan, RinghashError, Router
from ringhash.errors import GuardError
from ringhash.handover import Guard, Piece

BATCH, EVERY = 20, 0.2  # the set rate: 100 sessions a second
GRACE = 0.5


@dataclass
class Peer:
    """A gateway, as the front sees it."""

    socket: ServerConnection
    port: int
    asked: int = 0
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def ask(self, what: str, data: Any) -> Any:
        self.asked += 1
        number = self.asked
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self.socket.send(json.dumps([number, what, data]))
            return await future
        finally:
            self.waiting.pop(number, None)


class Front:
    def __init__(self, nodes: list[str], journal: str | None) -> None:
        self.router = Router(nodes)
        self.journal = journal
        self.peers: dict[str, Peer] = {}
        self.handover: Handover | None = None
        self.running: asyncio.Task[Any] | None = None
        self.states: dict[int, Any] = {}
        self.guard = Guard(max_fraction=0.5, min_alive=0.5, cooldown=0, grace=GRACE)
        self.tasks: set[asyncio.Task[Any]] = set()

    # --- gateways ---

    async def control(self, socket: ServerConnection) -> None:
        hello = json.loads(await socket.recv())
        name, peer = hello["name"], Peer(socket, hello["port"])
        self.peers[name] = peer
        self.guard.back(name)
        self.spawn(peer.ask("router", self.router.to_dict()))
        with contextlib.suppress(ConnectionClosed):
            async for message in socket:
                reply = json.loads(message)
                future = peer.waiting.get(reply["id"])
                if future is not None and not future.done():
                    if "error" in reply:
                        future.set_exception(RuntimeError(reply["error"]))
                    else:
                        future.set_result(reply["ok"])
        for future in peer.waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(f"{name} is gone"))
        if self.peers.get(name) is peer:
            del self.peers[name]
            self.guard.gone(name)
            self.spawn(self.take_out(name))

    async def take_out(self, name: str) -> None:
        """The process of a gateway has ended, and its connections with it: nothing is served there."""
        if self.handover is not None and not self.handover.status().over:
            self.handover.lost(name)
            return
        for _ in range(100):
            await asyncio.sleep(GRACE / 5)
            if name in self.peers or name not in self.router:
                return
            with contextlib.suppress(GuardError):
                self.guard.apply(self.router, self.router.plan(remove=[name]))
                await self.tell()
                return

    async def tell(self) -> None:
        """Send the router to all gateways."""
        data = self.router.to_dict()
        await asyncio.gather(
            *(peer.ask("router", data) for peer in list(self.peers.values())), return_exceptions=True
        )

    def spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- the handover ---

    def begin(self, plan: Plan) -> str:
        if self.running is not None and not self.running.done():
            raise RinghashError("a handover is running; wait for its end, or abort it")
        missing = [c.after.name for c in plan.changes.nodes if c.after and c.after.name not in self.peers]
        if missing:
            raise RinghashError(f"{', '.join(missing)} is not there yet: start it first")
        self.handover = Handover(
            self.router, plan, self, max_share=0.01, pause=EVERY, journal=self.journal,
            on_epoch=self.on_epoch,
        )  # fmt: skip
        self.run()
        return f"{plan.fraction:.2%} of all keys will move, in {len(self.handover.pieces)} pieces"

    def run(self) -> None:
        assert self.handover is not None
        self.running = asyncio.ensure_future(self.handover.arun())

    def on_epoch(self, _document: Any) -> None:
        self.spawn(self.tell())

    # What a handover asks of its mover:

    async def stop(self, piece: Piece) -> None:
        command = {"piece": piece.to_dict(), "batch": BATCH, "every": EVERY}
        self.states[piece.number] = await self.peers[piece.source].ask("stop", command)

    async def start(self, piece: Piece) -> None:
        command = {"piece": piece.to_dict(), "states": self.states.get(piece.number, {})}
        await self.peers[piece.target].ask("start", command)
        self.states.pop(piece.number, None)

    async def undo(self, piece: Piece) -> None:
        await self.peers[piece.source].ask("undo", {"piece": piece.to_dict()})

    # --- HTTP ---

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await reader.readline():
                method, path, _ = request.decode().split(" ", 2)
                length, kind = 0, ""
                while (line := await reader.readline()).strip():
                    header, _, value = line.decode().partition(":")
                    length = int(value) if header.lower() == "content-length" else length
                    kind = value.strip() if header.lower() == "content-type" else kind
                data = await reader.readexactly(length)
                try:
                    if method == "POST" and kind != "application/json":  # a page of the web cannot send that
                        raise ValueError("send Content-Type: application/json")  # noqa: TRY301
                    body = json.loads(data) if data else None
                    status, reply = "200 OK", await self.reply(method, path, body)
                except KeyError:
                    status, reply = "404 Not Found", "there is no such thing here"
                except (RinghashError, ValueError, RecursionError) as error:
                    status, reply = "409 Conflict", str(error)
                data = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        writer.close()

    async def reply(self, method: str, path: str, body: Any) -> Any:
        what, _, rest = path.strip("/").partition("/")
        if (method, what) == ("GET", "route"):
            route = self.router.route(rest)
            peer = self.peers.get(route.node)
            return {**route._asdict(), "port": peer.port if peer else None}
        if (method, what) == ("GET", "ports"):
            return {name: peer.port for name, peer in self.peers.items()}
        if (method, what) == ("GET", "router"):
            return self.router.to_dict()
        if (method, what) == ("GET", "stats"):
            peers = list(self.peers.items())
            found = await asyncio.gather(
                *(peer.ask("stats", rest == "sessions") for _, peer in peers), return_exceptions=True
            )
            return {name: it for (name, _), it in zip(peers, found, strict=True) if isinstance(it, dict)}
        if (method, what) == ("GET", "status"):
            if self.handover is None:
                return {"text": f"no handover; at epoch {self.router.epoch}", "over": True}
            status = self.handover.status()
            return {"text": str(status), "over": status.over, "counts": status.counts}
        if (method, what) == ("POST", "plan"):
            return {"text": self.begin(Plan.from_dict(body))}
        if method == "POST" and what in ("abort", "resume") and self.handover is not None:
            if what == "abort":
                self.handover.abort()
            else:
                for ask in (name for name in ("reverse", "retry") if body.get(name)):
                    getattr(self.handover, ask)()
                if self.running is None or self.running.done():
                    self.run()
            return {"text": str(self.handover.status())}
        raise KeyError(path)


async def main(http: int, control: int, nodes: list[str], journal: str | None) -> None:
    front = Front(nodes, journal)
    async with (
        serve(front.control, "127.0.0.1", control, compression=None, max_size=2**26, ping_interval=None),
        await asyncio.start_server(front.http, "127.0.0.1", http) as server,
    ):
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), (*sys.argv[4:], None)[0])
        )
