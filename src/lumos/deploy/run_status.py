"""How a run of real devices goes on, as the coordinator sees it; nothing in it is private."""

from pathlib import Path

import msgspec

from lumos.deploy.coordinator_party import CoordinatorParty

STATUS = "status.json"


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `status.json`, which the coordinator rewrites as the run goes on."""

    devices: int
    online: int
    """Devices that were heard, and are not left out."""
    phase: int
    phases: int
    """Number of all phases."""
    phase_name: str
    attempt: int
    sums: int
    """Masked sums that were opened, up to the last phase that is over."""
    behind: list[int]
    """Devices that are in an earlier phase than the coordinator: who is waited for."""
    left_out: dict[int, str]
    """Who is left out, and in which phase that was."""
    loss: float | None
    seconds: float
    wire: dict[str, int]
    """Packets and their bytes, as the coordinator has sent and received them."""
    ended: str | None

    @classmethod
    def of(
        cls,
        party: CoordinatorParty,
        *,
        sums: int,
        seconds: float,
        loss: float | None,
        wire: dict[str, int],
    ) -> "RunStatus":
        """The present status of a coordinator."""
        job, last = party.job, party.job.last
        return cls(
            devices=job.total,
            online=len(party.online),
            phase=party.phase,
            phases=last + 1,
            phase_name="ended" if party.phase > last else job.name(party.phase),
            attempt=party.attempt,
            sums=sums,
            behind=party.behind(),
            left_out=dict(party.left_out),
            loss=loss,
            seconds=round(seconds, 3),
            wire=wire,
            ended=party.ended,
        )

    def text(self) -> str:
        """As it is written."""
        return msgspec.json.encode(self).decode() + "\n"


def read_status(folder: Path) -> RunStatus | None:
    """The status in the folder of the coordinator; None before the first."""
    try:
        return msgspec.json.decode((folder / STATUS).read_bytes(), type=RunStatus)
    except (OSError, msgspec.MsgspecError):
        return None
