"""A backend to try the balancer with: a request takes `--work` seconds, or with `--gate` until /release."""

import argparse
import asyncio

from aiohttp import web


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--work", type=float, default=0.0)
    parser.add_argument("--gate", action="store_true", help="hold every request until GET /release")
    options = parser.parse_args()
    opened = asyncio.Event()
    if not options.gate:
        opened.set()

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        await asyncio.sleep(options.work)
        await opened.wait()
        return web.Response(body=body or b"hello\n")

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def release(_request: web.Request) -> web.Response:
        opened.set()
        return web.Response(text="released\n")

    async def run() -> None:
        app = web.Application()
        app.add_routes(
            [web.get("/health", healthy), web.get("/release", release), web.route("*", "/{path:.*}", answer)]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", options.port).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
