"""Clients: sessions that send numbered messages, follow redirections, and come back when sent away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from typing import Any

from gateway import MOVED, link
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from ringhash.reconnect import backoff, retry_after


class FrontDoor:
    """Asks the front, over one connection that is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lock = asyncio.Lock()
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self, path: str, body: Any = None) -> Any:
        async with self.lock:
            if self.streams is None:
                self.streams = await asyncio.open_connection("127.0.0.1", self.port, limit=2**26)
            reader, writer = self.streams
            data = b"" if body is None else json.dumps(body).encode()
            method = "GET" if body is None else "POST"
            head = f"Content-Type: application/json\r\nContent-Length: {len(data)}"
            writer.write(f"{method} /{path} HTTP/1.1\r\n{head}\r\n\r\n".encode() + data)
            status = (await reader.readline()).decode()
            length = int((await reader.readline()).split(b":")[1])
            await reader.readline()
            text = (await reader.readexactly(length)).decode()
        if " 200 " not in status:
            raise RuntimeError(f"{status.strip()}: {text}")
        return json.loads(text)

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


class Client:
    """One session."""

    def __init__(self, name: str, front: FrontDoor, every: float) -> None:
        self.name, self.front, self.every = name, front, every
        self.chains = [""]  # the hash after each message, as it must be
        self.acked = 0
        self.texts: list[str] = [""]
        self.node: str | None = None
        self.route: dict[str, Any] | None = None  # what it believes, which may be old
        self.ports: dict[str, int] = {}
        self.connects: list[tuple[float, str]] = []  # when it got in, and where
        self.closes: list[tuple[float, int, str | None]] = []  # when it lost its node, how, and which
        self.hops: Counter[int] = Counter()
        self.faults: list[str] = []
        self.attempts = 0
        self.stopping = False

    async def run(self) -> None:
        attempt, hops = 0, 0
        while not self.stopping:
            wait = None
            try:
                if self.route is None:
                    self.route = await self.front(f"route/{self.name}")
                port = self.route["port"]
                if port is None:
                    raise ConnectionRefusedError("the node has gone")
                self.attempts += 1
                uri = f"ws://127.0.0.1:{port}"
                async with connect(uri, compression=None, ping_interval=None, open_timeout=20) as socket:
                    if await self.enter(socket):
                        self.hops[hops] += 1
                        attempt = hops = 0
                        await self.talk(socket)
            except ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else 1006
                reason = closed.rcvd.reason if closed.rcvd else ""
                if self.node is not None:
                    self.closes.append((time.time(), code, self.node))
                self.node = None
                if code == MOVED:
                    hops += 1
                    moved = json.loads(reason)
                    port = (await self.front("ports")).get(moved["to"])
                    self.route = {"node": moved["to"], "epoch": moved["epoch"], "port": port}
                    continue
                wait = retry_after(reason)
            except (OSError, InvalidHandshake, TimeoutError):
                self.node = None
            if self.stopping:
                return
            self.route, hops = None, 0
            await asyncio.sleep(backoff(attempt) if wait is None else wait)
            attempt += 1

    async def enter(self, socket: Any) -> bool:
        hello = {
            "session": self.name, "epoch": self.route["epoch"] if self.route else 0,
            "number": self.acked, "chain": self.chains[self.acked],
        }  # fmt: skip
        await socket.send(json.dumps(hello))
        welcome = json.loads(await socket.recv())
        self.check(welcome)
        self.node = welcome["by"]
        self.connects.append((time.time(), welcome["by"]))
        for number in range(welcome["number"] + 1, len(self.chains)):  # what it may not have
            await socket.send(json.dumps([number, self.texts[number]]))
        return True

    async def talk(self, socket: Any) -> None:
        sender = asyncio.ensure_future(self.send(socket))
        try:
            async for message in socket:
                self.check(json.loads(message))
            raise ConnectionClosed(socket.protocol.close_rcvd, socket.protocol.close_sent)
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sender

    async def send(self, socket: Any) -> None:
        await asyncio.sleep(random.uniform(0, self.every))
        while not self.stopping:
            number = len(self.chains)
            text = f"{self.name} says {number}"
            self.texts.append(text)
            self.chains.append(link(self.chains[-1], number, text))
            await socket.send(json.dumps([number, text]))
            await asyncio.sleep(self.every)
        await socket.close()

    def check(self, answer: dict[str, Any]) -> None:
        """Every answer says what the gateway has seen of all messages so far."""
        number, chain = answer["number"], answer["chain"]
        if number < self.acked:
            self.faults.append(f"{self.name}: {answer['by']} is at {number}, and had confirmed {self.acked}")
        elif number >= len(self.chains) or chain != self.chains[number]:
            self.faults.append(f"{self.name}: {answer['by']} has another chain at {number}")
        else:
            self.acked = number
