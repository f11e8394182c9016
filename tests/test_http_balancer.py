"""The example balancer with real processes: a backend is killed under traffic, and comes back."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ringhash import Router

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("prometheus_client")
EXAMPLE = Path(__file__).parent.parent / "examples" / "http_balancer"
if not EXAMPLE.is_dir():
    pytest.skip("the examples are not here", allow_module_level=True)

REQUESTS = 20_000
SESSIONS = [f"session-{i}" for i in range(300)]
WORKERS = 24


@pytest.fixture
def cluster_module(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import cluster

    yield cluster
    del sys.modules["cluster"]


async def is_down(client, cluster, name):
    async with client.get(f"{cluster.admin}/ring") as answer:
        return next(node["down"] for node in (await answer.json())["nodes"] if node["name"] == name)


async def until_down_is(client, cluster, name, expected):
    deadline = time.monotonic() + 300  # only a hang takes as long
    while await is_down(client, cluster, name) is not expected:
        assert time.monotonic() < deadline, f"{name} is still {'up' if expected else 'down'}"
        await asyncio.sleep(0.05)


async def traffic_with_a_kill(cluster, victim):
    """20,000 requests; returns (phase when sent, phase when answered, session, status, backend) of each.

    Phases: 0 all up, 1 being killed, 2 known to be down, 3 being started, 4 known to be up again.
    """
    phase = 0
    answers = []
    numbers = iter(range(REQUESTS))
    to_kill, to_restart = asyncio.Event(), asyncio.Event()
    marks = {REQUESTS * 3 // 10: to_kill, REQUESTS * 6 // 10: to_restart}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def worker():
            for number in numbers:
                session = SESSIONS[number % len(SESSIONS)]
                sent = phase
                by = {"cookies": {"session": session}} if number % 2 else {"headers": {"X-Session": session}}
                async with client.get(f"{cluster.url}/page?{number}", **by) as answer:
                    await answer.read()
                    answers.append((sent, phase, session, answer.status, answer.headers.get("X-Backend")))
                    if len(answers) in marks:
                        marks[len(answers)].set()

        workers = [asyncio.create_task(worker()) for _ in range(WORKERS)]
        await to_kill.wait()
        phase = 1
        await asyncio.to_thread(cluster.kill_backend, victim)
        await until_down_is(client, cluster, victim, True)
        phase = 2
        await to_restart.wait()
        phase = 3
        await asyncio.to_thread(cluster.restart_backend, victim)
        await until_down_is(client, cluster, victim, False)
        phase = 4
        await asyncio.gather(*workers)
        async with client.get(f"{cluster.admin}/metrics") as answer:
            return answers, await answer.text()


@pytest.mark.slow
def test_a_killed_backend_moves_its_own_sessions_only_and_they_come_back(cluster_module):
    # With a factor of 5 for 5 backends each has room for all, and a slow health check takes none out (`fall`):
    # sessions move for no other reason than refused connections.
    with cluster_module.running(5, factor=5, interval=0.2, fall=10**6, timeout=300) as cluster:
        router = Router(list(cluster.backends))
        home = {session: router.owner(session) for session in SESSIONS}
        next_home = {session: tuple(router.walk(session))[1] for session in SESSIONS}
        victim = Counter(home.values()).most_common(1)[0][0]
        answers, metrics = asyncio.run(traffic_with_a_kill(cluster, victim))

    assert len(answers) == REQUESTS
    assert {status for *_, status, _ in answers} == {200}, "no client ever saw the failure"
    others = {(session, backend) for *_, session, _, backend in answers if home[session] != victim}
    assert others == {(s, home[s]) for s in SESSIONS if home[s] != victim}, "no other session moved"
    of_victim = [
        (sent, answered, session, at) for sent, answered, session, _, at in answers if home[session] == victim
    ]
    assert {at == victim for sent, answered, _, at in of_victim if sent == answered == 0} == {True}
    assert all(at in {victim, next_home[session]} for *_, session, at in of_victim)
    assert {
        at == next_home[session] for sent, answered, session, at in of_victim if sent == answered == 2
    } == {True}
    assert {at == victim for sent, _, _, at in of_victim if sent == 4} == {True}, "they are home again"
    retries = [line for line in metrics.splitlines() if line.startswith("balancer_retries_total")]
    assert [line.partition('"')[2].partition('"')[0] for line in retries] == [victim]
    answered = [line for line in metrics.splitlines() if line.startswith("balancer_requests_total")]
    assert sum(float(line.rpartition(" ")[2]) for line in answered) == REQUESTS
    print(retries, Counter(sent for sent, *_ in answers))


async def hot_session(cluster, requests):
    """All requests are in flight at once: the backends hold them until the balancer has passed on the last one."""
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as client:

        async def ask():
            async with client.post(f"{cluster.url}/", data=b"body", headers={"X-Session": "hot"}) as answer:
                assert await answer.read() == b"body"
                return answer.headers["X-Backend"]

        async def ring():
            async with client.get(f"{cluster.admin}/ring") as answer:
                return await answer.json()

        asking = [asyncio.ensure_future(ask()) for _ in range(requests)]
        async with asyncio.timeout(300):
            while (await ring())["loads"]["held"] < requests:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        for name in cluster.backends:
            async with client.get(f"http://{name}/release"):
                pass
        nodes = await asyncio.gather(*asking)
        return Counter(nodes), await ring()


@pytest.mark.slow
def test_one_hot_session_fills_no_backend_above_its_part(cluster_module):
    with cluster_module.running(5, gate=True, factor=1.25, fall=10**6, timeout=600) as cluster:
        nodes, ring = asyncio.run(hot_session(cluster, 100))
        walk = list(Router(list(cluster.backends)).walk("hot"))
    assert sum(nodes.values()) == 100
    assert max(nodes.values()) == 25  # 1.25 * 100 / 5
    assert set(nodes) == set(walk[:4]), "25 at each of four nodes, the nearest ones"
    assert ring["loads"]["held"] == 0, "every ticket was given back"
    assert ring["loads"]["elsewhere"] == 75


async def raw(url, request):
    """Send bytes as they are; return the status line of the answer, or nothing."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(300):
        line = await reader.readline()
    writer.close()
    return line.decode()


