"""A backend to try the balancer with: says its name, and takes `--work` seconds a request."""

import argparse
import asyncio

from aiohttp import web


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--work", type=float, default=0.0)
    options = parser.parse_args()

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(options.work)
        return web.Response(body=await request.read() or b"hello\n")

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def run() -> None:
        app = web.Application()
        app.add_routes([web.get("/health", healthy), web.route("*", "/{path:.*}", answer)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", options.port).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
