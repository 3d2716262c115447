"""The privacy account of real devices: it outlives runs, also failed ones, and has limits."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos.audit.attacks.neighbours import most_right
from lumos.deploy.attacks import AccountedFederation, restarted_labels
from lumos.deploy.protocol.frames import RUN_TAG, Data
from lumos.deploy.protocol.job import SETUP, TrainingJob
from lumos.deploy.protocol.questions import AnsweredPairs
from lumos.deploy.state import ANSWERS, BEGUN, SECRET, AnsweringFiles, DeviceFolder
from lumos.deploy.virtual import Federation
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.errors import BudgetExceeded, InputError
from lumos.graph.parts import PartsFolder
from lumos.ldp.account import (
    ASKED,
    CALIBRATION,
    FILE,
    LABELS,
    PROPAGATED,
    QUERIES,
    RECORD,
    AccountLimits,
    PrivacyAccount,
    sums_about,
)
from lumos.secagg.noise import mu_for
from lumos.training.config import Config
from lumos.training.split import Role

EPSILON, CLASSES = 3.0, 6
STARTS = 6
ONE, TWO = (bytes([number]) * RUN_TAG for number in (1, 2))
"""Tags of two runs."""
REAL: dict[str, Any] = {"aggregate": "secure", "randomness": "system"}


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is durable is tested elsewhere, and takes most of the time here."""
    monkeypatch.setattr("os.fsync", lambda _handle: None)


# Six starts of a run that fails.


@pytest.mark.parametrize("kept", [True, False])
def test_restarted_runs_show_one_draw_of_a_label(
    kept: bool, twelve: PartsFolder, tmp_path: Path
) -> None:
    """Without an account six starts guess 96.7 % of labels where one draw allows 80.1."""
    many = 75
    known = restarted_labels(twelve, tmp_path if kept else None, draws=many, starts=STARTS)
    bound = most_right(EPSILON, CLASSES, known.prior)
    spread = math.sqrt(bound * (1 - bound) / many)
    if not kept:  # the attack, as it was; secrets are fixed here, and so are the draws
        assert known.right / many > bound + 3 * spread
        return
    assert all(np.array_equal(known.seen[0], again) for again in known.seen)
    assert abs(known.right / many - bound) < 5 * spread
    account = PrivacyAccount(tmp_path / "0")
    assert account.spent(LABELS).tolist() == [EPSILON]
    assert account.spent(PROPAGATED).tolist() == [8.0 * STARTS]


# Five runs of twelve devices, two of them aborted.


@pytest.fixture
def real(short: Config) -> Config:
    return replace(short, train=replace(short.train, randomness="system"))


