"""The configuration of the NATS server: TLS for both sides, and what each party may do.

A party is known by its certificate alone. It may publish on `to.*.<itself>` and subscribe to
`to.<itself>.*`, nothing else; there is no other user, no JetStream and no monitoring port. Only TLS
keys of the directory are accepted, so a key that was replaced is refused from the next reload on
(servers before 2.10 only refuse its next connection).

TLS 1.3 is the least version: only its cipher suites are listed, which servers from 2.9 on
understand (the setting `min_version` came later).

After parties were issued, write the configuration again and let the server read it, without
disturbing connections: `nats-server --signal reload=PID_FILE`, or `Broker.reload`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from lumos.deploy.directory import DIRECTORY, Directory
from lumos.deploy.federation_authority import BROKER
from lumos.deploy.key_files import AUTHORITY, CERTIFICATE, KEY, read_certificate, read_private
from lumos.deploy.parties import own_subjects, publish_subjects, user_name
from lumos.errors import UsageError
from lumos.storage import write_text

_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_SPARE_CONNECTIONS = 16
_LOG_BYTES = 16 << 20
_LARGEST_PAYLOAD = 64 << 20


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """What an operator chooses of the NATS server."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every one."""
    port: int = 4222
    max_payload: int = 1 << 20
    """Bytes of the largest message."""
    max_connections: int | None = None
    """By default two for each party, for those that come back before they are missed, and some."""
    log_file: Path | None = None
    """By default standard error."""
    pid_file: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.port < 1 << 16:
            raise UsageError(f"`port` must be from 1 to 65535, got {self.port}")
        if not 0 < self.max_payload <= _LARGEST_PAYLOAD:
            raise UsageError(f"`max_payload` must be from 1 to {_LARGEST_PAYLOAD} bytes")
        if self.max_connections is not None and self.max_connections < 1:
            raise UsageError("`max_connections` must be at least 1")


DEFAULTS = BrokerSettings()


def write_broker_config(pki: Path, out: Path, settings: BrokerSettings = DEFAULTS) -> Directory:
    """Write the configuration for the parties that an authority has listed.

    Args:
        pki: folder of the authority.
        out: the file.
        settings: what an operator chooses.

    Returns:
        The directory that it is for.

    Raises:
        UsageError: the broker has no certificate yet, or there are no parties.
        InputError: the directory or a key is refused.
    """
    broker = pki / BROKER
    if not (broker / CERTIFICATE).is_file():
        raise UsageError(
            f"{pki}: the broker has no certificate; type: lumos pki issue {pki} --broker"
        )
    directory = Directory.load(pki / DIRECTORY, read_certificate(broker / AUTHORITY))
    read_certificate(broker / CERTIFICATE)
    read_private(broker / KEY)  # refuses one that others may read
    write_text(out, broker_config(directory, broker, settings))
    return directory


def broker_config(directory: Directory, broker: Path, settings: BrokerSettings = DEFAULTS) -> str:
    """Return the text of the configuration.

    Args:
        directory: whom to admit.
        broker: folder with the broker's certificate and key.
        settings: what an operator chooses.

    Raises:
        UsageError: there are no parties: the server takes empty lists for no limit.
    """
    if not directory.parties:
        raise UsageError("no party has a certificate yet; type: lumos pki issue")
    connections = settings.max_connections or 2 * len(directory.parties) + _SPARE_CONNECTIONS
    lines = [
        f"# Lumos, directory {directory.serial}: {len(directory.parties)} parties.",
        "# After a change, write this file again; then: nats-server --signal reload=PID_FILE",
        'server_name: "lumos"',
        f"host: {_quoted(settings.host)}",
        f"port: {settings.port}",
        f"max_payload: {settings.max_payload}",
        f"max_connections: {connections}",
    ]
    if settings.log_file is not None:
        lines += [f"log_file: {_path(settings.log_file)}", f"logfile_size_limit: {_LOG_BYTES}"]
    if settings.pid_file is not None:
        lines.append(f"pid_file: {_path(settings.pid_file)}")
    pins = ", ".join(_quoted(listed.tls_key) for listed in directory.parties.values())
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
        *(_user(party) for party in directory.parties),
        "  ]",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _user(party: int) -> str:
    publish, subscribe = _quoted(publish_subjects(party)), _quoted(own_subjects(party))
    permissions = f"{{publish: {{allow: [{publish}]}}, subscribe: {{allow: [{subscribe}]}}}}"
    return f"    {{user: {_quoted(user_name(party))}, permissions: {permissions}}}"


def _path(path: Path) -> str:
    return _quoted(str(path.resolve()))


def _quoted(text: str) -> str:
    """Quote a string as nats-server reads it: as in JSON, but without escapes of letters."""
    if not text.isprintable():
        raise UsageError(f"{text!r} has a character that a configuration cannot hold; rename it")
    return json.dumps(text, ensure_ascii=False)
