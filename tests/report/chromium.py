"""A headless Chromium over its DevTools protocol: opens a page and reports what it sees.

No page may reach the network: the browser has no name resolution and is offline besides. A tab that
is not offline reaches servers on 127.0.0.1, and no others.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120
"""Seconds after which a browser that does not answer is an error."""
WANTED = (
    "there is no Chromium to open the page in; install the Debian package chromium "
    "(make browser INSTALL=yes), or put chromium or google-chrome on the path"
)


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser(profile: Path) -> Iterator["Browser"]:
    """A browser of its own, with an empty profile in that folder."""
    program = find()
    assert program is not None
    options = [
        "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
        "--disable-extensions", "--disable-component-update", "--mute-audio",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
    ]  # fmt: skip
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # Chromium refuses to be root otherwise
    command = [program, *options, "about:blank"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as process:
        try:
            yield Browser(_address(process, profile))
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: "subprocess.Popen[bytes]", profile: Path) -> str:
    """Where the browser listens; it writes that to a file once it is ready."""
    file = profile / "DevToolsActivePort"
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, f"Chromium ended at once (status {process.returncode})"
        if file.exists() and len(lines := file.read_text().split()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise AssertionError("Chromium does not say where it listens")


class Browser:
    """A running browser."""

    def __init__(self, address: str) -> None:
        self.address = address

    @contextmanager
    def tab(
        self, width: int, height: int = 900, *, scripts: bool = False, offline: bool = True
    ) -> Iterator["Tab"]:
        """A tab of that size, by default offline and with scripts disabled."""
        socket = websocket.create_connection(self.address, timeout=PATIENCE, suppress_origin=True)
        try:
            tab = Tab(socket, width, height, scripts, offline)
            yield tab
            tab.call("Target.closeTarget", targetId=tab.target)  # or it goes on working
        finally:
            socket.shutdown()  # at once: close() would wait for an answer


class Tab:
    """One tab, its console messages and its requests."""

    def __init__(
        self, socket: websocket.WebSocket, width: int, height: int, scripts: bool, offline: bool
    ) -> None:
        self._socket, self._number, self._session = socket, 0, ""
        self.complaints: list[str] = []
        """Console messages, exceptions, violations of the page's own policy."""
        self.requests: list[str] = []
        """Addresses that were asked for."""
        self._loaded = False
        self.target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=self.target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.call("Network.emulateNetworkConditions", offline=offline, **speed)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.resize(width, height)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the tab another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser, and record its events meanwhile."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        self._socket.send(json.dumps(request))
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        event, about = message.get("method"), message.get("params", {})
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Log.entryAdded":
            self.complaints.append(f"{about['entry']['level']}: {about['entry']['text']}")
        elif event == "Runtime.consoleAPICalled":
            words = [str(value.get("value")) for value in about["args"]]
            self.complaints.append(f"console.{about['type']}: {' '.join(words)}")
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        return message

    def open(self, page: Path) -> None:
        """Open a file and wait until it is there, with all it asked for."""
        self.visit(page.resolve().as_uri())

    def visit(self, address: str) -> None:
        """The same with a page at an address."""
        self.requests.clear()
        self.complaints.clear()
        self._loaded = False
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._receive()
        self.measure("1")  # every event until now has arrived

    def measure(self, expression: str) -> Any:
        """The value of an expression, asked by the tool and not by the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def html(self) -> str:
        """The document as the browser has understood it."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        text: str = self.call("DOM.getOuterHTML", nodeId=root)["outerHTML"]
        return text

    def screenshot(self) -> bytes:
        """What is visible, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
        return base64.b64decode(self.call("Page.printToPDF", **size)["data"])
