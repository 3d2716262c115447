"""The status of a run of real devices, as its coordinator publishes it: nothing in it is private.

A single device appears with its public id, and with whether it answers or is left out. No part of
the protocol needs the status; people do. History and losses are written to files, so that the
coordinator still has them after a restart.
"""

import math
import socketserver
import sys
import threading
import time
from array import array
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import lumos
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.protocol.frames import RUN_TAG
from lumos.deploy.protocol.job import TrainingJob
from lumos.errors import InputError, UsageError
from lumos.exchange.messages import TOPICS
from lumos.storage import one_line, sync_file, write_at, write_bytes, write_text
from lumos.training.config import Config
from lumos.training.trainer import EpochRecord

LOSSES = "losses.bin"
_NONE = float("-inf")
"""In place of the loss of an epoch that has none."""
_FORM = np.dtype("<f8")


class EpochLosses:
    """The losses of one run: eight bytes for each epoch, in memory and in a file.

        file = tag of the run (16 bytes) ‖ loss of epoch 1 (float64) ‖ loss of epoch 2 ‖ …

    This, and nothing else that the coordinator keeps, grows with the number of epochs. An epoch
    that is repeated after a restart is written to the same place again.

    Args:
        run: the run's tag; losses of another run are not continued.
        file: where they are kept; None: in memory only.

    Raises:
        InputError: the file cannot be read.
    """

    def __init__(self, run: bytes, file: Path | None = None) -> None:
        self._run, self._file = run, file
        self._losses = array("d")
        """By epoch; the first is 1."""
        self._begun = file is not None and file.exists() and self._read(file)
        """True once there is a file of this run."""

    def add(self, epoch: int, loss: float | None) -> None:
        """Note the loss of an epoch; it survives the end of this process."""
        first = min(len(self._losses), epoch - 1)
        while len(self._losses) < epoch:
            self._losses.append(_NONE)
        self._losses[epoch - 1] = _NONE if loss is None else loss
        if self._file is not None:
            if not self._begun:
                write_bytes(self._file, self._run, private=True)
                self._begun = True
            fresh = np.array(self._losses[first:epoch], _FORM).tobytes()
            write_at(self._file, fresh, RUN_TAG + first * _FORM.itemsize)

    def sync(self) -> None:
        """Make everything survive a loss of power."""
        if self._file is not None and self._begun:
            sync_file(self._file)

    def items(self) -> list[tuple[int, float]]:
        """Return (epoch, loss) of every epoch that has one."""
        return [(epoch, loss) for epoch, loss in enumerate(self._losses, 1) if loss != _NONE]

    def values(self) -> list[float]:
        """Return the losses alone."""
        return [loss for loss in self._losses if loss != _NONE]

    @property
    def last(self) -> float | None:
        """The loss of the last epoch that has one."""
        return next((loss for loss in reversed(self._losses) if loss != _NONE), None)

    def _read(self, file: Path) -> bool:
        """Read the file; return whether it is of this run."""
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({one_line(error)})") from None
        if content[:RUN_TAG] != self._run:
            return False
        whole = (len(content) - RUN_TAG) // _FORM.itemsize
        self._losses.extend(np.frombuffer(content, _FORM, whole, RUN_TAG).tolist())
        return True


RECENT = 50
"""Sums whose seconds are kept."""
MAX_SHOWN = 2000
"""Losses that are shown: of a longer run every second one, every third, …"""


class HistoryFile(msgspec.Struct, kw_only=True):
    """The content of the file."""

    run: str
    """The run's tag in hexadecimal: the history of another run is not continued."""
    started: float
    """The start of the run, in seconds since 1970."""
    left_out: dict[int, float] = {}
    """The time at which each device was left out, in seconds since 1970."""


