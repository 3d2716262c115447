"""The privacy account: labels are for life, anything new pays, and a life has limits."""

import itertools
import json
import math
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.crypto import entropy
from lumos.crypto.entropy import Expanded
from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import BudgetExceeded, InputError, UsageError
from lumos.ldp.account import (
    ANSWERED,
    ASKED,
    CALIBRATION,
    EDGE,
    FILE,
    LABELS,
    LIMITS,
    PROPAGATED,
    RECORD,
    AccountLimits,
    PrivacyAccount,
    Seal,
    sums_about,
)
from lumos.ldp.labels import LabelDraws, LabelForm
from lumos.secagg.noise import epsilon_for, mu_for
from lumos.storage import read_arrays, write_arrays

ALL, FIVE = np.arange(5), tuple("abcde")
KRR, DIGITS = LabelForm(4, 1, 4), LabelForm(20, 2, 5)
MANY = 400
LABELLED = np.arange(MANY) % 4


def opened(folder: Path, run: str = "run", ids: Any = FIVE, **limits: Any) -> PrivacyAccount:
    return PrivacyAccount(folder, list(ids), limits=AccountLimits(**limits), run=run)


def content(folder: Path) -> bytes:
    return (folder / FILE).read_bytes()


# Charges and limits.


def test_a_run_is_charged_once_and_every_other_run_again(tmp_path: Path) -> None:
    for run, expected in (("one", 8.0), ("one", 8.0), ("two", 16.0)):
        opened(tmp_path, run).charge({PROPAGATED: 8.0}, ALL)
        assert opened(tmp_path).spent(PROPAGATED).tolist() == [expected] * 5
    before = content(tmp_path)
    opened(tmp_path, "two").charge({PROPAGATED: 8.0, sums_about(EDGE): 0.0}, ALL)
    assert content(tmp_path) == before
    # Other amounts, other devices and other parts of the same run are new.
    opened(tmp_path, "two").charge({PROPAGATED: 4.0}, np.array([0]))
    opened(tmp_path, "two").charge({PROPAGATED: 8.0}, np.array([1]), part="/attempt 1")
    assert opened(tmp_path).spent(PROPAGATED).tolist() == [20.0, 24.0, 16.0, 16.0, 16.0]
    assert opened(tmp_path, "one").spent(PROPAGATED, this_run=True).tolist() == [8.0] * 5


LIMITED: dict[str, tuple[dict[str, Any], dict[str, float], int]] = {
    "lifetime_epsilon": ({"lifetime_epsilon": 3.0}, {LABELS: 1.0}, 3),
    "lifetime_propagated_epsilon": ({"lifetime_propagated_epsilon": 20.0}, {PROPAGATED: 8.0}, 2),
    "score_queries": ({"score_queries": 5}, {ASKED: 1.0, CALIBRATION: 1.0}, 2),
    "lifetime_feature_epsilon": ({}, {sums_about(RECORD): mu_for(8.0, 1e-5) ** 2}, 8),
    "one edge": ({}, {sums_about(EDGE): mu_for(8.0, 1e-5) ** 2}, 8),
}


@pytest.mark.parametrize("name", LIMITED)
def test_no_device_goes_beyond_a_limit_of_its_owner(name: str, tmp_path: Path) -> None:
    """Eight default runs fit into the default of sums: 30.5 of 31."""
    limits, amounts, fitting = LIMITED[name]
    for run in range(fitting):
        opened(tmp_path, f"{run}", **limits).charge(amounts, ALL)
    before, refusing = content(tmp_path), opened(tmp_path, "more", **limits)
    with pytest.raises(BudgetExceeded) as refused:
        refusing.charge({"something else": 1.0, **amounts}, ALL)  # all or nothing
    message, setting = str(refused.value), name if name in LIMITS_BY_NAME else FEATURE_LIMIT
    assert f"above the limit for life `{setting}` = " in message
    assert f"raise `{setting}`" in message
    if setting == "lifetime_propagated_epsilon":  # 0 of them fit, whatever is spent
        assert "lower `propagated_epsilon` or `propagated_labels`" in message
    assert "5 of 5 devices" in message
    assert "\n" not in message
    assert content(tmp_path) == before
    opened(tmp_path, "0", **limits).charge(amounts, ALL)  # it was charged
    assert content(tmp_path) == before


