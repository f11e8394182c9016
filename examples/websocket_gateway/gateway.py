"""One gateway: holds the WebSocket sessions that it owns, and hands them over when it is told to.

    python gateway.py NAME CONTROL_PORT

It listens on a port of its own, tells the front its name and port, and then does what the front says:
`stop` a piece (close its sessions in waves, and give their state away), `start` one (take the state),
`undo` a stop, `router` (the routing has changed).

A session is a chain of numbered messages. Its state is the number of the last one and a hash over all of
them, so a message that is lost, doubled or out of order shows in every answer that follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from ringhash import Moved, Router
from ringhash.errors import StaleRouterError
from ringhash.handover import Piece
from ringhash.reconnect import drain

MOVED, GAP = 4301, 4302  # close codes of this application
TRY_AGAIN = 1013


def link(chain: str, number: int, text: str) -> str:
    """The hash of a chain of messages with one more."""
    return hashlib.blake2b(f"{chain}|{number}|{text}".encode(), digest_size=8).hexdigest()


class Gateway:
    def __init__(self, name: str) -> None:
        self.name = name
        self.router = Router()
        self.known = False  # until the front has sent its router
        self.newer = asyncio.Event()
        self.states: dict[str, list[Any]] = {}  # session -> [number, chain]
        self.sockets: dict[str, ServerConnection] = {}
        self.ended: dict[str, asyncio.Event] = {}
        self.stopped: dict[int, Piece] = {}
        self.tokens: dict[int, int] = {}
        self.counts = {
            "accepted": 0,
            "closed": 0,
            "adopted": 0,
            "moved": 0,
            "later": 0,
            "messages": 0,
            "again": 0,
        }

    # --- clients ---

    async def session(self, socket: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed, ValueError, KeyError):
            hello = json.loads(await socket.recv())
            name = hello["session"]
            if not await self.may_have(socket, name, hello["epoch"]):
                return
            old = self.sockets.get(name)
            if old is not None:  # its client has given it up: finish it before the state is used
                await old.close(1000, "replaced")
                await self.ended[name].wait()
            if name not in self.states:
                # A new session, or one whose gateway died: then only its client knows how far it was.
                self.counts["adopted"] += hello["number"] > 0
                self.states[name] = [hello["number"], hello["chain"]]
            self.counts["accepted"] += 1
            ended = self.ended[name] = asyncio.Event()
            self.sockets[name] = socket
            try:
                await self.talk(socket, self.states[name])
            finally:
                self.sockets.pop(name, None)
                ended.set()

    async def may_have(self, socket: ServerConnection, name: str, epoch: int) -> bool:
        for _ in range(2 if self.known else 0):
            try:
                self.router.check(name, self.name, epoch)
                break
            except Moved as moved:
                self.counts["moved"] += 1
                await socket.close(MOVED, json.dumps({"to": moved.to, "epoch": moved.epoch}))
                return False
            except StaleRouterError:
                self.newer.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await self.newer.wait()
        else:
            await socket.close(TRY_AGAIN, "behind")
            return False
        if self.is_stopped(name):
            self.counts["later"] += 1
            await socket.close(TRY_AGAIN, "being handed over")
            return False
        return True

    async def talk(self, socket: ServerConnection, state: list[Any]) -> None:
        await socket.send(json.dumps({"number": state[0], "chain": state[1], "by": self.name}))
        async for message in socket:
            number, text = json.loads(message)
            if number == state[0] + 1:
                state[:] = [number, link(state[1], number, text)]
                self.counts["messages"] += 1
            elif number > state[0]:
                await socket.close(GAP, f"{number} after {state[0]}")
                return
            else:
                self.counts["again"] += 1  # sent again after a reconnect, and done before it
            await socket.send(json.dumps({"number": state[0], "chain": state[1], "by": self.name}))

    def is_stopped(self, session: str) -> bool:
        return any(session in piece for piece in self.stopped.values())

    # --- the front ---

    async def command(self, what: str, data: Any) -> Any:
        if what == "router":
            if self.known:
                self.router.follow(data)
            else:
                self.router, self.known = Router.from_dict(data), True
            self.newer.set()
            return None
        if what == "stats":
            sessions = list(self.sockets)
            return {
                **self.counts, "sessions": sessions if data else len(sessions),
                "epoch": self.router.epoch,
            }  # fmt: skip
        piece = Piece.from_dict(data["piece"])
        number = piece.number
        if piece.token < self.tokens.get(number, 0):
            raise ValueError(f"token {piece.token} is of a call that was given up")
        self.tokens[number] = piece.token
        if what == "stop":
            return await self.stop(piece, data["batch"], data["every"])
        if what == "start":
            self.adopt(data["states"])
        self.stopped.pop(number, None)  # started here, or kept
        return None

    def adopt(self, states: dict[str, list[Any]]) -> None:
        """Take the states that the gateway before has given away."""
        self.states.update(states)

    async def stop(self, piece: Piece, batch: int, every: float) -> dict[str, Any]:
        self.stopped[piece.number] = piece
        mine = [name for name in self.states if name in piece]
        sockets = [(name, self.sockets[name]) for name in mine if name in self.sockets]
        waits = [self.ended[name] for name, _ in sockets]

        async def close_and_note(socket: ServerConnection, code: int, reason: str) -> None:
            self.counts["closed"] += 1
            await socket.close(code, reason)

        class Noted:
            def __init__(self, socket: ServerConnection) -> None:
                self.socket = socket

            def close(self, code: int = 1000, reason: str = "") -> Any:
                return close_and_note(self.socket, code, reason)

        await drain([Noted(socket) for _, socket in sockets], batch, every)
        for ended in waits:  # what had come before the close is in the state
            await ended.wait()
        # Given away, and kept until the target has started: an undo goes on with it.
        return {name: self.states[name] for name in mine}


async def main(name: str, control: int) -> None:
    gateway = Gateway(name)
    async with serve(gateway.session, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(
            f"ws://127.0.0.1:{control}", compression=None, max_size=2**26, ping_interval=None
        ) as front:
            await front.send(json.dumps({"name": name, "port": port}))
            running: set[asyncio.Task[None]] = set()

            async def answer(number: int, what: str, data: Any) -> None:
                try:
                    reply = {"id": number, "ok": await gateway.command(what, data)}
                except Exception as error:  # noqa: BLE001 - the front is to know
                    reply = {"id": number, "error": str(error)}
                await front.send(json.dumps(reply))

            with contextlib.suppress(ConnectionClosed):
                async for message in front:
                    number, what, data = json.loads(message)
                    task = asyncio.ensure_future(answer(number, what, data))
                    running.add(task)
                    task.add_done_callback(running.discard)
    # The front is gone: a gateway that nobody directs must not go on serving.


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