def sent_by(federation: Federation, sender: int, found: dict[str, set[bytes]]) -> None:
    """Add what neighbours of a device receive from it, by topic."""

    def watch(_now: float, number: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if isinstance(frame, Data) and number == sender and receiver != COORDINATOR:
                found.setdefault(frame.topic, set()).add(frame.body)

    federation.watch = watch


def test_five_runs_of_a_device_two_of_them_aborted(
    twelve: PartsFolder, real: Config, tmp_path: Path
) -> None:
    """One randomized label in all transcripts; everything else is charged five times."""
    trains = np.concatenate([twelve.part([d], "classify").roles for d in range(12)]) == Role.TRAIN
    device = int(np.flatnonzero(trains)[0])
    found: dict[str, set[bytes]] = {}
    labels = "strict/symbol"
    aborts: dict[int, Callable[[Federation], bool]] = {
        1: lambda federation: federation.device(device).phase > SETUP,  # before its first sum
        3: lambda federation: len(federation.device(device).job._received._rounds) > 0,
    }
    account = AccountedFederation(twelve, real, accounts=tmp_path).account_of(device)
    for run in range(5):
        federation = AccountedFederation(twelve, real, accounts=tmp_path, run_number=run)
        sent_by(federation, device, found)
        if run in aborts:
            federation.run(until=partial(aborts[run], federation))
        else:
            federation.run()
            assert federation.coordinator.ended == ""
        summary = account.summary()
        assert summary["lifetime_epsilon"] == EPSILON
        assert summary["lifetime_propagated_epsilon"] == 4.0 * (run + 1)
        square = account.spent(sums_about(RECORD))[0]
        assert square == pytest.approx((run + 1) * mu_for(8.0, 1e-5) ** 2, rel=1e-6)
    assert len(found[labels]) == 1, "one draw in all transcripts: at most 80.1 %"
    assert account.get_epsilon(1e-5)[0] == pytest.approx(
        EPSILON + account.summary()["lifetime_feature_epsilon"]
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"label_epsilon": 20.0}, "labels would reach 20, above the limit for life "),
        ({"propagated_epsilon": 65.0}, "propagated labels would reach 65, above the limit"),
        ({"feature_epsilon": 100.0}, "sums at δ = 1e-05, about one record, would reach 100"),
        ({"protect": "none"}, "has exact sums, above every limit for life"),
    ],
)
def test_a_device_refuses_a_plan_beyond_its_owners_limits(
    settings: dict[str, Any], line: str, twelve: PartsFolder, tmp_path: Path
) -> None:
    """The plan is the operator's, the limits are the owner's: one line, nothing is released."""
    config = Config.asked(
        **REAL,
        encoder_epochs=2,
        propagated_labels=1,
        epochs=8,
        **settings,
    )
    federation = AccountedFederation(twelve, config, accounts=tmp_path)
    federation.run(until=lambda: all(federation.device(d).ended for d in range(12)))
    trains = [d for d in range(12) if twelve.part([d], "classify").roles[0] == Role.TRAIN]
    for device in trains:
        ended = str(federation.device(device).ended)
        assert line in ended
        assert ended.startswith("setup: ")
        assert "\n" not in ended
        assert not (tmp_path / f"{device}" / FILE).exists()


def test_a_device_notices_an_account_that_was_copied_back(
    twelve: PartsFolder, real: Config, tmp_path: Path
) -> None:
    """Its snapshot remembers the account that the run was charged to."""
    federation = AccountedFederation(twelve, real, accounts=tmp_path)
    federation.run(until=lambda: federation.device(0).phase > SETUP + 1)
    job = federation.device(0).job
    saved = federation.stores[0].load()
    assert saved is not None
    job.load_state_dict(saved)
    (tmp_path / "0" / FILE).unlink()
    with pytest.raises(InputError, match="older than this run: it was copied back"):
        job.load_state_dict(saved)


# Score queries.


LINKS = {**REAL, "task": "link"}


def test_every_attempt_at_a_calibration_is_charged_before_its_first_message(
    few_words_parts: PartsFolder, tmp_path: Path
) -> None:
    part, limits = few_words_parts.part([3], "link"), AccountLimits(score_queries=5)
    account = PrivacyAccount(tmp_path, numbers=part.devices, limits=limits)
    config = Config.asked(**LINKS, random_marks=4)
    keys = DeviceKeys(bytes(32))
    job = TrainingJob(few_words_parts.manifest, config, part, keys, account=account)
    job.program(SETUP)
    trainer: Any = job.trainer
    for attempt, expected in ((0, 2.0), (1, 4.0), (1, 4.0)):
        trainer.begin_attempt(attempt)
        next(trainer._histograms({}, None))
        assert account.spent(CALIBRATION).tolist() == [expected]
        assert trainer._life().answers == expected  # in the table that the device keeps
    trainer.begin_attempt(2)
    with pytest.raises(BudgetExceeded, match=r"score queries would reach 6, above .* = 5"):
        next(trainer._histograms({}, None))


@pytest.mark.long
def test_calibrations_that_were_repeated_are_counted(
    few_words_parts: PartsFolder, tmp_path: Path
) -> None:
    """A lost device makes the last phase begin again: four buckets are learnt, and counted."""
    config = Config.asked(**LINKS, random_marks=4)
    federation = AccountedFederation(few_words_parts, config, accounts=tmp_path)
    lost, asked = 5, 0

    def watch(_now: float, number: int, _receiver: int, frames: list[Any]) -> None:
        nonlocal asked
        if number == lost and any(isinstance(f, Data) and f.topic == "score" for f in frames):
            asked += 1
            federation.kill(lost)

    federation.watch = watch
    federation.run()
    assert asked == 1
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {lost}
    for device in set(range(12)) - {lost}:
        assert federation.account_of(device).spent(CALIBRATION).tolist() == [4.0]


