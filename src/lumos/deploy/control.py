"""Questions of a device's owner, through a socket in the device's folder.

Only the owner can open it. A question is a line of JSON, `{"ask": "label"}` or `{"ask": "link",
"device": 23}`; so is the answer. The question never leaves the machine. For a pair the device then
asks the other one, by real cryptography (`lumos.deploy.protocol.questions`).
"""

import asyncio
import json
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from lumos.deploy.protocol.job import TrainingJob
from lumos.deploy.protocol.questions import PairQuestions
from lumos.errors import InputError, LumosError, UsageError
from lumos.training.trainer import PairAnswer

SOCKET = "control.sock"
_LONGEST = 4096
_POLL = 0.02


class AskedParticipant(Protocol):
    """A device, in the training (`DeviceParticipant`) or after it (`AnsweringParticipant`)."""

    phase: int
    job: TrainingJob
    questions: PairQuestions

    @property
    def finished(self) -> bool:
        """True once the training is over."""
        ...


@asynccontextmanager
async def answering(
    folder: Path,
    participant: AskedParticipant,
    prediction: Callable[[], dict[str, Any]],
    wake: Callable[[], None],
) -> AsyncIterator[None]:
    """Answer the device's owner, inside.

    Args:
        folder: of the device.
        participant: the device.
        prediction: returns its prediction of itself, once the training is over.
        wake: makes the device go on.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await _answer(participant, prediction, wake, await reader.readline())
        except (ValueError, TypeError, KeyError):
            answer = {"error": "this is no question"}
        except LumosError as error:
            answer = {"error": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    (folder / SOCKET).unlink(missing_ok=True)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        # A path of any length: those of sockets have at most 107 bytes.
        server = await asyncio.start_unix_server(
            serve, f"/proc/self/fd/{place}/{SOCKET}", limit=_LONGEST
        )
        (folder / SOCKET).chmod(0o600)
        async with server:
            yield
    finally:
        os.close(place)
        (folder / SOCKET).unlink(missing_ok=True)


async def _answer(
    participant: AskedParticipant,
    prediction: Callable[[], dict[str, Any]],
    wake: Callable[[], None],
    line: bytes,
) -> dict[str, Any]:
    asked = json.loads(line)
    if not participant.finished:
        raise UsageError(
            f"the training goes on: {participant.job.name(participant.phase)}; ask later"
        )
    if asked["ask"] == "label":
        return prediction()
    if asked["ask"] != "link":
        raise ValueError("another question")
    peer = int(asked["device"])
    number = participant.questions.ask(peer, time.monotonic())
    wake()
    while number not in participant.questions.answers:
        await asyncio.sleep(_POLL)
    answer = participant.questions.answers.pop(number)
    if not isinstance(answer, PairAnswer):
        raise UsageError(answer)
    return {
        "device": peer,
        "probability": 1 / (1 + math.exp(-answer.score)),
        "answered": answer.answered,
    }


def ask_device(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Ask a running device; called by its owner.

    Raises:
        InputError: no device runs in this folder.
        UsageError: the device says why it has no answer.
    """
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"/proc/self/fd/{place}/{SOCKET}")
        except OSError:
            raise InputError(
                f"{folder}: no device runs here that stays after the training; start it (lumos "
                "device), with a plan that says so (lumos up --stay)"
            ) from None
        finally:
            os.close(place)
        connection.sendall(json.dumps(question).encode() + b"\n")
        received = b""
        while chunk := connection.recv(_LONGEST):
            received += chunk
    answer: dict[str, Any] = json.loads(received)
    if "error" in answer:
        raise UsageError(f"{folder}: {answer['error']}")
    return answer