FEATURE_LIMIT = "lifetime_feature_epsilon"
LIMITS_BY_NAME = AccountLimits.__dataclass_fields__


def test_an_exception_that_is_caught_inside_still_writes_nothing(tmp_path: Path) -> None:
    account = opened(tmp_path, lifetime_propagated_epsilon=8.0)
    with account.transaction(), pytest.raises(BudgetExceeded):
        account.charge({PROPAGATED: 9.0}, ALL)
    assert not (tmp_path / FILE).exists()


def test_epsilon_is_that_of_labels_and_of_gaussian_sums(tmp_path: Path) -> None:
    account = opened(tmp_path)
    for run, mu in (("one", 1.2), ("two", 0.7)):
        opened(tmp_path, run).charge({sums_about(RECORD): mu**2, PROPAGATED: 8.0}, ALL[:3])
    account.charge({LABELS: 3.0}, ALL[2:])
    sums = epsilon_for(np.hypot(1.2, 0.7), 1e-5)
    assert account.get_epsilon(1e-5) == pytest.approx([sums, sums, sums + 3.0, 3.0, 3.0])
    assert account.summary() == pytest.approx(
        {
            "lifetime_epsilon": 3.0,
            "lifetime_propagated_epsilon": 16.0,
            "lifetime_feature_epsilon": sums,
            "score_queries": 0.0,
        }
    )


@pytest.mark.parametrize("amount", [-1.0, math.inf, math.nan])
def test_nothing_else_is_a_charge(amount: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="charges are finite and not below 0"):
        opened(tmp_path).charge({PROPAGATED: amount}, ALL)
    assert not (tmp_path / FILE).exists()


def test_queries_add_up_one_by_one(tmp_path: Path) -> None:
    for _ in range(3):
        opened(tmp_path).charge_each(ASKED, np.array([1.0, 0.0, 2.0, 1.0, 0.0]), ALL)
    opened(tmp_path).charge_each(ANSWERED, np.ones(2), ALL[:2])
    assert opened(tmp_path).spent(ASKED).tolist() == [3.0, 0.0, 6.0, 3.0, 0.0]
    assert opened(tmp_path).spent(ANSWERED).tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_accounts_that_are_used_at_once_take_turns(tmp_path: Path) -> None:
    """Each of eight runs wants 1.5 of 4: two get it, whoever comes first."""
    accounts = [opened(tmp_path, f"{n}", lifetime_propagated_epsilon=4.0) for n in range(8)]
    start = Barrier(len(accounts))

    def charge(account: PrivacyAccount) -> bool:
        start.wait()
        try:
            account.charge({PROPAGATED: 1.5}, ALL)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(len(accounts)) as pool:
        assert sum(pool.map(charge, accounts)) == 2
    assert opened(tmp_path).spent(PROPAGATED).tolist() == [3.0] * 5


# Entries belong to devices.


def test_devices_come_go_and_change_places_with_their_entries(tmp_path: Path) -> None:
    """Against a dictionary: entries are found by id, in whatever company."""
    rng, ids = np.random.default_rng(0), [f"device {number}" for number in range(30)]
    spent = dict.fromkeys(ids, 0.0)
    for run in range(12):
        here = rng.permutation(30)[: rng.integers(1, 31)]
        account = opened(tmp_path, f"{run}", [ids[one] for one in here])
        chosen = np.flatnonzero(rng.random(len(here)) < 0.5)
        account.charge({PROPAGATED: float(run)}, chosen)
        for one in here[chosen]:
            spent[ids[one]] += run
        everyone = opened(tmp_path, ids=ids, run="look")
        assert dict(zip(ids, everyone.spent(PROPAGATED).tolist(), strict=True)) == spent
    assert len(np.unique(read_arrays(tmp_path / FILE)["secrets"], axis=0)) == len(
        read_arrays(tmp_path / FILE)["ids"]
    )


