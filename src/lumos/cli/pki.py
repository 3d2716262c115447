"""`lumos pki`: certificates of a federation, and the configuration of its broker."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from lumos.cli.common import Common, placed, report
from lumos.deploy.broker import DEFAULTS, BrokerSettings, write_broker_config
from lumos.deploy.evidence import check_evidence
from lumos.deploy.identity import Validity, fingerprint, folder_name
from lumos.deploy.pki import (
    BROKER,
    LOOPBACK,
    FederationAuthority,
    read_request,
    request_certificate,
)
from lumos.deploy.plan import sign_again
from lumos.device.shard import COORDINATOR
from lumos.errors import UsageError

app = App(name="pki", help="Issue the certificates of a deployment.", help_format="plaintext")

COMMON = Common()
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1)}
_MOST = 100_000
"""Devices that one command issues at most."""


@app.command(name="init", sort_key=0)
def init(
    pki: Annotated[Path, placed("pki")],
    /,
    *,
    valid: Annotated[str, placed("valid")] = "3650d",
    common: Common = COMMON,
) -> None:
    """Make the authority of a federation, in a new folder.

    Its private key, authority.key, never leaves this folder: who has it can issue certificates.

    Parameters
    ----------
    pki
        A new folder.
    valid
        How long the authority is valid, in days or hours, as 3650d.
    """
    common.refuse_seed("keys come from the operating system")
    authority = FederationAuthority.create(pki, _duration(valid))
    report(
        {
            "path": str(pki),
            "authority": fingerprint(authority.certificate),
            "ends": authority.certificate.not_valid_after_utc.isoformat(),
        },
        common,
        f"{pki}: a new authority. To go on, type: lumos pki issue {pki} --broker --coordinator",
    )


@app.command(name="issue", sort_key=1)
def issue(
    pki: Annotated[Path, placed("pki")],
    /,
    *,
    device: Annotated[list[str] | None, placed("device", negative="")] = None,
    coordinator: Annotated[bool, placed("coordinator", negative="", show_default=False)] = False,
    broker: Annotated[bool, placed("broker", negative="", show_default=False)] = False,
    host: Annotated[list[str] | None, placed("host", negative="")] = None,
    request: Annotated[Path | None, placed("request")] = None,
    valid: Annotated[str, placed("valid")] = "365d",
    common: Common = COMMON,
) -> None:
    """Issue certificates, for the first time or again.

    Each participant gets a folder, to be copied to it: certificate.pem, key.pem, seal.key and
    authority.pem. A participant that has one gets new keys, and the directory forgets the old ones:
    copy the new directory.json to all participants, and write the broker's configuration again.

    Parameters
    ----------
    pki
        A folder of lumos pki init.
    device
        A number, numbers as 3,5,8, or a range as 0-59; may be repeated.
    coordinator
        The coordinator.
    broker
        The NATS server.
    host
        A name or address by which participants reach the broker; may be repeated. By default this
        machine only: localhost, 127.0.0.1 and ::1.
    request
        A file of lumos pki request, of a device that keeps its private keys. Make sure that it is
        that device's: compare the fingerprint.
    valid
        How long certificates are valid, in days or hours, as 365d or 12h.
    """
    common.refuse_seed("keys come from the operating system")
    if host and not broker:
        raise UsageError("`host` has no effect without `broker`")
    participants = [COORDINATOR] * coordinator + _numbers(device or [])
    if not (participants or broker or request):
        raise UsageError("nobody is named; give `device`, `coordinator`, `broker` or `request`")
    if request is not None and (participants or broker):
        raise UsageError("`request` says itself whom it is for; leave out the others")
    authority, validity = FederationAuthority.open(pki), Validity.lasting(_duration(valid))
    result: dict[str, Any] = {"path": str(pki)}
    if request is not None:
        asked, _ = authority.issue_requested(request, validity)
        participants, result["fingerprint"] = [asked.keys.participant], asked.fingerprint
    else:
        if broker:
            authority.issue_broker(host or LOOPBACK, validity)
        if participants:
            authority.issue(participants, validity)
    result["issued"] = [BROKER] * broker + [
        folder_name(participant) for participant in participants
    ]
    result["participants"], result["serial"] = _directory(authority)
    result["ends"] = validity.end.isoformat()
    names = result["issued"]
    shown = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
    line = f"{pki}: issued {shown}, valid until {validity.end:%Y-%m-%d %H:%M} UTC"
    if request is not None:
        line += f"; request {result['fingerprint']}"
    report(result, common, line)


@app.command(name="request", sort_key=2)
def request(
    folder: Annotated[Path, placed("folder")],
    /,
    *,
    device: Annotated[list[str] | None, placed("device", negative="")] = None,
    coordinator: Annotated[bool, placed("coordinator", negative="", show_default=False)] = False,
    common: Common = COMMON,
) -> None:
    """Make a participant's keys on its own machine, and request a certificate.

    The file request.json goes to the authority; what lumos pki issue --request writes,
    certificate.pem and authority.pem, comes back into the same folder.

    Parameters
    ----------
    folder
        A folder for the keys, new or without any.
    device
        The number of the device.
    coordinator
        The coordinator instead.
    """
    common.refuse_seed("keys come from the operating system")
    participants = [COORDINATOR] * coordinator + _numbers(device or [])
    if len(participants) != 1:
        raise UsageError("a request is for one participant; choose one `device`, or `coordinator`")
    path = request_certificate(folder, participants[0])
    asked = read_request(path)
    report(
        {
            "path": str(path),
            "participant": folder_name(participants[0]),
            "fingerprint": asked.fingerprint,
        },
        common,
        f"{path}: for {folder_name(participants[0])}; fingerprint {asked.fingerprint}",
    )


@app.command(name="sign-plan", sort_key=3)
def sign_plan(
    pki: Annotated[Path, placed("pki")],
    plan: Annotated[Path, placed("plan")],
    /,
    *,
    common: Common = COMMON,
) -> None:
    """Sign a plan that was changed by hand, as the plan of a new run.

    Copy the file to all participants: those with different plans cannot run together.

    Parameters
    ----------
    pki
        A folder of lumos pki init.
    plan
        A file run.json, which is replaced.
    """
    common.refuse_seed("keys come from the operating system")
    signed = sign_again(plan, FederationAuthority.open(pki))
    report(
        {"path": str(plan), "run": signed.run, "tag": signed.tag.hex()},
        common,
        f"{plan}: signed, run {signed.run}; copy it to all participants",
    )


@app.command(name="nats-config", sort_key=4)
def nats_config(
    pki: Annotated[Path, placed("pki")],
    /,
    *,
    out: Annotated[Path, placed("out")],
    listen: Annotated[str, placed("listen")] = DEFAULTS.host,
    port: Annotated[int, placed("port")] = DEFAULTS.port,
    max_payload: Annotated[int, placed("max_payload")] = DEFAULTS.max_payload,
    common: Common = COMMON,
) -> None:
    """Write the configuration of the NATS server: mutual TLS, and what each participant may do.

    A participant may publish on to.*.ITSELF and subscribe to to.ITSELF.*, nothing else. After a
    change write the file again, then: nats-server --signal reload. Connections stay.

    Parameters
    ----------
    pki
        A folder of lumos pki init, with a broker's certificate.
    out
        The file to write.
    listen
        Address to listen on; 0.0.0.0 for every one.
    port
        Port to listen on.
    max_payload
        Bytes of the largest message.
    """
    common.refuse_seed("keys come from the operating system")
    settings = BrokerSettings(host=listen, port=port, max_payload=max_payload)
    directory = write_broker_config(pki, out, settings)
    participants = len(directory.participants)
    report(
        {"path": str(out), "participants": participants, "serial": directory.serial, "port": port},
        common,
        f"{out}: for {participants:,} participants. Start the server: nats-server -c {out}",
    )


@app.command(name="check-evidence", sort_key=5)
def check(
    file: Annotated[Path, placed("file")],
    folder: Annotated[Path, placed("folder")],
    /,
    *,
    common: Common = COMMON,
) -> None:
    """Check evidence that a device lied in a sum.

    The coordinator keeps it in the folder evidence, and names it in result.json. An edited file,
    one of another run, or one that proves no lie is refused.

    Parameters
    ----------
    file
        A file of evidence, as evidence/device-3.json.
    folder
        The folder of any participant of the run: its authority.pem, directory.json and run.json are
        read.
    """
    common.refuse_seed("nothing is drawn")
    found = check_evidence(file, folder)
    report(
        {"path": str(file), "device": found.device, "lie": found.lie, "run": found.plan.hex()},
        common,
        f"{file}: holds. Device {found.device} lied in run {found.plan.hex()[:12]}: {found.lie}",
    )


def _directory(authority: FederationAuthority) -> tuple[int, int]:
    directory = authority.directory
    return len(directory.participants), directory.serial


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([dh])", text)
    if match is None:
        raise UsageError(f"`valid` must be days or hours, as 365d or 12h, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _numbers(words: list[str]) -> list[int]:
    numbers: list[int] = []
    for word in (part for each in words for part in each.split(",")):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", word.strip())
        if match is None:
            raise UsageError(f"`device` must be a number, or a range as 0-59, got {word!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST - len(numbers):
            raise UsageError(f"`device`: {word} has none, or more than {_MOST:,} at once")
        numbers += range(first, last + 1)
    return numbers