async def nonsense(cluster):
    def post(path, kind, body):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
        return head.encode() + b"\r\n\r\n" + body

    deep = b"[" * 100_000
    statuses = {}
    for name, url, request in [
        ("header", cluster.url, b"GET / HTTP/1.1\r\nHost: x\r\nX-Session: \xff\r\n\r\n"),
        ("absolute", cluster.url, b"GET http://else.where/page HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("asterisk", cluster.url, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("deep plan", cluster.admin, post("/plan", "application/json", deep)),
        ("deep apply", cluster.admin, post("/apply", "application/json", deep)),
        ("a form", cluster.admin, post("/apply", "text/plain", b"{}")),
        ("a name", cluster.admin, b"GET /ring HTTP/1.1\r\nHost: evil.example:80\r\n\r\n"),
    ]:
        statuses[name] = (await raw(url, request)).split(" ")[1:2]
    for _ in range(20):  # clients that leave in the middle of what they send
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()
    assert (await raw(cluster.url, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).split(" ")[1] == "200"
    return {name: int(status[0]) if status else 0 for name, status in statuses.items()}


@pytest.mark.slow
def test_nonsense_is_refused_and_nothing_is_logged(cluster_module, capfd):
    with cluster_module.running(1) as cluster:
        statuses = asyncio.run(nonsense(cluster))
    assert statuses == {
        "header": 400, "absolute": 200, "asterisk": 404, "deep plan": 400, "deep apply": 400, "a form": 415, "a name": 403,
    }  # fmt: skip
    assert capfd.readouterr().err == ""


async def operate(cluster, new):
    async with aiohttp.ClientSession() as client:
        async with client.post(f"{cluster.admin}/plan", json={"add": [new]}) as answer:
            plan = await answer.json()
        async with client.get(f"{cluster.admin}/ring") as answer:
            before = await answer.json()
        replies = []
        for body in (plan, plan, {**plan, "moves": 7}, []):
            async with client.post(f"{cluster.admin}/apply", json=body) as answer:
                replies.append((answer.status, await answer.text()))
        async with client.post(f"{cluster.admin}/plan", json={"remove": ["who?"]}) as answer:
            replies.append((answer.status, await answer.text()))
        async with client.get(f"{cluster.url}/") as answer:  # a new client is given a session
            assert answer.cookies["session"].value
        async with client.get(f"{cluster.admin}/ring") as answer:
            return plan, before, replies, await answer.json()


@pytest.mark.slow
def test_an_operator_sees_the_ring_and_changes_it_by_plan(cluster_module):
    with cluster_module.running(2) as cluster:
        names = list(cluster.backends)
        new = cluster.start_backend()
        plan, before, replies, after = asyncio.run(operate(cluster, new))
    assert {move[3] for move in plan["moves"]} == {new}
    assert before["epoch"] == 0, "a plan changes nothing"
    assert before["digest"] == plan["before"]
    assert [status for status, _ in replies] == [200, 409, 400, 400, 400]
    assert "make a new plan" in replies[1][1]
    assert "who?" in replies[4][1]
    assert (after["epoch"], after["digest"]) == (1, plan["after"])
    assert {node["name"] for node in after["nodes"]} == {*names, new}