def test_two_devices_with_one_id_have_no_account(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two devices of the graph have one id"):
        opened(tmp_path, ids=["a", "b", "a"])


def test_a_real_device_has_one_entry_whatever_its_number(tmp_path: Path) -> None:
    for run, number in enumerate((17, 3)):
        account = PrivacyAccount(tmp_path, numbers=np.array([number]), run=f"{run}")
        account.charge({PROPAGATED: 8.0}, np.array([number]))
        drawn = account.labels(KRR, np.array([number]), np.array([2]), (3.0,))
        assert drawn == PrivacyAccount(tmp_path).labels(KRR, np.arange(1), np.array([2]), (3.0,))
    assert PrivacyAccount(tmp_path).summary()["lifetime_propagated_epsilon"] == 16.0


# Labels.


class Devices:
    """Devices that ask for draws of their labels, in runs with randomness of their own."""

    def __init__(self, folder: Path, lifetime: float = 8.0) -> None:
        self.folder, self.lifetime = folder, lifetime

    def open(self, run: str) -> PrivacyAccount:
        return opened(self.folder, run, map(str, range(MANY)), lifetime_epsilon=self.lifetime)

    def ask(
        self,
        run: str,
        *epsilons: float,
        form: LabelForm = KRR,
        labels: np.ndarray = LABELLED,
        devices: np.ndarray | None = None,
        classes: list[str] | None = None,
        own: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """[levels, devices] draws, and [devices] what they cost in this run."""
        chosen = np.arange(MANY) if devices is None else devices
        account = self.open(run)
        values = account.labels(
            form,
            chosen,
            labels[chosen],
            epsilons,
            randomness=None if own else PrivateRandomness(secrets_of(run)),
            rows=None if own else chosen,
            classes=classes,
        )
        return values, account.spent(LABELS, this_run=True)[chosen]

    @property
    def spent(self) -> np.ndarray:
        return self.open("look").spent(LABELS)


def secrets_of(run: str) -> np.ndarray:
    return simulated_secrets(sum(run.encode()), np.arange(MANY))


@pytest.fixture
def people(tmp_path: Path) -> Devices:
    return Devices(tmp_path)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("form", [KRR, DIGITS])
def test_a_label_is_drawn_once_and_paid_once(form: LabelForm, own: bool, people: Devices) -> None:
    values, paid = people.ask("one", 2.0, form=form, own=own)
    assert values.shape == (1, MANY)
    assert_array_equal(paid, np.full(MANY, 2.0))
    before = content(people.folder)
    again, later = people.ask("two", 2.0, form=form, own=own)
    assert_array_equal(again, values)
    assert_array_equal(later, np.zeros(MANY))
    assert_array_equal(people.ask("one", 2.0, form=form)[1], np.full(MANY, 2.0))
    assert content(people.folder) == before


def test_the_draws_are_those_of_a_run_without_an_account(people: Devices) -> None:
    values, _ = people.ask("one", 2.0, 3.0, classes=["a", "b", "c", "d"])
    alone = LabelDraws.first(KRR, LABELLED, PrivateRandomness(secrets_of("one")), np.arange(MANY))
    assert_array_equal(values, alone.at(2.0, 3.0))


def test_levels_form_one_chain_that_costs_the_largest(people: Devices) -> None:
    """Devices that were away, a smaller level, a larger one, and one in between."""
    some, others = np.arange(0, MANY, 2), np.arange(50, MANY)
    early, paid = people.ask("one", 3.0, devices=some)
    assert_array_equal(paid, np.full(len(some), 3.0))
    late, paid = people.ask("two", 2.0, 4.0, devices=others)
    assert_array_equal(paid, np.where(others % 2 == 0, 1.0, 4.0))
    levels, _ = people.ask("three", 3.0, 2.0, 4.0)
    assert_array_equal(levels[0][some], early[0])
    assert_array_equal(levels[1:, others], late)
    assert_array_equal(people.spent, np.full(MANY, 4.0))
    smaller, paid = people.ask("four", 1.0)
    assert_array_equal(paid, np.zeros(MANY))
    assert_array_equal(people.ask("five", 1.0)[0], smaller)  # other randomness, the same draw


def test_shards_draw_what_one_shard_draws(people: Devices, tmp_path: Path) -> None:
    whole, _ = people.ask("one", 2.0, 3.0, form=DIGITS)
    apart = Devices(tmp_path / "apart")
    parts = [
        apart.ask("one", 2.0, 3.0, form=DIGITS, devices=part)[0]
        for part in np.array_split(np.arange(MANY), 7)
    ]
    assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert apart.ask("one", 1.0, form=DIGITS, devices=np.arange(0))[0].shape == (1, 0)
    assert_array_equal(apart.spent, people.spent)


def test_a_changed_label_pays_again(people: Devices) -> None:
    """On top, in full, with randomness of its own; everybody else keeps what they have."""
    before, _ = people.ask("one", 2.0, 3.0)
    labels = LABELLED.copy()
    labels[:300] = (labels[:300] + 1) % 4
    after, paid = people.ask("two", 2.0, labels=labels)
    assert_array_equal(paid, np.where(np.arange(MANY) < 300, 2.0, 0.0))
    assert_array_equal(people.spent, np.where(np.arange(MANY) < 300, 5.0, 3.0))
    assert_array_equal(after[0, 300:], before[0, 300:])
    # Back to the first label in the first run: a third draw, and it is charged all the same.
    back, _ = people.ask("one", 2.0)
    assert_array_equal(people.spent, np.where(np.arange(MANY) < 300, 7.0, 3.0))
    same = (back[0, :300] == before[0, :300]).mean()
    truth = KRR.table(2.0)[0, 0]
    assert same == pytest.approx(truth**2 + (1 - truth) ** 2 / 3, abs=0.15)


@pytest.mark.parametrize(
    "other",
    [
        {"form": LabelForm(5, 1, 5)},
        {"form": LabelForm(4, 2, 2)},
        {"classes": ["a", "b", "c", "d"]},
    ],
)
def test_other_classes_and_other_forms_pay_again(other: dict[str, Any], people: Devices) -> None:
    people.ask("one", 2.0)
    for run, expected in (("two", 1.0), ("three", 0.0)):
        assert_array_equal(people.ask(run, 1.0, **other)[1], np.full(MANY, expected))
    assert_array_equal(people.spent, np.full(MANY, 3.0))
    assert_array_equal(people.ask("four", 1.0, classes=["b", "a", "c", "d"])[1], np.ones(MANY))


def test_labels_have_a_lifetime(tmp_path: Path) -> None:
    people = Devices(tmp_path, lifetime=4.0)
    people.ask("one", 3.0, devices=np.array([7]))
    before = content(tmp_path)
    with pytest.raises(BudgetExceeded, match=r"labels would reach 5, .* = 4 \(1 of 400 devices"):
        people.ask("one", 2.0, form=LabelForm(5, 1, 5))
    assert content(tmp_path) == before
    people.ask("two", 4.0)
    before = content(tmp_path)
    with pytest.raises(BudgetExceeded, match=r"\(400 of 400"):
        people.ask("two", 1.0, labels=(LABELLED + 1) % 4)
    assert content(tmp_path) == before
    people.ask("two", 1.5)  # free, also at the limit


@pytest.mark.parametrize("epsilons", [(), (float("inf"),), (2.0, 0.0)])
def test_levels_that_cannot_be_drawn_are_refused(
    epsilons: tuple[float, ...], people: Devices
) -> None:
    with pytest.raises(UsageError):
        people.ask("one", *epsilons)
    assert not (people.folder / FILE).exists()


# The file.


def test_only_the_owner_can_read_an_account(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.new").write_text("left by an interruption, readable by all")
    opened(tmp_path).charge({PROPAGATED: 1.0}, ALL)
    for name in (FILE, f"{FILE}.lock"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert not (tmp_path / f"{FILE}.new").exists()


def test_it_is_on_the_disk_before_anything_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def noted(path: Path, arrays: Any, **how: Any) -> None:
        calls.append(how)
        write_arrays(path, arrays, **how)

    monkeypatch.setattr("lumos.ldp.account.write_arrays", noted)
    Devices(tmp_path).ask("one", 2.0, own=True)
    assert calls == [{"private": True, "durable": True}]


def changed(array: np.ndarray) -> list[np.ndarray]:
    """What somebody could do to an array by hand."""
    if not array.size:
        return [np.ones_like(array, shape=(*array.shape[:-1], 1)) if array.ndim else array + 1]
    if array.dtype.kind == "U":
        return [np.char.add(array, "x"), array[:-1]]
    other = array.copy()
    other.flat[0] = other.flat[0] ^ 1 if array.dtype.kind in "iu" else other.flat[0] + 1
    return [other, array.astype(np.float32), *([array[..., :-1]] if array.ndim else [])]


def test_whatever_is_changed_by_hand_is_refused(tmp_path: Path) -> None:
    Devices(tmp_path).ask("one", 2.0)
    arrays = read_arrays(tmp_path / FILE)
    damages = [
        {**arrays, name: other} for name, array in arrays.items() for other in changed(array)
    ]
    damages += [{n: a for n, a in arrays.items() if n != name} for name in arrays]
    damages.append({**arrays, "more": np.ones(3)})
    for damaged in damages:
        write_arrays(tmp_path / FILE, damaged, private=True)
        before = content(tmp_path)
        with pytest.raises(InputError, match=r"account\.npz: is damaged, changed by hand") as said:
            opened(tmp_path)
        assert "\n" not in str(said.value)
        assert content(tmp_path) == before
    assert len(damages) > 40
    for noise in (b"", b"PK\3\4 and so on", b"\0" * 50):
        (tmp_path / FILE).write_bytes(noise)
        with pytest.raises(InputError, match="so what was spent is unknown; use another"):
            opened(tmp_path)
    write_arrays(tmp_path / FILE, arrays)
    assert_array_equal(Devices(tmp_path).spent, np.full(MANY, 2.0))


def test_an_account_moves_by_its_state(tmp_path: Path) -> None:
    people, other = Devices(tmp_path / "one"), Devices(tmp_path / "two")
    values, _ = people.ask("one", 2.0)
    other.open("two").load_state_dict(people.open("two").state_dict())
    again, paid = other.ask("two", 2.0)
    assert_array_equal(again, values)
    assert not paid.any()
    with pytest.raises(InputError, match="is no privacy account"):
        other.open("two").load_state_dict(
            {**people.open("two").state_dict(), "ids": np.array(FIVE)}
        )


def test_a_folder_that_cannot_be_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "book.npz").write_text("of an earlier release")
    with pytest.raises(UsageError, match=r"book\.npz: cannot be the folder of a privacy account"):
        opened(tmp_path / "book.npz").charge({PROPAGATED: 1.0}, ALL)


# Copies.


def test_an_account_that_was_copied_back_is_noticed_by_a_run_that_remembers(
    tmp_path: Path,
) -> None:
    """Also if it was used since, so that its serial number is no longer too small."""
    account = opened(tmp_path, "first")
    account.charge({PROPAGATED: 1.0}, ALL)
    copy = content(tmp_path)
    later = opened(tmp_path, "second")
    later.charge({PROPAGATED: 1.0}, ALL)
    seal = Seal.of(later.seal().arrays())
    account.check_seal(seal)
    kept = content(tmp_path)
    (tmp_path / FILE).write_bytes(copy)
    with pytest.raises(InputError, match="older than this run: it was copied back"):
        account.check_seal(seal)
    for run in ("third", "fourth"):
        opened(tmp_path, run).charge({PROPAGATED: 1.0}, ALL)
    with pytest.raises(InputError, match="copied back and used since"):
        account.check_seal(seal)
    (tmp_path / FILE).write_bytes(kept)
    opened(tmp_path, "fifth").charge({PROPAGATED: 1.0}, ALL)
    opened(tmp_path).check_seal(seal)
    # The same ids with each other's entries, and an account that is gone.
    marks = read_arrays(tmp_path / FILE)["marks"]
    swapped = opened(tmp_path, ids="bacde")
    with pytest.raises(InputError, match="is not the account of this run"):
        swapped.check_seal(seal)
    assert len(np.unique(marks)) == len(marks) == 3
    (tmp_path / FILE).unlink()
    with pytest.raises(InputError, match="older than this run"):
        opened(tmp_path).check_seal(seal)
    assert not (tmp_path / FILE).exists(), "nothing was put in its place"


SERIALS = [np.array([1, 1]), np.array("a"), np.array(-1), np.array(0), np.array(1.0), np.array(1)]


@pytest.mark.parametrize("serial", SERIALS, ids=repr)
def test_a_seal_that_no_run_wrote_is_refused(tmp_path: Path, serial: np.ndarray) -> None:
    account = opened(tmp_path)
    account.seal()
    account.charge({PROPAGATED: 1.0}, ALL)
    last = np.frombuffer(account.seal().digest, np.uint8)
    with pytest.raises(InputError, match="is not the account of this run"):
        account.check_seal(Seal.of({"account/serial": serial, "account/seal": last}))


def test_an_account_that_was_copied_back_draws_the_same_labels(tmp_path: Path) -> None:
    """Whoever restores it gets no second draw of a label, at any level, in any run."""
    people = Devices(tmp_path)
    people.open("enrol").seal()
    copy = content(tmp_path)
    seen = []
    for run in range(6):
        (tmp_path / FILE).write_bytes(copy)
        seen.append(people.ask(f"{run}", 2.0, 3.0, own=True)[0])
    assert all(np.array_equal(seen[0], other) for other in seen)
    # In a simulation they follow from the run seed, and a copy draws others.
    (tmp_path / FILE).write_bytes(copy)
    assert (people.ask("seeded", 2.0, 3.0)[0] != seen[0]).any()


def test_a_charge_takes_no_bytes_from_a_program_of_a_device(tmp_path: Path) -> None:
    """A restarted device draws the same bytes again, though it is not charged again."""

    def program() -> bytes:
        with entropy.within(Expanded(bytes(32))):
            opened(tmp_path).charge({PROPAGATED: 1.0}, ALL)
            return entropy.draw(16)

    assert program() == program() == Expanded(bytes(32)).draw(16)
    other = opened(tmp_path / "other")
    with entropy.within(Expanded(bytes(32))):
        other.charge({PROPAGATED: 1.0}, ALL)
    first, second = (read_arrays(folder / FILE) for folder in (tmp_path, tmp_path / "other"))
    assert not np.array_equal(first["secrets"], second["secrets"])
    assert not np.array_equal(first["marks"], second["marks"])


# The owner's limits.


def test_limits_are_read_from_the_folder(tmp_path: Path) -> None:
    assert AccountLimits.read(tmp_path) == AccountLimits()
    chosen = replace(AccountLimits(), lifetime_epsilon=1.5, lifetime_feature_epsilon=float("inf"))
    chosen.write(tmp_path)
    assert AccountLimits.read(tmp_path) == chosen
    for wrong, line in itertools.chain(
        [({"lifetime_epsilom": 1.0}, "lifetime_epsilom")],
        [({name: -1}, name) for name in LIMITS_BY_NAME],
        [({name: "many"}, "limits.json") for name in LIMITS_BY_NAME],
    ):
        (tmp_path / LIMITS).write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=line) as said:
            AccountLimits.read(tmp_path)
        assert "\n" not in str(said.value)
