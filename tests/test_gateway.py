"""The cluster of examples/websocket_gateway, with real processes: what happens to each of 2,000 sessions."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("websockets")
if os.name != "posix":
    pytest.skip("it needs kill -9", allow_module_level=True)

EXAMPLE = Path(__file__).parent.parent / "examples" / "websocket_gateway"
if not EXAMPLE.exists():
    pytest.skip("the examples are not here", allow_module_level=True)
sys.path.insert(0, str(EXAMPLE))

from gateway import TRY_AGAIN
from gateways import Cluster
from sessions import Client

pytestmark = pytest.mark.slow
CLIENTS, NODES = 2000, 5
LONG = 300  # seconds that only a hang takes


async def stats_of(cluster: Cluster) -> dict[str, Any]:
    return dict(await cluster.front("stats/sessions"))


async def all_confirmed(clients: list[Client]) -> None:
    """Wait until every message sent so far is confirmed."""
    sent = [len(client.chains) - 1 for client in clients]
    async with asyncio.timeout(LONG):
        while any(client.acked < number for client, number in zip(clients, sent, strict=True)):
            await asyncio.sleep(0.1)


async def course() -> None:
    async with Cluster(NODES) as cluster:
        await cluster.connect(CLIENTS, 4.0)
        clients = {client.name: client for client in cluster.clients}
        names = list(clients)
        router = await cluster.router()
        stats = await stats_of(cluster)
        assert {name: set(it["sessions"]) for name, it in stats.items()} == {
            node: {name for name in names if router.owner(name) == node} for node in cluster.names
        }
        assert all(client.connects[0][1] == router.owner(client.name) for client in clients.values())
        assert all(len(client.connects) == 1 for client in clients.values())

        # A sixth gateway comes in.
        old = router.route("stale-0")
        old_ports = await cluster.front("ports")
        plan = router.plan(add=["gw-6"])
        assert await cluster.join("gw-6") == plan.to_dict()
        await cluster.over(LONG)
        await cluster.settled(LONG)
        await all_confirmed(cluster.clients)
        planned = set(itertools.compress(names, plan.mask(names).tolist()))
        assert {name for name, client in clients.items() if len(client.connects) > 1} == planned
        assert all(len(clients[name].connects) == 2 for name in planned)
        assert all(clients[name].connects[1][1] == "gw-6" for name in planned)
        codes = Counter(code for name in planned for _, code, _ in clients[name].closes)
        assert codes == {1012: len(planned)}
        stats = await stats_of(cluster)
        assert sum(it["adopted"] for it in stats.values()) == 0  # every state was handed over
        assert set(stats["gw-6"]["sessions"]) == planned
        assert sum(it["closed"] for it in stats.values()) == stats["gw-6"]["accepted"] == len(planned)

        # A client whose route is old, and two that were told nonsense.
        router = await cluster.router()
        moved = next(f"stale-{i}" for i in range(1000) if plan.move_of(f"stale-{i}"))
        strangers = []
        for name, node in [(moved, plan.move_of(moved).source), ("stale-x", "gw-1"), ("stale-y", "gw-4")]:  # type: ignore[union-attr]
            client = Client(name, cluster.front, 1.0)
            client.route = {"node": node, "epoch": old.epoch, "port": old_ports[node]}
            strangers.append(client)
            cluster.clients.append(client)
            cluster.tasks.append(asyncio.ensure_future(client.run()))
        await cluster.settled(LONG)
        for client in strangers:
            assert client.node == router.owner(client.name)
            assert max(client.hops) <= 2
        assert strangers[0].hops == {1: 1}

        # One is killed.
        victim = "gw-2"
        held = {name for name in clients if router.owner(name) == victim}
        before = {name: len(client.connects) for name, client in clients.items()}
        cluster.kill(victim)
        async with asyncio.timeout(LONG):  # those that it held have noticed
            while any(len(clients[name].connects) == before[name] for name in held):
                await asyncio.sleep(0.1)
        await cluster.settled(LONG)
        await all_confirmed(cluster.clients)
        assert {name for name, client in clients.items() if len(client.connects) > before[name]} == held
        for name in held:
            assert len(clients[name].connects) == before[name] + 1
            walk = router.walk(name)
            assert next(walk) == victim
            assert clients[name].connects[-1][1] == next(walk)
        assert (await cluster.router()).placement == router.placement.changed(remove=[victim])
        stats = await stats_of(cluster)
        assert sum(it["adopted"] for it in stats.values()) <= len(held) + 3

        # Throughout, no message was lost, doubled or out of order.
        everybody = [*clients.values(), *strangers]
        assert [fault for client in everybody for fault in client.faults] == []
        assert all(client.acked > 0 for client in clients.values())
        print(f"{len(planned)} of {CLIENTS} moved; {len(held)} back after the kill")


def test_a_gateway_joins_and_another_one_is_killed() -> None:
    asyncio.run(course())


async def small_course(scripts: Path) -> tuple[int, list[str], Counter[int]]:
    async with Cluster(2, scripts) as cluster:
        await cluster.connect(60, 0.2)
        await cluster.join("gw-3")
        await cluster.over(LONG)
        await cluster.settled(LONG)
        await all_confirmed(cluster.clients)
        stats = await stats_of(cluster)
        faults = [fault for client in cluster.clients for fault in client.faults]
        codes = Counter(code for client in cluster.clients for _, code, _ in client.closes)
        return sum(it["adopted"] for it in stats.values()), faults, codes


def test_a_small_course() -> None:
    adopted, faults, codes = asyncio.run(small_course(EXAMPLE))
    assert (adopted, faults) == (0, [])
    assert set(codes) <= {1012, TRY_AGAIN}


FORGETFUL = """
import asyncio, importlib.util, sys
spec = importlib.util.spec_from_file_location("genuine", sys.argv.pop())
genuine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(genuine)
genuine.Gateway.adopt = lambda self, states: None
asyncio.run(genuine.main(sys.argv[1], int(sys.argv[2])))
"""


def test_a_gateway_that_takes_no_state_is_found_out(tmp_path: Path) -> None:
    """The control: a gateway that does not take the states it is given, and the same check fails."""
    scripts = tmp_path / "scripts"
    shutil.copytree(EXAMPLE, scripts)
    where = f"sys.argv.append({str(EXAMPLE / 'gateway.py')!r})"
    (scripts / "gateway.py").write_text(FORGETFUL.replace("spec = ", f"{where}\nspec = ", 1))
    adopted, _, _ = asyncio.run(small_course(scripts))
    assert adopted
