"""A reverse proxy that keeps each session on one backend: `python balancer.py --help`.

A request belongs to a session, by cookie or header, and the session has a backend by the ring. A backend that
refuses connections, or fails its health checks, is marked down: its sessions go to the next node of their
walk, and come back with it. No session of another backend moves.

A port of its own, for operators only, answers, if asked under a name of this machine:

    GET  /metrics   for Prometheus
    GET  /ring      the state of the ring, and what each backend holds
    POST /plan      {"add": [...], "remove": [...], "reweight": {...}}: what would move; changes nothing
    POST /apply     a plan as /plan gave it; 409 if the ring has changed since

Both need `Content-Type: application/json`, which a page of the web cannot send to another site.
"""

import argparse
import asyncio
import contextlib
import json
import uuid
from collections import Counter

import aiohttp
import prometheus_client
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from ringhash import Plan, RinghashError, Router, StalePlanError
from ringhash.balance import BoundedRouter, stats
from ringhash.balance.prometheus import export

HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailers",
    "transfer-encoding", "upgrade", "host", "content-length", "content-encoding",
}  # fmt: skip
THIS_MACHINE = {"127.0.0.1", "localhost", "[::1]"}
SAFE_TO_REPEAT = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"}


def check_target(request: web.Request) -> None:
    """Refuse what cannot be sent on: a target that is no path, and headers that are no text."""
    if not request.rel_url.raw_path.startswith("/"):
        raise web.HTTPBadRequest(text="the target must be a path\n")
    try:
        for name, value in request.headers.items():
            f"{name}{value}{request.raw_path}".encode()
    except UnicodeEncodeError:
        raise web.HTTPBadRequest(text="the target and the headers must be UTF-8\n") from None


async def body_of(request: web.Request) -> bytes:
    try:
        return await request.read()
    except (ConnectionError, aiohttp.ClientError, web.RequestPayloadError):
        raise web.HTTPBadRequest(text="the body broke off\n") from None  # nobody is there to read it


async def json_of(request: web.Request) -> object:
    """The JSON of a request, as it must be."""
    try:
        return json.loads(await body_of(request))
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"the body must be JSON: {error}\n") from None


