"""The status page: who is answered, what a browser may do with it, and that it keeps up."""

import hashlib
import http.client
import json
import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.deploy.watched import WatchedFederation, config_of, split
from tests.report.chromium import Browser, Tab
from tests.report.test_browser import DRAWN, SIZES, channels, contrast, of_scheme

import lumos
from lumos.deploy.status import (
    EVERY,
    LeftOut,
    RunStage,
    RunStatus,
    StatusFeed,
    StatusPage,
    TopicFlow,
    WireBytes,
)
from lumos.errors import UsageError

BOUND = 120.0
"""Seconds after which a page that does not show something is an error."""
TIME = "2026-11-17T12:00:{:02d}.000+00:00"

RUNNING = RunStatus(
    run="a1b2c3d4",
    task="classify",
    profile="strict",
    randomness="system",
    devices=60,
    online=56,
    silent=[3, 41],
    phase="epoch 40 of 62",
    phase_number=42,
    phases=65,
    phases_done=41,
    attempt=1,
    epochs=62,
    stages=[RunStage(name="encoder", first=1), RunStage(name="trust", first=20)],
    sums=41,
    seconds_per_sum=0.42,
    recent_seconds=[(number, 0.4 + number % 3 / 50) for number in range(2, 42)],
    ledger=[
        TopicFlow(
            topic="aggregate/draw-contribution",
            door="aggregate",
            direction="received",
            messages=60,
            bytes=960,
        ),
        TopicFlow(
            topic="aggregate/lost",
            door="control",
            direction="sent",
            messages=123_456,
            bytes=987_654_321,
        ),
    ],
    wire_sent=12_345_678,
    wire_received=999,
    losses=[(epoch, -5.0 * epoch if epoch > 19 else 1 / epoch) for epoch in range(2, 40)],
    about_losses="What losses are.",
    left_out=[LeftOut(device=n, phase="epoch 9 of 62", at=TIME.format(7)) for n in (7, 23)],
    ended=None,
    headline="Epoch 40 of 62: 56 of 60 devices online, 2 left out",
    started=TIME.format(0),
    updated=TIME.format(40),
)
HOSTILE = "</script><img src=x onerror=console.error(1)><b>"
KINDS = {
    "begun": msgspec.structs.replace(
        RUNNING, losses=[], left_out=[], ledger=[], recent_seconds=[], seconds_per_sum=None
    ),
    "running": RUNNING,
    "finished": msgspec.structs.replace(RUNNING, ended="", phases_done=65, silent=[], headline="F"),
    "failed": msgspec.structs.replace(RUNNING, ended="lost " * 80, headline="lost " * 80),
    "one point": msgspec.structs.replace(
        RUNNING, losses=[(2, 0.5)], recent_seconds=[(2, 0.0)], silent=list(range(40))
    ),
    "hostile": msgspec.structs.replace(
        RUNNING, headline=HOSTILE, phase=HOSTILE, task=HOSTILE, about_losses=HOSTILE
    ),
}


@pytest.fixture
def page() -> Iterator[StatusPage]:
    with StatusPage() as made:
        made.publish(RUNNING)
        yield made


def ask(
    page: StatusPage, path: str = "/", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=BOUND)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_it_answers(page: StatusPage) -> None:
    answer, body = ask(page, "/status.json")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "application/json")
    assert msgspec.json.decode(body, type=RunStatus) == RUNNING
    answer, body = ask(page)
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!DOCTYPE html>")
    assert page.address == f"http://127.0.0.1:{page.port}/"


def test_before_the_first_status() -> None:
    with StatusPage() as page:
        assert json.loads(ask(page, "/status.json")[1]) is None


