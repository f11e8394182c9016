"""The commands that look at a plan, carry it out, and stop it; and the page of HTML, in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_cli import Cli, cli

from ringhash import Handover, Node, Plan, Ring, Router, assign
from ringhash.cli.inspect import look_at
from ringhash.cli.page import html_of
from ringhash.handover import FileJournal, read_status

__all__ = ["cli"]

NODES = ["gw-1", "gw-2", "gw-3"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    router = Router(NODES)
    (tmp_path / "router.json").write_text(json.dumps(router.to_dict()))
    (tmp_path / "ring.json").write_text(json.dumps(router.placement.to_dict()))
    (tmp_path / "plan.json").write_text(json.dumps(router.plan(add=["gw-4"]).to_dict()))
    return tmp_path


def test_show_says_who_gains_who_loses_and_what_is_unusual(cli: Cli, files: Path) -> None:
    text = cli("show", files / "plan.json")
    assert re.search(r"gw-4 +joins +0.000% +24.100% +\+24.100%", text)
    assert "24.100% of all keys move, in 117 ranges" in text
    assert "The largest piece is gw-2 to gw-4: 9.162% of all keys" in text
    assert "gw-4 joins cold" in text
    record = cli.json("show", files / "plan.json")
    assert sum(node["net"] for node in record["nodes"]) == pytest.approx(0)
    assert record["pairs"][0]["source"] == "gw-2"
    assert "Nothing moves." in look_at(Router(["a"]).plan()).warnings


@pytest.mark.parametrize(
    ("before", "change", "warning"),
    [
        (["a"], {"add": ["b", "c"]}, "More than half"),
        (["a"], {"remove": ["a"]}, "no key will have an owner"),
        ([], {"add": ["a"]}, "no nodes before"),
        (["a", "b"], {"add": ["c"], "remove": ["a"]}, "join and leave"),
        (["a", "b", "c"], {"remove": ["a", "b"]}, "2 nodes leave at once: a, b"),
        (["a", "b"], {"add": ["c"]}, "cut it smaller"),
    ],
)
def test_warnings(before: list[str], change: dict[str, Any], warning: str) -> None:
    assert any(warning in found for found in look_at(Router(before).plan(**change)).warnings)


def test_changes_have_words_and_a_plan_of_any_epoch_is_the_normal_case() -> None:
    before = Ring([Node("a"), Node("b", zone="x"), "c"])
    after = Ring([Node("a", 2.0), Node("b", zone="y"), "c"])
    view = look_at(before.diff(after))
    assert [node.change for node in view.nodes] == ["weight 1 to 2", "other zone", ""]
    assert not any("epoch" in warning for warning in view.warnings)


def test_apply_at_once_to_a_file(cli: Cli, files: Path) -> None:
    assert "the router is at epoch 1" in cli("apply", files / "plan.json", "--router", files / "router.json")
    assert Router.from_dict(json.loads((files / "router.json").read_text())).placement == Ring(
        [*NODES, "gw-4"]
    )
    assert "made at epoch 0" in cli.refused("apply", files / "plan.json", "--router", files / "router.json")


@pytest.mark.skipif(os.name != "posix", reason="the commands are of a POSIX shell")
def test_apply_piece_by_piece_then_status_and_resume(cli: Cli, files: Path) -> None:
    log, journal = files / "log", files / "j"
    start = f'echo "$RINGHASH_PIECE $RINGHASH_SOURCE $RINGHASH_TARGET $RINGHASH_REPEAT" >>{log}; test "$RINGHASH_PIECE$RINGHASH_BACK" != 10'
    arguments = [
        "apply",
        files / "plan.json",
        "--router",
        files / "ring.json",
        "--stop",
        "cat >/dev/null",
        "--start",
        start,
        "--pause",
        "0",
    ]
    assert "needs --stop, --start and --journal" in cli.refused(*arguments)
    text = cli(*arguments, "--journal", journal, status=1)
    assert "RUN: 62% handed over at epoch 3 (2 DONE, 1 FAILED)" in text
    assert "piece 1, gw-2 to gw-4: FAILED with gw-2" in text
    assert log.read_text().splitlines()[:2] == ["0 gw-1 gw-4 0", "1 gw-2 gw-4 0"]
    half = Router.from_dict(json.loads((files / "ring.json").read_text()))
    assert half.to_dict()["running"]
    assert cli("status", journal, status=1) == text
    record = cli("status", journal, "--json", status=1)
    assert json.loads(record)["counts"] == {"DONE": 2, "FAILED": 1}
    assert "there is a journal" in cli.refused(
        *arguments[:3], files / "router.json", *arguments[4:], "--journal", journal
    )
    assert "needs --stop and --start" in cli.refused("resume", journal)
    text = cli(
        "resume", journal, "--stop", "true", "--start", "true", "--retry", "--router", files / "ring.json"
    )
    assert text == "OVER: 100% handed over at epoch 5 (3 DONE)\n"
    assert Router.from_dict(json.loads((files / "ring.json").read_text())).placement == Ring([*NODES, "gw-4"])
    assert cli("apply", files / "plan.json", "--router", journal, "--stop", "true", "--start", "true") == text
    (files / "other.json").write_text(json.dumps(Router(["x"]).plan(add=["y"]).to_dict()))
    assert "another plan" in cli.refused("apply", files / "other.json", "--router", journal)


@pytest.mark.skipif(os.name != "posix", reason="the commands are of a POSIX shell")
def test_abort_stops_a_handover_that_runs_and_resume_reverses_it(cli: Cli, files: Path) -> None:
    journal = files / "j"

    def ask() -> None:
        while not journal.exists() or not read_status(journal).counts.get("DONE"):
            time.sleep(0.02)
        with FileJournal(journal) as other:
            other.request("abort")

    asking = threading.Thread(target=ask)
    asking.start()
    slow = "sleep 0.3"
    text = cli(
        "apply", files / "plan.json", "--router", files / "router.json", "--journal", journal,
        "--stop", slow, "--start", slow, "--pause", "0", status=1,
    )  # fmt: skip
    asking.join()
    assert text.startswith("ABORT: ")
    assert "asked to stop" in cli("abort", journal)
    text = cli("resume", journal, "--stop", "true", "--start", "true", "--reverse")
    assert text.startswith("OVER: 0% handed over")


class Front(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, body))
        if self.path == "/resume":
            self.send_error(409, "no handover")
            return
        self.reply({"text": f"took {self.path}"})

    def do_GET(self) -> None:
        self.reply({"mode": "RUN"})

    def reply(self, data: Any) -> None:
        text = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Front) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_router_behind_a_url(cli: Cli, files: Path, url: str) -> None:
    Front.seen.clear()
    assert cli("apply", files / "plan.json", "--router", url) == "took /plan\n"
    assert Plan.from_dict(Front.seen[0][1]) == Router(NODES).plan(add=["gw-4"])
    assert json.loads(cli("status", url)) == {"mode": "RUN"}
    assert cli("abort", url + "/") == "took /abort\n"
    assert cli.refused("resume", url).startswith(url)
    assert cli.refused("status", "http://127.0.0.1:1").startswith("http://127.0.0.1:1: ")


def test_what_cannot_be_used_is_refused_in_one_line(cli: Cli, files: Path) -> None:
    assert "no journal" in cli.refused("status", files / "none")
    assert "is not a journal" in cli.refused("abort", files / "plan.json")
    assert "plan.kind: must be" in cli.refused("show", files / "ring.json")
    (files / "text").write_text("[")
    assert "is not JSON" in cli.refused("show", files / "text")
    assert "must be" in cli.refused("storm", "--nodes", "0")


def test_storm_prints_a_table_and_draws(cli: Cli, files: Path) -> None:
    text = cli("storm", "--clients", "5000", "--svg", files / "storm.svg")
    assert [line.split("  ")[0] for line in text.splitlines()[1:]] == [
        "modulo, at once",
        "modulo, drained",
        "ring, at once",
        "ring, drained",
    ]
    assert (files / "storm.svg").read_text().startswith("<svg")
    assert cli.json("storm", "--clients", "100")[0]["name"] == "modulo, at once"


# --- the page ---


def test_the_page_needs_nothing_from_elsewhere_and_escapes_names(cli: Cli, files: Path) -> None:
    cli("show", files / "plan.json", "--html", files / "plan.html")
    page = (files / "plan.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "default-src 'none'" in page
    evil = "<script>alert(1)</script>\"'&"
    page = html_of(look_at(Router(["a", evil]).plan(add=["b"])))
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") > 1
    for plan in (Router().plan(add=["a"]), Router(["a"]).plan(remove=["a"]), Router(["a"]).plan()):
        assert "</html>" in html_of(look_at(plan))


CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,1400 --hide-scrollbars"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="the browser tests need selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(
            "the browser tests are left out: no Chromium with its driver here (Debian: chromium, chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.mark.browser
@pytest.mark.parametrize("count", [3, 30])
def test_the_page_renders_sorts_and_has_no_errors(browser: Any, tmp_path: Path, count: int) -> None:
    names = [f"gw-{i}" for i in range(1, count + 1)]
    view = look_at(Router(names).plan(add=[f"gw-{count + 1}"], remove=["gw-2"] if count > 3 else []))
    page = tmp_path / "plan.html"
    page.write_text(html_of(view), encoding="utf-8")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())

    def cells(table: str, column: int) -> list[str]:
        script = f"return [...document.querySelectorAll('#{table} tbody tr')].map(r => r.cells[{column}].textContent)"
        return list(browser.execute_script(script))

    def head(table: str, column: int) -> Any:
        return browser.find_elements("css selector", f"#{table} th")[column]

    # It renders: two rings with every pair in both, twice, each of some size.
    arcs = browser.find_elements("css selector", "path.arc")
    assert len(arcs) == 4 * len(view.pairs)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert len(boxes) == 2
    assert min(boxes) > 300
    assert all(browser.execute_script("return arguments[0].getBBox().width", arc) > 0 for arc in arcs[:8])
    overflow = browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0
    # It sorts: numbers as numbers, names as people do, both ways.
    shares = [float(cell.rstrip("%")) for cell in cells("pairs", 3)]
    assert shares == sorted(shares, reverse=True)
    head("pairs", 2).find_element("tag name", "button").click()
    ranges = [int(cell) for cell in cells("pairs", 2)]
    assert ranges == sorted(ranges, reverse=True)
    assert head("pairs", 2).get_attribute("aria-sort") == "descending"
    assert head("pairs", 3).get_attribute("aria-sort") == "none"
    head("nodes", 0).find_element("tag name", "button").click()
    numbers = [int(cell.split("-")[1]) for cell in cells("nodes", 0)]
    assert numbers == sorted(numbers, reverse=True)
    head("nodes", 0).find_element("tag name", "button").click()
    assert [int(cell.split("-")[1]) for cell in cells("nodes", 0)] == sorted(numbers)
    # A row shows its ranges alone, by mouse and by key, and all again.
    row = browser.find_element("css selector", "#pairs tbody tr")
    row.click()
    assert len(browser.find_elements("css selector", "path.arc.on")) == 4
    row.send_keys("\n")
    assert browser.find_elements("css selector", "path.arc.on") == []
    # It says nothing on the console, and asks nothing of the network.
    assert browser.get_log("browser") == []
    requests = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert page.as_uri() in requests
    assert not [url for url in requests if url.startswith(("http", "ws"))]


@pytest.mark.skipif(os.name != "posix", reason="the commands are of a POSIX shell")
def test_the_journal_of_shards_is_read_and_resumed_too(cli: Cli, tmp_path: Path) -> None:
    journal, state = tmp_path / "j.sqlite", tmp_path / "router.json"
    router = Router(assign(12, ["a", "b"]))
    handover = Handover(
        router, router.plan(add=["c"]), journal=journal, pause=0,
        stop=lambda piece: piece.source != "b", start=lambda piece: None,
    )  # fmt: skip
    assert not handover.run().over
    assert "50% handed over" in cli("status", journal, status=1)
    arguments = ("--stop", "true", "--start", "true", "--retry", "--router", state)
    assert "OVER: 100% handed over" in cli("resume", journal, *arguments)
    found = Router.from_dict(json.loads(state.read_text()))
    assert found.placement == router.placement.changed(add=["c"])