@web.middleware
async def only_operators(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keep out pages of the web, which a browser on this machine may show.

    A page cannot send JSON to another site without asking first, and nobody answers that. A page whose
    name was made to mean this machine still asks under its own name.
    """
    if request.host.rpartition(":")[0] not in THIS_MACHINE and request.host not in THIS_MACHINE:
        raise web.HTTPForbidden(text="ask by 127.0.0.1 or localhost\n")
    if request.method == "POST" and request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send Content-Type: application/json\n")
    return await handler(request)


class Balancer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.router = Router(options.backend)
        self.bounded = BoundedRouter(self.router, options.factor)
        self.registry = prometheus_client.CollectorRegistry()
        export(self.bounded, self.registry)
        self.answered = prometheus_client.Counter(
            "balancer_requests", "Requests answered.", ["backend"], registry=self.registry
        )
        self.retried = prometheus_client.Counter(
            "balancer_retries", "Attempts that failed.", ["backend"], registry=self.registry
        )

    # --- traffic ---

    def session_of(self, request: web.Request) -> tuple[str, bool]:
        """The key of a request, and whether it is new and the client must be told."""
        key = request.headers.get(self.options.header) or request.cookies.get(self.options.cookie)
        return (key, False) if key else (uuid.uuid4().hex, True)

    async def proxy(self, request: web.Request) -> web.Response:
        check_target(request)
        session, is_new = self.session_of(request)
        body = await body_of(request)
        tried: list[str] = []
        while True:
            try:
                ticket = self.bounded.acquire(session, tried)
            except LookupError:  # every node is down, or was tried
                raise web.HTTPBadGateway(text=f"no backend answered; tried: {', '.join(tried)}\n") from None
            with ticket:
                try:
                    response = await self.forward(request, ticket.node, body)
                    break
                except aiohttp.ClientConnectorError:  # nothing was sent: any request may be repeated
                    if ticket.node in self.router:
                        self.router.mark_down(ticket.node)
                except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                    if request.method not in SAFE_TO_REPEAT:
                        raise web.HTTPBadGateway(text=f"{ticket.node} broke off\n") from None
                except TimeoutError:
                    raise web.HTTPGatewayTimeout(text=f"{ticket.node} did not answer\n") from None
            self.retried.labels(ticket.node).inc()
            tried.append(ticket.node)
        self.answered.labels(ticket.node).inc()
        if is_new:
            response.set_cookie(self.options.cookie, session, httponly=True, samesite="Lax")
        return response

    async def forward(self, request: web.Request, node: str, body: bytes) -> web.Response:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        headers += [("X-Forwarded-For", request.remote or ""), ("X-Forwarded-Host", request.host)]
        url = URL(f"http://{node}{request.rel_url.raw_path_qs}", encoded=True)
        async with self.client.request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            response = web.Response(status=answer.status, body=await answer.read())
            for name, value in answer.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    response.headers.add(name, value)
            response.headers["X-Backend"] = node
            return response

    # --- health ---

    async def check_for_ever(self) -> None:
        failures: Counter[str] = Counter()
        while True:
            names = list(self.router)
            healthy = await asyncio.gather(*map(self.is_healthy, names))
            for name, is_up in zip(names, healthy, strict=True):
                failures[name] = 0 if is_up else failures[name] + 1
                with contextlib.suppress(LookupError):  # it was removed meanwhile
                    if is_up:
                        self.router.mark_up(name)
                    elif failures[name] >= self.options.fall:
                        self.router.mark_down(name)
            await asyncio.sleep(self.options.interval)

    async def is_healthy(self, node: str) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=2)
            async with self.client.get(f"http://{node}{self.options.health}", timeout=timeout) as answer:
                return answer.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False

    # --- operators ---

    async def show_metrics(self, _request: web.Request) -> web.Response:
        text = prometheus_client.generate_latest(self.registry)
        return web.Response(body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    async def show_ring(self, _request: web.Request) -> web.Response:
        now, report = stats(self.bounded), self.bounded.report()
        return web.json_response({
            "epoch": now.epoch, "digest": now.digest, "peak_to_mean": now.peak_to_mean,
            "nodes": [node._asdict() for node in now.nodes], "loads": report._asdict(),
        })  # fmt: skip

    async def make_plan(self, request: web.Request) -> web.Response:
        change = await json_of(request)
        try:
            plan = self.router.plan(**change)
        except (RinghashError, TypeError, ValueError) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        return web.json_response(plan.to_dict())

    async def apply_plan(self, request: web.Request) -> web.Response:
        data = await json_of(request)
        try:
            self.router.apply(Plan.from_dict(data))
        except StalePlanError as error:
            raise web.HTTPConflict(text=f"{error}\n") from None
        except (RinghashError, ValueError) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        return await self.show_ring(request)

    async def run(self) -> None:
        proxy = web.Application(client_max_size=64 << 20)
        admin = web.Application(middlewares=[only_operators])
        proxy.router.add_route("*", "/{path:.*}", self.proxy)
        admin.add_routes([
            web.get("/metrics", self.show_metrics), web.get("/ring", self.show_ring),
            web.post("/plan", self.make_plan), web.post("/apply", self.apply_plan),
        ])  # fmt: skip
        timeout = aiohttp.ClientTimeout(total=self.options.timeout)
        connector = aiohttp.TCPConnector(limit=0)
        ports = []
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False
        ) as self.client:
            for app, port in ((proxy, self.options.port), (admin, self.options.admin_port)):
                runner = web.AppRunner(app, access_log=None)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", port).start()
                ports.append(runner.addresses[0][1])
            print(*ports, flush=True)
            await self.check_for_ever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", action="append", required=True, help="host:port; once for each")
    parser.add_argument("--port", type=int, default=8080, help="0 for a free one")
    parser.add_argument("--admin-port", type=int, default=8081, help="0 for a free one")
    parser.add_argument("--cookie", default="session")
    parser.add_argument("--header", default="X-Session", help="tells the session too, before the cookie")
    parser.add_argument("--factor", type=float, default=1.25, help="of the bounded loads")
    parser.add_argument("--health", default="/health", help="path of the health checks")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between health checks")
    parser.add_argument("--fall", type=int, default=3, help="failed checks until a backend is down")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for a request")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Balancer(parser.parse_args()).run())


if __name__ == "__main__":
    main()