def test_it_listens_on_loopback_only(page: StatusPage) -> None:
    assert page._server.server_address == ("127.0.0.1", page.port)
    with socket.socket() as other:  # nobody has this port on another address of the machine
        other.bind(("127.0.0.2", page.port))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000"],
)
def test_loopback_names(page: StatusPage, host: str) -> None:
    assert ask(page, "/status.json", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "127.0.0.1.example.org",
        "localhost.example.org:80",
        "127.0.0.1@example.org",
        "example.org:127.0.0.1",
        "192.168.0.1",
        "10.0.0.1:8000",
        "::1",
        "",
        "localhost:",
        "localhost:80:80",
    ],
)
@pytest.mark.parametrize("path", ["/", "/status.json"])
def test_other_names_are_refused(page: StatusPage, host: str, path: str) -> None:
    """A page of a foreign site whose name points to 127.0.0.1 reads nothing."""
    answer, body = ask(page, path, Host=host)
    assert answer.status == 403
    assert b"a1b2c3d4" not in body
    assert b"script" not in body


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /status.json HTTP/1.0\r\n\r\n",
        b"GET /status.json\r\n\r\n",
        b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n",
        b"GET http://example.org/status.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /status.json HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01 \xff\xff \xff\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_requests_that_no_browser_sends(
    page: StatusPage, request_: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", page.port), BOUND) as connection:
        connection.sendall(request_)
        answer = b""
        try:
            while part := connection.recv(1 << 16):
                answer += part
        except ConnectionResetError:  # it answered before it had read everything
            pass
    assert b"a1b2c3d4" not in answer
    assert b" 200 " not in answer
    assert ask(page, "/status.json")[0].status == 200  # it goes on
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_only_get(page: StatusPage, method: str) -> None:
    answer, _ = ask(page, "/status.json", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET")


@pytest.mark.parametrize(
    "path", ["/../etc/passwd", "/status.json?x", "/favicon.ico", "/index.html", "*"]
)
def test_other_addresses(page: StatusPage, path: str) -> None:
    assert ask(page, path)[0].status == 404


@pytest.mark.parametrize(
    ("path", "method", "host"),
    [
        ("/", "GET", "localhost"),
        ("/status.json", "GET", "localhost"),
        ("/nothing", "GET", "localhost"),
        ("/", "POST", "localhost"),
        ("/", "BREW", "localhost"),
        ("/", "GET", "example.org"),
    ],
)
def test_headers(page: StatusPage, path: str, method: str, host: str) -> None:
    answer, _ = ask(page, path, method, Host=host)
    policy = dict(
        part.split(" ", 1)
        for part in (answer.getheader("Content-Security-Policy") or "").split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert not any("unsafe" in of or "http" in of or "*" in of for of in policy.values())
    assert answer.getheader("Set-Cookie") is None
    assert answer.getheader("Access-Control-Allow-Origin") is None
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert answer.getheader("Server") == "Lumos"


def test_the_policy_names_style_and_script(page: StatusPage) -> None:
    answer, body = ask(page)
    html, policy = body.decode(), answer.getheader("Content-Security-Policy") or ""
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in policy
    assert not re.search(r"""\s(style|on\w+)=|(src|href)=["'](?!/status\.json|data:,)""", html)


def test_ports() -> None:
    with StatusPage() as page, pytest.raises(UsageError, match=f"port {page.port} of 127.0.0.1"):
        StatusPage(page.port)
    with StatusPage(page.port) as again:  # free at once
        assert again.port == page.port
    for port in (-1, 65536):
        with pytest.raises(UsageError, match=f"from 0 to 65535, got {port}"):
            StatusPage(port)


def test_a_feed_publishes_now_and_then_and_the_end_at_once(tmp_path: Path) -> None:
    folder = split(lumos.load("demo:12"), tmp_path / "parts")
    federation = WatchedFederation(folder, config_of())
    with StatusPage() as page:
        feed = StatusFeed(page.publish, federation.config, federation.history)
        shown: list[tuple[float, RunStatus]] = []

        def stop() -> bool:
            feed.update(federation.coordinator, federation.now, WireBytes(1, 2))
            status = msgspec.json.decode(page.fetched(), type=RunStatus)
            if not shown or shown[-1][1] != status:
                shown.append((federation.now, status))
            return federation.coordinator.finished

        federation.run(stop)
        page._asked = False  # it was this test
    assert shown[0][1].phases_done == 0
    times = [now for now, status in shown if status.ended is None]
    assert all(after - before >= EVERY - 1e-9 for before, after in pairwise(times))
    assert shown[-1][1].ended == ""
    assert (shown[-1][1].wire_sent, shown[-1][1].wire_received) == (1, 2)
    first_end = next(now for now, status in shown if status.ended is not None)
    assert first_end < times[-1] + EVERY


def wait(tab: Tab, expression: str, expected: Callable[[Any], bool] = bool) -> Any:
    """The value of an expression, once it is as expected."""
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        value = tab.measure(expression)
        if expected(value):
            return value
        time.sleep(0.05)
    raise AssertionError(f"{expression} stays {value!r}")


TITLE = "document.getElementById('title').textContent"
HEADLINE = "document.getElementById('headline').textContent"
NOTICE = "document.getElementById('notice').textContent"
KIND = "document.getElementById('state').className"
WORDS = "document.body.innerText"


CLOCK = """
performance.now = () => window.now ?? 0;
window.setTimeout = ((real) => (call, after) => real(call, after / 20))(window.setTimeout);
"""
"""The page's clock stands still until a test sets it, and a second between requests is short."""


@contextmanager
def opened(chromium: Browser, width: int) -> Iterator[Tab]:
    """A tab with scripts whose clock belongs to the test."""
    with chromium.tab(width, scripts=True, offline=False) as tab:
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
        yield tab


def shows(tab: Tab, page: StatusPage) -> None:
    tab.visit(page.address)
    wait(tab, TITLE, lambda title: title == f"Run {RUNNING.run}")


def test_it_shows_the_status(chromium: Browser, page: StatusPage) -> None:
    with opened(chromium, 1280) as tab:
        shows(tab, page)
        words = tab.measure(WORDS)
        for part in (
            RUNNING.headline, "strict profile · classify · 60 devices · randomness: system",
            "56 of 60", "2 left out; no answer from 3, 41", "epoch 40 of 62", "42 of 65, trust",
            "began again 1 ×", "0.42 s", "median of 40; 41 opened so far", "−195", "12.3 MB",
            "40 s", "7, 23", "epoch 9 of 62", "aggregate/lost", "control", "to devices",
            "from devices", "123,456", "987,654,321", "987,655,281", "What losses are.",
        ):  # fmt: skip
            assert part in words
        titles = tab.measure(
            "[...document.querySelectorAll('svg title')].map((t) => t.textContent)"
        )
        assert titles == [
            "Training loss: encoder", "Training loss: trust", "Seconds from one sum to the next",
        ]  # fmt: skip
        assert tab.measure("document.getElementById('progress').value") == pytest.approx(41 / 65)
        wait(tab, NOTICE, "".__eq__)
        assert tab.complaints == []


def test_a_loss_curve_goes_through_its_points(chromium: Browser, page: StatusPage) -> None:
    """The line of the second stage falls evenly: its ends are where the axes have their values."""
    with opened(chromium, 1280) as tab:
        shows(tab, page)
        path = tab.measure(
            "document.querySelectorAll('svg')[1].querySelector('path').getAttribute('d')"
        )
        texts = tab.measure(
            "[...document.querySelectorAll('svg')[1].querySelectorAll('text[text-anchor]')].map("
            "(t) => [t.textContent, +t.getAttribute('x'), +t.getAttribute('y') - 4.5])"
        )
    points = [tuple(map(float, point.split(" "))) for point in re.split("[ML]", path)[1:]]
    assert len(points) == 20  # epochs 20 to 39
    levels = {float(t.replace("−", "-")): y for t, _, y in texts if re.fullmatch(r"−\d+", t)}
    (low, y_low), (high, y_high) = min(levels.items()), max(levels.items())
    for epoch, (_, y) in enumerate(points, 20):
        value = low + (y - y_low) / (y_high - y_low) * (high - low)
        assert value == pytest.approx(-5 * epoch, abs=0.2)
    across = {int(t): x for t, x, _ in texts if t.isdecimal() and 20 <= int(t) <= 39}
    assert across
    for epoch, x in across.items():
        assert points[epoch - 20][0] == pytest.approx(x, abs=0.1)


def test_it_keeps_up_with_a_run_and_says_when_it_is_lost(chromium: Browser, tmp_path: Path) -> None:
    """Without being loaded again, without a request to anybody else."""
    folder = split(lumos.load("demo:12"), tmp_path / "parts")
    federation = WatchedFederation(folder, config_of())
    page = StatusPage()
    try:
        with opened(chromium, 1280) as tab:
            tab.visit(page.address)
            wait(tab, NOTICE, lambda words: words == "The coordinator has not begun yet.")
            tab.measure("window.untouched = true")
            feed = StatusFeed(page.publish, federation.config, federation.history)
            feed.update(federation.coordinator, federation.now)
            wait(tab, HEADLINE, lambda words: words.startswith("Waiting for 12 devices"))
            wait(tab, NOTICE, "".__eq__)
            for phase in (3, 6):
                status = federation.run_until(federation.in_phase(phase))
                page.publish(status)
                wait(tab, HEADLINE, status.headline.__eq__)
            status = federation.run_until(lambda: federation.coordinator.finished)
            page.publish(status)
            wait(tab, KIND, lambda kind: kind == "state finished")
            assert f"{status.sums} sums" in tab.measure(HEADLINE)
            assert tab.measure("document.getElementById('progress').value") == 1
            assert tab.measure("document.querySelectorAll('svg').length") == 3
            assert tab.measure("window.untouched")
            assert tab.complaints == []
            assert set(tab.requests) == {page.address, f"{page.address}status.json"}
            page.close()
            notice = wait(tab, NOTICE)
            assert notice.startswith("The coordinator has stopped after its run; last update")
    finally:
        page.close()


def test_a_lost_connection_comes_back(chromium: Browser) -> None:
    with opened(chromium, 390) as tab:
        with StatusPage() as page:
            page.publish(RUNNING)
            shows(tab, page)
        notice = wait(tab, NOTICE)
        assert re.match(r"Connection lost, last update \d{4}-\d\d-\d\d \d\d:\d\d:40\.", notice)
        assert tab.measure(HEADLINE) == RUNNING.headline
        with StatusPage(page.port) as again:
            again.publish(KINDS["failed"])
            wait(tab, KIND, lambda kind: kind == "state failed")
            wait(tab, NOTICE, "".__eq__)


def test_a_coordinator_that_is_stuck(chromium: Browser, page: StatusPage) -> None:
    """The server answers, but with the same status for long."""
    with opened(chromium, 390) as tab:
        shows(tab, page)
        wait(tab, NOTICE, "".__eq__)
        tab.measure("window.now = 7000")
        assert "busy or stuck, last update" in wait(tab, NOTICE)


@pytest.mark.parametrize("kind", KINDS)
def test_it_fits(chromium: Browser, page: StatusPage, kind: str) -> None:
    page.publish(KINDS[kind])
    with opened(chromium, 1280) as tab:
        for width in (1280, 390, 320):
            tab.resize(width)
            shows(tab, page)
            sizes = tab.measure(SIZES)
            assert (sizes["client"], sizes["scroll"], sizes["out"]) == (width, width, [])
            if width == 390:
                for drawing in tab.measure(DRAWN):
                    left, top, right, bottom = drawing["frame"]
                    for text in drawing["texts"]:
                        box = text["box"]
                        assert left - 1 <= box[0] <= box[2] <= right + 1, text["words"]
                        assert top - 1 <= box[1] <= box[3] <= bottom + 1, text["words"]
                        assert text["size"] >= 8.9
            assert tab.complaints == []
            assert not tab.measure("document.images.length")


@pytest.mark.parametrize("kind", ["running", "finished", "failed"])
def test_words_stand_out(chromium: Browser, page: StatusPage, kind: str) -> None:
    page.publish(KINDS[kind])
    with opened(chromium, 1280) as tab:
        for scheme in ("light", "dark"):
            of_scheme(tab, scheme)
            shows(tab, page)
            check_contrast(tab, scheme)


def check_contrast(tab: Tab, scheme: str) -> None:
    paper = channels(tab.measure("getComputedStyle(document.body).backgroundColor"))
    tint = channels(
        tab.measure("getComputedStyle(document.getElementById('state')).backgroundColor")
    )
    words = tab.measure(
        "[...new Set([...document.querySelectorAll('body *')].map((e) => "
        "e instanceof SVGTextElement ? getComputedStyle(e).fill : getComputedStyle(e).color))]"
    )
    mark = tab.measure("getComputedStyle(document.getElementById('headline'), '::before').color")
    assert (paper.mean() > 0.5) == (scheme == "light")
    for colour in {*words, mark} - {"none"}:
        assert contrast(channels(colour), paper) >= 4.5, colour
        assert contrast(channels(colour), tint) >= 4.5, colour


def test_foreign_scripts_do_not_run(chromium: Browser, page: StatusPage) -> None:
    """What the tests above would notice: the policy stops a script that is not the page's own."""
    with opened(chromium, 390) as tab:
        shows(tab, page)
        tab.measure(
            "{const s = document.createElement('script'); s.textContent = 'window.ran = true';"
            "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x';"
            "fetch('http://127.0.0.1:9/').catch(() => 0); 0}"
        )
        wait(tab, "1", lambda _: sum("violates" in line for line in tab.complaints) >= 3)
        assert tab.measure("window.ran") is None
