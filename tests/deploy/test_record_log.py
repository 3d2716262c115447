"""Records that are added to a file: cut off anywhere, damaged anywhere, by another process."""

import stat
from pathlib import Path

import pytest
from tests.deploy.crashing_disk import quick_disk  # noqa: F401

from lumos import InputError
from lumos.deploy.state import RecordLog

RECORDS = ["one", "two and a half", "", "three"]
REMEDY = "do this"


def log(path: Path) -> RecordLog[str]:
    return RecordLog(path, str, REMEDY)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    written = log(tmp_path / "full.log")
    for record in RECORDS:
        written.append(record)
    return written.path


def ends(path: Path) -> list[int]:
    """How long the file is after each record."""
    sizes, written = [0], log(path.with_name("again.log"))
    for record in RECORDS:
        written.append(record)
        sizes.append(written.path.stat().st_size)
    return sizes


def test_records_are_there_for_the_next_process(full: Path) -> None:
    assert log(full).records == RECORDS
    assert stat.S_IMODE(full.stat().st_mode) == 0o600


def test_cut_off_at_every_byte_the_complete_records_are_left_and_more_can_follow(
    full: Path,
) -> None:
    content, complete = full.read_bytes(), ends(full)
    for size in range(len(content) + 1):
        full.write_bytes(content[:size])
        cut = log(full)
        left = RECORDS[: sum(end <= size for end in complete) - 1]
        assert cut.records == left
        cut.append("more")
        assert log(full).records == [*left, "more"]


def test_damage_at_every_byte_is_refused(full: Path) -> None:
    """Also in the length of the last record, which must not make it look merely incomplete."""
    content = full.read_bytes()
    for place in range(len(content)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[place] ^= change
            full.write_bytes(damaged)
            with pytest.raises(InputError, match=r"full\.log: record \d is damaged; do this$"):
                log(full)


def test_records_that_are_missing_or_change_places_are_refused(full: Path) -> None:
    content, (_, one, two, three, four) = full.read_bytes(), ends(full)
    parts = content[:one], content[one:two], content[two:three], content[three:four]
    for order in [(1, 2, 3), (0, 2, 3), (1, 0, 2, 3), (0, 0, 1, 2, 3)]:
        full.write_bytes(b"".join(parts[number] for number in order))
        with pytest.raises(InputError, match="is damaged"):
            log(full)


def test_a_record_of_another_kind_is_refused(full: Path) -> None:
    with pytest.raises(InputError, match="record 1 is damaged"):
        RecordLog[int](full, int, REMEDY)


def test_replaced_records_are_the_only_ones(full: Path) -> None:
    here = log(full)
    here.replace(["three"])
    here.append("four")
    assert here.records == log(full).records == ["three", "four"]
    assert stat.S_IMODE(full.stat().st_mode) == 0o600
    here.replace([])
    assert log(full).records == []


def test_an_append_that_failed_leaves_room_for_the_next(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = log(full)

    def no_space(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", no_space)
        with pytest.raises(OSError, match="No space"):
            here.append("lost")
    assert here.records == RECORDS
    here.append("kept")
    assert log(full).records == [*RECORDS, "kept"]