class RunHistory:
    """The history of one run.

    Args:
        run: the run's tag.
        file: where it is kept, with the losses beside it; None: in memory only.
        wall: the time of day, in seconds since 1970.

    Raises:
        InputError: a file is damaged.
    """

    def __init__(
        self, run: bytes, file: Path | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        self.wall = wall
        self._file = file
        kept = _read(file, run.hex())
        self._kept = kept or HistoryFile(run=run.hex(), started=wall())
        self._written = kept is not None
        self.all_losses = EpochLosses(run, None if file is None else file.with_name(LOSSES))
        """The losses of every epoch."""
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._sums: int | None = None
        self._opened: float | None = None
        """The time at which the last sum was opened."""
        self._steps: deque[tuple[int, float]] = deque(maxlen=RECENT)
        """(step of the trees, time at which it was seen first), of the last steps."""

    @property
    def run(self) -> str:
        """The run's tag in hexadecimal."""
        return self._kept.run

    @property
    def started(self) -> float:
        """The start of the run, in seconds since 1970."""
        return self._kept.started

    @property
    def losses(self) -> list[tuple[int, float]]:
        """(epoch, mean training loss), where there is one; at most `MAX_SHOWN`, the last too."""
        finite = [item for item in self.all_losses.items() if math.isfinite(item[1])]
        step = -(-len(finite) // MAX_SHOWN) or 1
        return finite[::-1][::step][::-1]

    @property
    def recent(self) -> list[tuple[int, float]]:
        """(number of the sum, seconds since the one before it) of the last sums."""
        return list(self._recent)

    @property
    def seconds_per_sum(self) -> float | None:
        """Median of `recent`; None before two sums."""
        return median(seconds for _, seconds in self._recent) if self._recent else None

    def seconds_left(self, steps: int) -> float | None:
        """Return about how long the rest of so many steps takes; None while that is unknown."""
        if len(self._steps) < 2:
            return None
        (first, began), (last, now) = self._steps[0], self._steps[-1]
        return (steps - last) * (now - began) / (last - first)

    def left_out_at(self, device: int) -> float:
        """Return the time at which a device was left out, in seconds since 1970."""
        return self._kept.left_out[device]

    def on_epoch(self, record: EpochRecord) -> None:
        """Note the loss of an epoch: `TrainingJob` calls this."""
        self.all_losses.add(record.epoch, record.loss)
        if not self._written:
            self._write()

    def watch(self, participant: CoordinatorParticipant, now: float) -> None:
        """Note what has changed; call it after every `participant.advance(now)`."""
        fresh = participant.left_out.keys() - self._kept.left_out.keys()
        if fresh:
            self._kept.left_out |= dict.fromkeys(fresh, self.wall())
            self._write()
        if self._sums is not None and participant.sums != self._sums:
            # After a restart several sums are read from the disk at once: nobody measured them.
            if self._opened is not None and participant.sums == self._sums + 1:
                self._recent.append((participant.sums, now - self._opened))
            self._opened = now
        self._sums = participant.sums
        steps = participant.job.steps
        if self._steps and steps < self._steps[-1][0]:
            self._steps.clear()  # they have begun again
        if steps and (not self._steps or steps > self._steps[-1][0]):
            self._steps.append((steps, now))

    def _write(self) -> None:
        self._written = True
        if self._file is not None:
            write_text(self._file, msgspec.json.encode(self._kept).decode() + "\n")


def _read(file: Path | None, run: str) -> HistoryFile | None:
    """Return the history file of this run; None where there is none."""
    if file is None or not file.exists():
        return None
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=HistoryFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{file}: cannot be read ({one_line(error)}); delete it: only times of the status page "
            "are lost"
        ) from None
    return kept if kept.run == run else None


STATUS = "status.json"


ANSWERS = 5.0
"""Beats after which a device that did not answer is no longer online."""


class WireBytes(NamedTuple):
    """Bytes on the coordinator's connection since this start, padding included."""

    sent: int = 0
    received: int = 0


NO_BYTES = WireBytes()


class TopicFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one topic that the coordinator sent, or received."""

    topic: str
    """Its name."""
    door: str
    """The door it leaves through, which says what protects it."""
    direction: str
    """`sent` to devices or `received` from them."""
    messages: int
    """Number of messages."""
    bytes: int
    """Bytes of their bodies."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A device that did not answer in time."""

    device: int
    """Its public id."""
    phase: str
    """The phase in which it was left out."""
    at: str
    """The time: ISO 8601, UTC."""


class RunStage(msgspec.Struct, frozen=True, kw_only=True):
    """Epochs in which one part of the model learns: losses of two stages cannot be compared."""

    name: str
    """Its name for people."""
    first: int
    """Its first epoch; 1 is the first of the run."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a run, as the page shows it, and `status.json` in short."""

    run: str
    """The first 8 hexadecimal digits of the run's tag."""
    task: str
    """`classify` or `link`."""
    profile: str
    """Name of the privacy profile."""
    randomness: str
    """`system`, or `seeded` in tests, which protects nobody."""
    devices: int
    """Devices in all, those that are left out included."""
    online: int
    """Devices that take part and answer."""
    silent: list[int]
    """Public ids of devices that take part, and do not answer at present."""
    phase: str
    """Name of the present phase; of the last one, once the run has ended."""
    phase_number: int
    """Its number; 1 is the first."""
    phases: int
    """Phases in all."""
    phases_done: int
    """Phases that are over."""
    attempt: int
    """Number of times that the present phase has begun again."""
    epochs: int
    """Epochs in all."""
    stages: list[RunStage]
    """Stages of training, in order."""
    sums: int
    """Sums that were opened so far."""
    seconds_per_sum: float | None
    """Median of `recent_seconds`; None before two sums."""
    recent_seconds: list[tuple[int, float]]
    """(number of a sum, seconds since the one before it was opened) of the last sums."""
    ledger: list[TopicFlow]
    """Counts of the coordinator's own ledger, by topic and direction."""
    wire_sent: int
    """Bytes that the coordinator's connection has sent since it started."""
    wire_received: int
    """Bytes that it has received."""
    losses: list[tuple[int, float]]
    """(epoch, mean training loss), which all participants learn from a sum."""
    about_losses: str
    """A sentence that describes these losses."""
    left_out: list[LeftOut]
    """Devices that are left out for good, the first one first."""
    ended: str | None
    """Empty: the run is finished; a line: it has failed, and why; None: it goes on."""
    headline: str
    """All of it in one sentence."""
    started: str
    """The start of the run: ISO 8601, UTC."""
    updated: str
    """The time of this status: ISO 8601, UTC."""
    seconds: float = 0.0
    """From one to the other."""
    step: int = 0
    """The present step of the trees; 0 where they have none."""
    steps: int = 0
    """Their steps in all."""
    seconds_left: float | None = None
    """About how long the rest of them takes, as the last ones did."""

    @property
    def place(self) -> str:
        """The present phase, with its step and the time that is left."""
        if not self.step:
            return self.phase
        return f"{self.phase}, {_of_steps(self.step, self.steps, self.seconds_left)}"

    def text(self) -> str:
        """Return the content of `status.json`, which does not grow with the run."""
        brief = msgspec.structs.replace(self, losses=self.losses[-1:], recent_seconds=[])
        return msgspec.json.encode(brief).decode() + "\n"


def status_of(
    participant: CoordinatorParticipant,
    config: Config,
    history: RunHistory,
    now: float,
    *,
    beat: float = 1.0,
    wire: WireBytes = NO_BYTES,
) -> RunStatus:
    """Return the status of a run.

    Args:
        participant: the coordinator.
        config: settings of the run.
        history: history of the run so far.
        now: as `participant.advance` takes it.
        beat: seconds between two signs of life of a device.
        wire: bytes on the connection.
    """
    history.watch(participant, now)
    job, texts = participant.job, config.profile.texts(config)
    silent = participant.silent(now, ANSWERS * beat)
    shown = min(participant.phase, job.last)
    stages = {texts.first_stage: 1, **texts.stages}
    steps = job.steps_in(participant.phase)
    step = min(job.steps, steps)
    seconds_left = history.seconds_left(steps) if step else None
    return RunStatus(
        run=history.run[:8],
        task=config.train.task,
        profile=config.train.profile,
        randomness=config.train.randomness,
        devices=job.total,
        online=len(participant.present()) - len(silent),
        silent=silent,
        phase=job.name(shown),
        phase_number=shown + 1,
        phases=job.last + 1,
        phases_done=participant.phase,
        attempt=participant.attempt,
        epochs=config.train.epochs,
        stages=[RunStage(name=name, first=first) for name, first in stages.items()],
        sums=participant.sums,
        seconds_per_sum=history.seconds_per_sum,
        recent_seconds=history.recent,
        ledger=list(_flows(job)),
        wire_sent=wire.sent,
        wire_received=wire.received,
        losses=history.losses,
        about_losses=texts.loss,
        left_out=_left_out(participant, history),
        ended=participant.ended,
        headline=_headline(
            participant, len(participant.present()) - len(silent), step, steps, seconds_left
        ),
        started=_iso(history.started),
        updated=_iso(history.wall()),
        seconds=round(history.wall() - history.started, 3),
        step=step,
        steps=steps,
        seconds_left=seconds_left,
    )


def read_status(folder: Path) -> RunStatus | None:
    """Return the status in the folder of the coordinator; None before the first."""
    try:
        return msgspec.json.decode((folder / STATUS).read_bytes(), type=RunStatus)
    except (OSError, msgspec.MsgspecError):
        return None


def _of_steps(step: int, steps: int, seconds_left: float | None) -> str:
    left = "" if seconds_left is None else f", about {seconds_left:,.0f} s left"
    return f"step {step:,} of {steps:,}{left}"


def _headline(
    participant: CoordinatorParticipant,
    online: int,
    step: int,
    steps: int,
    seconds_left: float | None,
) -> str:
    total, lost = participant.job.total, len(participant.out)
    if participant.ended:
        return f"The run has failed: {participant.ended}"
    if participant.ended == "":
        end = f"{lost} of {total} devices were left out" if lost else f"all {total} devices stayed"
        return f"The run has finished after {_count(participant.sums, 'sum')}; {end}"
    if not online and not participant.phase:
        return f"Waiting for {total} devices; none has answered yet"
    phase = participant.job.name(participant.phase)
    left = f", {lost} left out" if lost else ""
    if step:
        phase = f"{phase}, {_of_steps(step, steps, seconds_left)}"
    return f"{phase[:1].upper()}{phase[1:]}: {online} of {total} devices online{left}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _left_out(participant: CoordinatorParticipant, history: RunHistory) -> list[LeftOut]:
    times = {device: history.left_out_at(device) for device in participant.left_out}
    return [
        LeftOut(device=device, phase=participant.left_out[device], at=_iso(times[device]))
        for device in sorted(times, key=lambda device: (times[device], device))
    ]


def _flows(job: TrainingJob) -> Iterator[TopicFlow]:
    """Return the flows by topic and direction, without empty ones."""
    for name, flow in sorted(job.ledgers.flows().items()):
        for direction in ("received", "sent"):
            if messages := flow.get(direction, 0):
                yield TopicFlow(
                    topic=name,
                    door=TOPICS[name].door.value,
                    direction=direction,
                    messages=messages,
                    bytes=flow[f"bytes_{direction}"],
                )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


# The status page of a coordinator: a small HTTP server that only this machine can reach.
#
# It listens on 127.0.0.1, answers GET of two addresses, and refuses requests that were sent to any
# other name than a loopback one: a page of a foreign site whose name is made to point to 127.0.0.1
# (DNS rebinding) reads nothing. The page loads nothing from elsewhere and sets no cookie; its one
# script, which the Content-Security-Policy names by its digest, asks for `/status.json` every
# second.
#
# The server has a thread of its own and never touches the coordinator: it serves what was
# published.

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({LOOPBACK, "localhost", "[::1]"})
"""Names that a `Host` header may have; with any port, as a tunnel has another one."""
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
    """Return the page and the policy that allows its own style and script, and nothing else."""
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
        """The URL to open in a browser."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="status page", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, status: RunStatus) -> None:
        """Show this status on the page from now on."""
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
        """Return the last status as JSON for a browser; null before the first."""
        self._asked = True
        return self._status

    def was_sent(self, status: bytes) -> None:
        """Note that a browser has received this status."""
        if status is self._status:
            self._shown.set()


class StatusFeed:
    """A publisher of a run's status at intervals of `EVERY` seconds.

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
        """The time of the next status, on the clock of `update`."""

    def update(
        self, participant: CoordinatorParticipant, now: float, wire: WireBytes = NO_BYTES
    ) -> None:
        """Record changes, and publish them from time to time; call this after every `advance`."""
        self._history.watch(participant, now)
        if now < self.next_due and participant.ended == self._ended:
            return
        self.next_due, self._ended = now + EVERY, participant.ended
        self._publish(
            status_of(participant, self._config, self._history, now, beat=self._beat, wire=wire)
        )


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, page: StatusPage) -> None:
        self.page = page
        self.served = make_page()
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnects."""
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
        """Return whether the request was sent to a loopback name, and to one name only."""
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
        """Send a refusal, in plain text and with the same headers."""
        status = HTTPStatus(code)
        self._answer(status, _TEXT, f"{message or status.phrase}\n".encode())

    def version_string(self) -> str:
        """Return the header `Server`, without a version."""
        return "Lumos"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