def test_questions_of_all_runs_have_one_budget(tmp_path: Path) -> None:
    account = PrivacyAccount(tmp_path, numbers=np.array([7]), limits=AccountLimits(score_queries=5))
    account.charge({CALIBRATION: 2.0}, account.numbers)
    written: list[Any] = []
    for run in range(2):
        pairs = AnsweredPairs((), written.append, account)
        assert pairs.for_life() == (run, 0, 2)
        pairs.agree(3, (run + 1, 0))
    assert AnsweredPairs((), None, account).for_life() == (2, 0, 2)
    assert not AnsweredPairs((), None, account).exhausted
    AnsweredPairs((), None, account).agree(4, (2, 1))
    assert AnsweredPairs((), None, account).exhausted  # it asks and answers no more
    with pytest.raises(BudgetExceeded, match=r"score queries would reach 6, above .* = 5"):
        AnsweredPairs((), written.append, account).agree(5, (3, 1))
    assert len(written) == 2
    assert sum(account.spent(kind)[0] for kind in QUERIES) == 5
    assert account.spent(ASKED).tolist() == [2]


def test_a_device_that_answers_notices_an_account_that_was_copied_back(tmp_path: Path) -> None:
    account = PrivacyAccount(tmp_path)
    account.seal()
    copy = (tmp_path / FILE).read_bytes()
    account.charge({CALIBRATION: 2.0}, account.numbers)
    AnsweringFiles(tmp_path, "run", 0, account).begin({"absent": np.arange(0)})
    AnsweringFiles(tmp_path, "run", 0, PrivacyAccount(tmp_path)).load()
    (tmp_path / FILE).write_bytes(copy)
    with pytest.raises(InputError, match="older than this run: it was copied back"):
        AnsweringFiles(tmp_path, "run", 0, PrivacyAccount(tmp_path)).load()


# The folder of a device.


def test_a_new_run_begins_without_the_files_of_the_last_one_and_with_the_account(
    tmp_path: Path,
) -> None:
    """A run that failed has left its files; the account is all that counts from run to run."""
    one, two = ONE, TWO
    folder = DeviceFolder(tmp_path)
    folder.begin_run(one)
    folder.keys(one)
    folder.add_peer(3)
    folder.save({"phase": np.array(1)})
    (tmp_path / ANSWERS).write_bytes(b"of the first run")
    PrivacyAccount(tmp_path).charge({PROPAGATED: 8.0}, np.arange(1))
    same = DeviceFolder(tmp_path)
    same.begin_run(one)
    assert same.peers() == {3}
    # Without its secret the device does not begin the same run again …
    same.forget_secret()
    with pytest.raises(InputError, match="is missing, and the device has begun a run"):
        DeviceFolder(tmp_path).keys(one)
    # … and another one begins with nothing but the account.
    other = DeviceFolder(tmp_path)
    other.begin_run(two)
    assert other.keys(two).key("a", b"") != folder.keys(two).key("b", b"")
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {BEGUN, SECRET, FILE, f"{FILE}.lock"}
    assert PrivacyAccount(tmp_path).spent(PROPAGATED).tolist() == [8.0]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was changing runs when the power went."""
    folder = DeviceFolder(tmp_path)
    folder.begin_run(ONE)
    folder.keys(ONE)
    folder.add_peer(3)
    with monkeypatch.context() as patch:
        patch.setattr("lumos.deploy.state.write_bytes", lambda *_args, **_how: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            DeviceFolder(tmp_path).begin_run(TWO)
    return tmp_path


def test_a_change_of_runs_that_was_interrupted_is_made_again(interrupted: Path) -> None:
    folder = DeviceFolder(interrupted)
    folder.begin_run(TWO)
    folder.keys(TWO)
    assert folder.peers() == set()
