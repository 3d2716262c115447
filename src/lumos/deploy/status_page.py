"""The status page of a coordinator: a small HTTP server that only this machine can reach.

It listens on 127.0.0.1, answers GET of two addresses, and refuses requests that were sent to any
other name than a loopback one: a page of a foreign site whose name is made to point to 127.0.0.1
(DNS rebinding) reads nothing. The page loads nothing from elsewhere and sets no cookie; its one
script, which the Content-Security-Policy names by its digest, asks for `/status.json` every second.

The server has a thread of its own and never touches the coordinator: it serves what was published.
"""

import socketserver
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Self

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import lumos
from lumos.deploy.protocol.coordinator import CoordinatorParty
from lumos.deploy.status import NO_BYTES, RunHistory, RunStatus, WireBytes, status_of
from lumos.errors import UsageError
from lumos.training.config import Config

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({LOOPBACK, "localhost", "[::1]"})
"""What a `Host` header may name; with any port, as a tunnel has another one."""
PATIENCE = 10.0
"""Seconds that a client may take for its request."""
EVERY = 0.5
"""Seconds between two statuses that are published."""
LINGER = 3.0
"""Seconds that a closing page waits for browsers to fetch the last status."""

_JSON, _HTML, _TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TEMPLATES = Environment(
    loader=ChoiceLoader([PackageLoader("lumos.deploy"), PackageLoader("lumos.report")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class ServedPage(NamedTuple):
    """The page, which is the same for every run."""

    html: bytes
    policy: str
    """Its Content-Security-Policy."""


def make_page() -> ServedPage:
    """The page and the policy that allows its own style and script, and nothing else."""
    script = _TEMPLATES.get_template("status.js").render()
    style = "\n".join(
        _TEMPLATES.get_template(name).render() for name in ("style.css", "status.css")
    )
    html = _TEMPLATES.get_template("status.html").render(
        script=script, style=style, version=lumos.__version__
    )
    policy = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src": _digest(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return ServedPage(html.encode(), "; ".join(f"{name} {of}" for name, of in policy.items()))


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


class StatusPage:
    """The server. It runs from its construction to `close`.

    Args:
        port: on 127.0.0.1; 0: one that is free.

    Raises:
        UsageError: the port cannot be used.
    """

    def __init__(self, port: int = 0) -> None:
        if not 0 <= port <= 65535:
            raise UsageError(f"`status` must be a port from 0 to 65535, got {port}")
        self._status = b"null"
        self._asked = False
        self._shown = threading.Event()
        """Set when a browser has fetched the status that was published last."""
        try:
            self._server = _Server(port, self)
        except OSError as error:
            raise UsageError(
                f"`status`: port {port} of {LOOPBACK} cannot be used ({error.strerror}); choose "
                "another one, or 0 for one that is free"
            ) from None
        self.port: int = self._server.server_address[1]
        self.address = f"http://{LOOPBACK}:{self.port}/"
        """What to open in a browser."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="status page", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, status: RunStatus) -> None:
        """From now on this is what the page shows."""
        self._status = msgspec.json.encode(status)
        self._shown.clear()

    def close(self) -> None:
        """Stop; a browser that has the page open is given the last status before."""
        if self._asked:
            self._shown.wait(LINGER)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fetched(self) -> bytes:
        """The last status as JSON, for a browser that asks for it; null before the first."""
        self._asked = True
        return self._status

    def was_sent(self, status: bytes) -> None:
        """A browser has got that status."""
        if status is self._status:
            self._shown.set()


class StatusFeed:
    """Publishes the status of a run now and then.

    Args:
        publish: called with it.
        config: settings of the run.
        history: of the run; its `on_epoch` is what the coordinator's `TrainingJob` calls.
        beat: seconds between two signs of life of a device.
    """

    def __init__(
        self,
        publish: Callable[[RunStatus], None],
        config: Config,
        history: RunHistory,
        beat: float = 1.0,
    ) -> None:
        self._publish, self._config, self._history, self._beat = publish, config, history, beat
        self._ended: str | None = None
        self.next_due = float("-inf")
        """When `update` has something to do at the latest, on the clock of its `now`."""

    def update(self, party: CoordinatorParty, now: float, wire: WireBytes = NO_BYTES) -> None:
        """Note what has changed, and publish it now and then; after every `party.advance(now)`."""
        self._history.watch(party, now)
        if now < self.next_due and party.ended == self._ended:
            return
        self.next_due, self._ended = now + EVERY, party.ended
        self._publish(
            status_of(party, self._config, self._history, now, beat=self._beat, wire=wire)
        )


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, page: StatusPage) -> None:
        self.page = page
        self.served = make_page()
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE

    def do_GET(self) -> None:
        if not self._to_loopback():
            self.send_error(HTTPStatus.FORBIDDEN, "Open this page as http://127.0.0.1 or localhost")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, _HTML, self.server.served.html)
        elif self.path == "/status.json":
            status = self.server.page.fetched()
            self._answer(HTTPStatus.OK, _JSON, status)
            self.server.page.was_sent(status)
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "There are / and /status.json")

    def _refuse(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = _refuse
    do_CONNECT = _refuse

    def _to_loopback(self) -> bool:
        """Whether the request was sent to a loopback name, and to one name only."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1:
            return False
        name, colon, port = hosts[0].strip().lower().rpartition(":")
        if not colon or port.endswith("]"):  # no port, perhaps after an address in brackets
            name = hosts[0].strip().lower()
        elif not port.isdecimal():
            return False
        return name in LOOPBACK_NAMES

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self.server.served.policy)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A refusal, in plain text and with the same headers."""
        status = HTTPStatus(code)
        self._answer(status, _TEXT, f"{message or status.phrase}\n".encode())

    def version_string(self) -> str:
        """Of the header `Server`: nobody needs to know more."""
        return "Lumos"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
