"""What every page of a report must do in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(21, 24, 28)"


def check_page(browser: Any, html: str, path: Path, pictures: int) -> None:
    """In light and dark, on a desk and on a phone: all pictures are there, nothing overflows, clips or loads."""
    path.write_text(html, encoding="utf-8")
    browser.get_log("browser")
    browser.get_log("performance")
    for scheme, background in (("light", LIGHT), ("dark", DARK)):
        for width in (1200, 360):
            browser.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
            )
            media = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
            browser.get(path.as_uri())
            found = browser.execute_script(
                """
                const boxes = [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect());
                const out = [...document.querySelectorAll("svg")].flatMap(svg => {
                  const frame = svg.getBoundingClientRect();
                  return [...svg.querySelectorAll("text")].filter(text => {
                    const box = text.getBoundingClientRect();
                    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
                  }).map(text => text.textContent);
                });
                return {
                  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
                  widths: boxes.map(box => box.width), heights: boxes.map(box => box.height), clipped: out,
                  background: getComputedStyle(document.body).backgroundColor,
                };
                """
            )
            assert found["overflow"] <= 0
            assert found["background"] == background
            assert len(found["widths"]) == pictures
            assert min(found["widths"]) > 200
            assert min(found["heights"]) > 20
            assert found["clipped"] == []
    assert browser.get_log("browser") == []
    requests = [
        event["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if (event := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert {url for url in requests if url.startswith(("http", "ws", "file"))} <= {path.as_uri()}
