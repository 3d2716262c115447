"""The privacy account of a device: what it has released in all runs, and the limits of its owner.

**One class for both.** A real device keeps its own account in its own folder. A simulation keeps
those of all its devices in one folder, as arrays. An account belongs to devices, not to a graph:
entries are found by the devices' original ids, so a graph may grow, shrink or change its order.

**Charges.** A label is randomized once and repeated in every run. It costs the largest ε of its
draws, and a changed label costs it again. Propagated and predicted labels (ε), sums (μ² for each
question of a table of guarantees; Gaussian mechanisms compose by μ²) and score queries are new in
every run. They are charged in every run, before its first message leaves, so a run that is aborted
has paid too. A run that is resumed is not charged twice. Totals are never stored: they are the sum
of the charges.

**Limits.** A charge that would exceed a limit of the owner is refused. Nothing is written then.
The limits of one run are checked before it begins (`lumos.deploy.plan.refuse_plan`). An account
remembers when the last plan of each operator was issued, and refuses an older one.

**File.** Only its owner can read it: it holds each device's label, to notice a change. It is
replaced all or nothing, and it is on the disk before anything is released. A checksum notices
damage and changes by hand. Every write appends a random mark. A run remembers the number of marks
and a digest of the last one and of its devices' secrets (`Seal`). So it notices an account that was
copied back, even one that was used since. Randomized labels of real devices follow from a secret in
the account: an account that is copied back draws the same ones again.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.device.randomness import PrivateRandomness
from lumos.errors import BudgetExceeded, InputError, UsageError
from lumos.ldp.labels import LabelDraws, LabelForm, check_levels
from lumos.secagg.noise import epsilon_for, mu_for
from lumos.storage import (
    locked,
    one_line,
    private_folder,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from lumos.typing import Arrays, Doubles, Flags, Ints

FILE, LIMITS = "account.npz", "limits.json"
"""Files in the folder of an account: the account, and the owner's limits if they are not the
defaults."""
VERSION = 3
"""Version of the file. Versions 1 and 2 were the books of earlier releases."""
SECRET_BYTES = 16
OWN = "this device"
"""Entry of a real device in its own account."""
TOLERANCE = 1 + 1e-12
"""Factor by which rounded totals may exceed a limit."""

LABELS, PROPAGATED, PREDICTED = "labels", "propagated labels", "predicted labels"
"""Kinds of charges in ε."""
ASKED, ANSWERED, CALIBRATION = "queries asked", "queries answered", "queries of calibration"
QUERIES = (ASKED, ANSWERED, CALIBRATION)
"""Kinds of charges in score queries about links."""
UNPROTECTED = "runs without protection"
"""Kind of charge for runs that disclose what no ε describes: their number."""
LABEL, FEATURES, RECORD, NORM, EDGE = "label", "features", "record", "norm", "edge"
QUESTIONS = (LABEL, FEATURES, RECORD, NORM, EDGE)
"""Changes for which μ² of sums is counted: another label, if sums use it; other features; another
record; zeros in place of the vectors; one edge more or less."""


def sums_about(question: str) -> str:
    """Return the kind of charge, in μ², of sums for one of `QUESTIONS`."""
    return f"sums: {question}"


class _Limit(NamedTuple):
    setting: str
    kinds: tuple[str, ...]
    """Kinds of charges that it limits together."""
    largest: float
    """Largest total of these kinds."""
    what: str
    spelled: Callable[[float], float]
    """From a total of these kinds to the unit of the setting."""
    advice: str


MAX_RUN_EPSILON = {LABEL: 4.0, FEATURES: 10.0, RECORD: 14.0, NORM: 28.0, EDGE: 20.0}
"""Default limits of one run by question: default settings cost 3, 8, 11, 24.9 and 17.8 at most."""


@dataclass(frozen=True, kw_only=True)
class AccountLimits:
    """Limits of a device's owner, over all runs and for the plan of one run.

    A plan cannot change them on a real device. Simulations have no plan.
    """

    lifetime_epsilon: float = 4.0
    """Largest total ε of randomized labels."""
    lifetime_propagated_epsilon: float = 64.0
    """Largest total ε of propagated labels."""
    lifetime_feature_epsilon: float = 31.0
    """Largest total ε of sums at `delta`: for replacing the record, and for one of its edges.
    Predicted labels have the same limit by themselves."""
    delta: float = 1e-5
    """δ of all sums together."""
    score_queries: int = 16
    """Largest number of score queries that involve the device; 0 for no limit."""
    run_epsilon: Mapping[str, float] = field(default_factory=dict)
    """Largest ε of one run at `delta`, by question: a plan that states more, or no guarantee, is
    refused. Questions that are not named have the default, `MAX_RUN_EPSILON`."""
    min_devices: int = 10
    """Smallest number of devices of a plan."""
    min_noise: float = 0.5
    """Least standard deviation of the noise in each sum, in units of the largest norm of one
    device's vector. Default settings have 0.56 with two propagated labels."""
    profiles: Sequence[str] | None = None
    """Profiles that a plan may have; None for those that send nothing unprotected."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name.startswith("lifetime_") and not value > 0:
                raise UsageError(f"`{name}` must be above 0, got {value}")
        self._check_plan_limits()
        if not 0 < self.delta < 1:
            raise UsageError(f"`delta` must be between 0 and 1, got {self.delta}")
        if self.score_queries < 0:
            raise UsageError(f"`score_queries` must be 0 or more, got {self.score_queries}")

    def _check_plan_limits(self) -> None:
        given, profiles = self.run_epsilon, self.profiles
        if not isinstance(given, Mapping) or not all(
            question in QUESTIONS and epsilon > 0 for question, epsilon in given.items()
        ):
            raise UsageError(
                f"`run_epsilon` must have numbers above 0 for {', '.join(QUESTIONS)}; got {given}"
            )
        if profiles is not None and (
            not isinstance(profiles, Sequence) or isinstance(profiles, str)
        ):
            raise UsageError(f"`profiles` must be a list of names, got {profiles!r}")
        for name in ("min_devices", "min_noise"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"`{name}` must be 0 or more, got {getattr(self, name)}")
        object.__setattr__(self, "run_epsilon", {**MAX_RUN_EPSILON, **given})
        if profiles is not None:
            object.__setattr__(self, "profiles", tuple(profiles))

    @classmethod
    def read(cls, folder: Path) -> "AccountLimits":
        """Read `limits.json` of an account's folder; the defaults if there is none.

        Raises:
            InputError: a limit is unknown, or no limit.
        """
        path = folder / LIMITS
        if not path.exists():
            return cls()
        try:
            return cls(**read_json(path))
        except (TypeError, UsageError) as error:
            raise InputError(f"{path}: {one_line(error)}; correct it, or delete it") from None

    @classmethod
    def none(cls, profiles: Sequence[str]) -> "AccountLimits":
        """Return limits that allow every plan with these profiles: for an owner that is also the
        operator."""
        return cls(
            lifetime_epsilon=math.inf,
            lifetime_propagated_epsilon=math.inf,
            lifetime_feature_epsilon=math.inf,
            score_queries=0,
            run_epsilon=dict.fromkeys(QUESTIONS, math.inf),
            min_devices=0,
            min_noise=0.0,
            profiles=profiles,
        )

    def write(self, folder: Path) -> None:
        """Write `limits.json`."""
        write_json(folder / LIMITS, asdict(self), private=True, durable=True)

    def all(self) -> list[_Limit]:
        """Return the limits, each with the kinds of charges that it is about."""
        return [
            self._simple("lifetime_epsilon", (LABELS,), "use an ε of earlier draws"),
            self._simple(
                "lifetime_propagated_epsilon",
                (PROPAGATED,),
                "lower `propagated_epsilon` or `propagated_labels`",
            ),
            self._simple(
                "lifetime_feature_epsilon", (PREDICTED,), "use `participation='labelled'`"
            ),
            self._of_sums(RECORD),
            self._of_sums(EDGE),
            self._simple("score_queries", QUERIES, "predict with an earlier run"),
        ]

    def _simple(self, setting: str, kinds: tuple[str, ...], advice: str) -> _Limit:
        largest = getattr(self, setting) or math.inf
        what = kinds[0] if len(kinds) == 1 else "score queries"
        return _Limit(setting, kinds, largest, what, float, advice)

    def _of_sums(self, question: str) -> _Limit:
        most = self.lifetime_feature_epsilon
        square = mu_for(most, self.delta) ** 2 if math.isfinite(most) else math.inf
        return _Limit(
            "lifetime_feature_epsilon",
            (sums_about(question),),
            square,
            f"sums at δ = {self.delta:g}, about one {question},",
            lambda total: epsilon_for(math.sqrt(total), self.delta),
            "lower `feature_epsilon`",
        )


class Seal(NamedTuple):
    """The part of an account that a run remembers."""

    serial: int
    digest: bytes

    def arrays(self) -> Arrays:
        """Return the arrays of a run folder, checkpoint or snapshot."""
        return {
            "account/serial": np.array(self.serial),
            "account/seal": np.frombuffer(self.digest, np.uint8),
        }

    @staticmethod
    def of(arrays: Arrays) -> "Seal | None":
        """Restore a seal from its arrays; None if they are missing or invalid."""
        names = ("account/serial", "account/seal")
        serial, digest = (arrays.get(name, np.empty(0)) for name in names)
        if serial.dtype != np.int64 or serial.shape or serial < 0 or digest.dtype != np.uint8:
            return None
        return Seal(int(serial), digest.tobytes())


class PrivacyAccount:
    """The privacy account of one device, or of all devices of a simulation.

    Args:
        folder: of the account; it need not exist yet.
        ids: original ids of the devices of the run, each once; of one real device by default.
        numbers: [devices] numbers of these devices in the run, increasing; 0 … n - 1 by default.
            `devices` below are such numbers.
        limits: of the devices' owners.
        run: identifies the run: one that is resumed has been charged already.
    """

    def __init__(
        self,
        folder: Path,
        ids: Sequence[str] = (OWN,),
        *,
        numbers: Ints | None = None,
        limits: AccountLimits | None = None,
        run: str = "",
    ) -> None:
        self.path = folder / FILE
        self.limits = AccountLimits() if limits is None else limits
        self._limits = self.limits.all()
        self._ids = np.asarray(ids, np.str_)
        self.numbers = np.arange(len(ids)) if numbers is None else numbers
        self._run = run
        self._state: Arrays = {}
        """Content of the file, inside a transaction; otherwise empty."""
        self._place: Ints = np.empty(0, np.int64)
        """[devices] their entries, inside a transaction."""
        self._new = self._changed = self._refused = False
        """Inside a transaction: whether entries are not in the file yet, something has changed, an
        exception was raised."""
        self._seal: Seal | None = None
        """Seal at the end of the last transaction."""
        if len(np.unique(self._ids)) != len(self._ids):
            raise UsageError(f"{self.path}: two devices of the graph have one id, and so one entry")
        if self.path.exists():
            self._read()

    def __repr__(self) -> str:
        return f"PrivacyAccount({self.path}, devices={len(self._ids)})"

    # The file.

    @contextmanager
    def transaction(self) -> Iterator[Arrays]:
        """Read the account and hold its lock; write what has changed at the end, all or nothing.

        Nothing is written if an exception is raised inside. Transactions may be nested.

        Raises:
            InputError: the file is damaged, or was changed by hand.
            UsageError: there cannot be such a file.
        """
        if self._state:
            try:
                yield self._state
            except BaseException:
                self._refused = True
                raise
            return
        with ExitStack() as held:
            try:
                private_folder(self.path.parent)
                held.enter_context(locked(self.path))
            except OSError as error:
                raise UsageError(
                    f"{self.path.parent}: cannot be the folder of a privacy account "
                    f"({error.strerror})"
                ) from None
            held.callback(self._forget)
            self._changed = self._refused = False
            self._state = self._enrolled(self._read() if self.path.exists() else _empty())
            yield self._state
            if self._changed and not self._refused:
                self._write()
            if not self._new:
                self._seal = self._sealed(len(self._state["marks"]))

    def _forget(self) -> None:
        self._state = {}

    def state_dict(self) -> Arrays:
        """Return the content of the file."""
        with self.transaction() as state:
            return {**state, "checksum": _checksum(state)}

    def load_state_dict(self, state: Arrays) -> None:
        """Replace the content of the file, for example on a new disk of the same device.

        Raises:
            InputError: it is not what `state_dict` returned.
        """
        checked = self._checked(state)
        with self.transaction() as before:
            before.clear()
            before.update(self._enrolled(checked))
            self._changed = True

    def _write(self) -> None:
        mark = np.frombuffer(_fresh(8), np.uint64)
        self._state["marks"] = np.append(self._state["marks"], mark)
        content = {**self._state, "checksum": _checksum(self._state)}
        write_arrays(self.path, content, private=True, durable=True)
        self._new = False

    def _read(self) -> Arrays:
        try:
            return self._checked(read_arrays(self.path))
        except InputError:
            raise InputError(
                f"{self.path}: is damaged, changed by hand or of another version, so what was "
                "spent is unknown; use another `account`, and count the spending of this one too"
            ) from None

    @staticmethod
    def _checked(arrays: Arrays) -> Arrays:
        state = {name: array for name, array in arrays.items() if name != "checksum"}
        same = arrays.get("checksum", np.empty(0)).tobytes() == _checksum(state).tobytes()
        if not same or state.keys() != _empty().keys() or int(state["version"]) != VERSION:
            raise InputError("is no privacy account, or was changed by hand")
        return state

    def _enrolled(self, state: Arrays) -> Arrays:
        """Return the content with an entry for every device of the run; set their places."""
        place = _found(state["ids"], self._ids)
        new = np.flatnonzero(place < 0)
        place[new] = len(state["ids"]) + np.arange(len(new))
        self._place, self._new = place, len(new) > 0
        if not self._new:
            return state
        drawn = np.frombuffer(_fresh(SECRET_BYTES * len(new)), np.uint8)
        state = {
            **state,
            "ids": np.concatenate([state["ids"], self._ids[new]]),
            "secrets": np.concatenate([state["secrets"], drawn.reshape(-1, SECRET_BYTES)]),
        }
        entries = len(state["ids"])
        for name, fill in _BY_DEVICE.items():
            width = -(-entries // 8) if name == "charges/devices" else entries
            more = width - state[name].shape[1]
            state[name] = np.pad(state[name], ((0, 0), (0, more)), constant_values=fill)
        return state

    def _entries(self, devices: Ints) -> Ints:
        return self._place[np.searchsorted(self.numbers, devices)]

    # Seals, and the state in which a run began.

    def seal(self) -> Seal:
        """Return the seal, by which the run notices an account that was copied back."""
        if self._seal is None:
            with self.transaction():
                self._changed |= self._new
        if self._seal is None:
            raise ValueError("a seal is taken after a transaction, not inside")
        return self._seal

    def check_seal(self, seal: Seal | None) -> None:
        """Refuse an account that does not match the seal of a run.

        Raises:
            InputError: the account is another one, or an older copy.
        """
        with self.transaction() as state:
            serial = len(state["marks"])
            if seal is None or (seal.serial <= serial and self._sealed(seal.serial) != seal):
                raise InputError(
                    f"{self.path}: is not the account of this run, or was copied back and used "
                    "since; use the account that the run was trained with"
                )
            if seal.serial > serial:
                raise InputError(
                    f"{self.path}: the account is older than this run: it was copied back, or is "
                    "another one; use the account as the run left it"
                )

    def _sealed(self, serial: int) -> Seal:
        mark = self._state["marks"][max(serial, 1) - 1 : serial].tobytes()  # none before the first
        secrets = self._state["secrets"][self._place].tobytes()
        return Seal(serial, blake2b(mark + secrets, digest_size=16).digest())

    def began(self, run_in: Callable[[str], str]) -> str:
        """Return the state in which a run began: the last mark then; empty if there was none.

        A run that the account knows, because it is repeated or resumed, began in an earlier state.
        Any other run begins now.

        Args:
            run_in: callback `(state)`, returns what identifies the run if it began in that state.
        """
        with self.transaction() as state:
            known = set(state["charges/run"].tolist())
            states = ["", *(f"{mark:016x}" for mark in state["marks"].tolist())]
            return next((each for each in states if _digest(run_in(each)) in known), states[-1])

    def begin_plan(self, operator: str, issued: float) -> None:
        """Remember the newest plan of an operator.

        Args:
            operator: identifies the operator.
            issued: time at which the plan was made, in seconds since 1970.

        Raises:
            InputError: a later plan was begun: this one was sent again.
        """
        with self.transaction() as state:
            of = state["plans/operator"] == operator
            last = float(state["plans/issued"][of].max(initial=-math.inf))
            if issued < last:
                raise InputError(
                    f"the plan is refused: it is {last - issued:,.0f} s older than the last plan "
                    f"of this operator that the device began ({self.path}); fetch the newest one"
                )
            if issued > last:
                state["plans/operator"] = np.append(state["plans/operator"][~of], operator)
                state["plans/issued"] = np.append(state["plans/issued"][~of], issued)
                self._changed = True

    # Charges.

    def charge(self, amounts: Mapping[str, float], devices: Ints, part: str = "") -> None:
        """Charge devices for something that is new in every run, once in a run.

        Args:
            amounts: by kind of charge.
            devices: [devices] numbers, each once.
            part: names a part of the run that is charged by itself.

        Raises:
            BudgetExceeded: a device would exceed a limit; nothing is written.
        """
        run = _digest(self._run + part)
        with self.transaction() as state:
            entries = self._entries(devices)
            for kind, amount in amounts.items():
                same = (state["charges/run"] == run) & (state["charges/kind"] == kind)
                rows = same & (state["charges/amount"] == amount)
                charged = self._bits(rows)[:, entries].any(axis=0)
                self._add(run, kind, np.where(charged, 0.0, amount), entries)

    def charge_each(self, kind: str, amounts: Doubles, devices: Ints) -> None:
        """Charge each device its own amount, on top of all earlier ones.

        Args:
            amounts: [devices], 0 or more.
            devices: [devices] numbers, each once.

        Raises:
            BudgetExceeded: a device would exceed a limit; nothing is written.
        """
        with self.transaction():
            self._add(_digest(self._run), kind, amounts, self._entries(devices))

    def _add(self, run: str, kind: str, amounts: Doubles, entries: Ints) -> None:
        """Append a row for each different amount; check the limits of devices with more."""
        state = self._state
        if not (np.isfinite(amounts) & (amounts >= 0)).all():
            raise ValueError(f"{kind}: charges are finite and not below 0")
        for amount in np.unique(amounts[amounts > 0]):
            flags = np.zeros((1, len(state["ids"])), np.bool_)
            flags[0, entries[amounts == amount]] = True
            state["charges/run"] = np.append(state["charges/run"], run)
            state["charges/kind"] = np.append(state["charges/kind"], kind)
            state["charges/amount"] = np.append(state["charges/amount"], amount)
            bits = np.packbits(flags, axis=1)
            state["charges/devices"] = np.concatenate([state["charges/devices"], bits])
            self._changed = True
        for limit in self._limits:
            if kind in limit.kinds:
                self._check(limit, entries[amounts > 0])

    def _check(self, limit: _Limit, entries: Ints) -> None:
        totals = self._totals(limit)[entries]
        over = totals > limit.largest * TOLERANCE
        if over.any():
            total = limit.spelled(float(totals.max()))
            many = f"{int(over.sum()):,} of {len(self._ids):,} devices, " * (len(self._ids) > 1)
            raise BudgetExceeded(
                f"{limit.what} would reach {total:.4g}, above the limit for life "
                f"`{limit.setting}` = {getattr(self.limits, limit.setting):g} "
                f"({many}{self.path}); {limit.advice}, or raise `{limit.setting}`"
            )

    def _totals(self, limit: _Limit) -> Doubles:
        """Return [entries] the sum of all charges that a limit is about."""
        totals: Doubles = np.sum([self._total(kind) for kind in limit.kinds], axis=0)
        return totals

    def _bits(self, rows: Flags) -> Flags:
        """Return [rows, entries] which entries these charges are about."""
        packed = self._state["charges/devices"][rows]
        return np.unpackbits(packed, axis=1, count=len(self._state["ids"])).astype(np.bool_)

    def _total(self, kind: str, run: str = "") -> Doubles:
        """Return [entries] the sum of charges of a kind, of one run or of all."""
        rows: Flags = self._state["charges/kind"] == kind
        if run:
            rows = rows & (self._state["charges/run"] == run)
        total: Doubles = self._state["charges/amount"][rows] @ self._bits(rows)
        return total

    def spent(self, kind: str, *, this_run: bool = False) -> Doubles:
        """Return [devices] the total of a kind of charges over all runs, or in this one."""
        with self.transaction():
            return self._total(kind, _digest(self._run) if this_run else "")[self._place]

    def get_epsilon(self, delta: float) -> Doubles:
        """Return [devices] ε at δ against everybody, for replacing the whole record of a device.

        It covers randomized labels and sums of all runs. Propagated labels depend on received
        messages, not on the record.
        """
        with self.transaction():
            squares = self._total(sums_about(RECORD))[self._place]
            different, which = np.unique(squares, return_inverse=True)
            sums = np.array([epsilon_for(math.sqrt(square), delta) for square in different])
            total: Doubles = self._total(LABELS)[self._place] + sums[which]
            return total

    def summary(self) -> dict[str, float]:
        """Return the largest total of any device, by the limit that it counts against.

        Runs that no ε describes count against no limit; they are there if there are any.
        """
        reached: dict[str, float] = {}
        with self.transaction():
            if unprotected := float(self._total(UNPROTECTED)[self._place].max(initial=0)):
                reached[UNPROTECTED] = unprotected
            for limit in self._limits:
                largest = float(self._totals(limit)[self._place].max(initial=0))
                before = reached.get(limit.setting, 0.0)
                reached[limit.setting] = max(before, limit.spelled(largest))
        return reached

    # Randomized labels.

    def randomness(self, devices: Ints) -> PrivateRandomness:
        """Return randomness that is the same in every run, a row for each of these devices.

        It is for what a device repeats. Whatever must be new in every run may not use it.
        """
        with self.transaction() as state:
            self._changed |= self._new  # a secret that is used is on the disk
            secrets = state["secrets"][self._entries(devices)]
            wide = b"".join(
                blake2b(secret.tobytes(), digest_size=32, person=b"lumos account").digest()
                for secret in secrets
            )
            return PrivateRandomness(np.frombuffer(wide, "<u4").astype(np.uint32).reshape(-1, 8))

    def labels(
        self,
        form: LabelForm,
        devices: Ints,
        labels: Ints,
        epsilons: Sequence[float],
        *,
        randomness: PrivateRandomness | None = None,
        rows: Ints | None = None,
        classes: Sequence[str] | None = None,
    ) -> Ints:
        """Return draws of the devices' labels at some levels.

        Draws that are missing are made so that all draws of a label form one chain
        (`lumos.ldp.labels`), and a device pays the increase of its largest ε. A label that has
        changed, another number or other names of classes, and another form are drawn anew and paid
        in full, on top. The role of a device in a run has no influence.

        Args:
            devices: [devices] numbers, each once.
            labels: [devices] true labels, 0 … k - 1.
            epsilons: one level or several, all finite.
            randomness: private randomness of one run, for draws that are missing; that of the
                account by default.
            rows: [devices] the devices' rows in `randomness`.
            classes: [k] names of the classes; draws with and without names are different ones.

        Returns:
            [levels, devices] values of the form.

        Raises:
            BudgetExceeded: a device would exceed its limit; nothing is written.
            UsageError: there is no draw at one of the levels.
        """
        check_levels(form, epsilons)
        name = _label_name(form, classes)
        with self.transaction() as state:
            entries, row = self._entries(devices), self._label_row(name)
            here = np.flatnonzero(state["draws/form"] == name)
            before = state["labels/label"][row, entries]
            changed = entries[(before >= 0) & (before != labels)]
            state["labels/changes"][row, changed] += 1
            state["draws/values"][np.ix_(here, changed)] = -1
            state["labels/label"][row, entries] = labels
            levels, values = state["draws/level"][here], state["draws/values"][here][:, entries]
            largest = np.where(values >= 0, levels[:, None], 0.0).max(axis=0, initial=0.0)
            lifelong = randomness is None
            draws = LabelDraws(
                form=form,
                labels=labels,
                randomness=self.randomness(devices) if randomness is None else randomness,
                rows=np.arange(len(devices)) if rows is None else rows,
                changes=state["labels/changes"][row, entries],
                levels=dict(zip(levels.tolist(), values, strict=True)),
                # Runs have one list of classes each, lives may have several.
                classes=_class_digest(classes) if lifelong else "",
            )
            complete = draws.has(*epsilons)
            drawn = draws.at(*epsilons)
            if not complete:
                self._keep_draws(name, entries, draws.levels)
                increase = np.maximum(0.0, max(epsilons) - largest)
                self._add(_digest(self._run), LABELS, increase, entries)
            return drawn

    def earlier_labels(
        self, form: LabelForm, labels: Ints, classes: Sequence[str] | None = None
    ) -> str:
        """Return a text that identifies the draws that `labels` would return.

        Args:
            form, classes: as in `labels`.
            labels: [all devices of the run], below 0 where there is none.
        """
        name = _label_name(form, classes)
        with self.transaction() as state:
            row = self._label_row(name)
            before = state["labels/label"][row, self._place]
            count = state["labels/changes"][row, self._place]
            count = count + ((before >= 0) & (before != labels))
        return f"{name} {blake2b(count.tobytes(), digest_size=16).hexdigest()}"

    def _label_row(self, name: str) -> int:
        """Return the row of a form and list of classes, which is added if it is not there."""
        state = self._state
        if name not in state["labels/form"]:
            state["labels/form"] = np.append(state["labels/form"], name)
            for column in ("labels/label", "labels/changes"):
                new = np.full((1, len(state["ids"])), _BY_DEVICE[column])
                state[column] = np.concatenate([state[column], new])
        return int(np.flatnonzero(state["labels/form"] == name)[0])

    def _keep_draws(self, name: str, entries: Ints, draws: Mapping[float, Ints]) -> None:
        """Store draws by ε; those that were stored before are unchanged."""
        state = self._state
        for level, values in draws.items():
            rows = (state["draws/form"] == name) & (state["draws/level"] == level)
            if not rows.any():
                new = np.full((1, len(state["ids"])), -1)
                state["draws/form"] = np.append(state["draws/form"], name)
                state["draws/level"] = np.append(state["draws/level"], level)
                state["draws/values"] = np.concatenate([state["draws/values"], new])
                rows = np.append(rows, True)
            state["draws/values"][np.flatnonzero(rows)[0], entries] = values
        self._changed = True


_BY_DEVICE = {"labels/label": -1, "labels/changes": 0, "draws/values": -1, "charges/devices": 0}
"""Tables [rows, entries] by name, with the value of new entries; `charges/devices` is packed."""


def _empty() -> Arrays:
    text, number = np.empty(0, "<U1"), np.empty(0)
    return {
        "version": np.array(VERSION),
        "ids": text,
        "secrets": np.empty((0, SECRET_BYTES), np.uint8),
        "marks": np.empty(0, np.uint64),
        "labels/form": text,
        "labels/label": np.empty((0, 0), np.int64),
        "labels/changes": np.empty((0, 0), np.int64),
        "draws/form": text,
        "draws/level": number,
        "draws/values": np.empty((0, 0), np.int64),
        "charges/run": text,
        "charges/kind": text,
        "charges/amount": number,
        "charges/devices": np.empty((0, 0), np.uint8),
        "plans/operator": text,
        "plans/issued": number,
    }


def _fresh(count: int) -> bytes:
    """Return fresh bytes, while a program of a real device draws from its secret, too.

    A restarted program that is not charged again must draw the same bytes all the same.
    """
    with entropy.within(None):
        return entropy.draw(count)


def _found(known: npt.NDArray[np.str_], wanted: npt.NDArray[np.str_]) -> Ints:
    """Return [wanted] the position of each id among the known ones; -1 if it is not there."""
    places = np.full(len(wanted), -1)
    if len(known):
        order = np.argsort(known)
        near = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
        same = known[near] == wanted
        places[same] = near[same]
    return places


def _checksum(state: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """Return a digest of the names, types, shapes and contents of all arrays."""
    digest = blake2b(digest_size=16, person=b"lumos account")
    for name, array in sorted(state.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _digest(run: str) -> str:
    return blake2b(run.encode(), digest_size=16).hexdigest()


def _class_digest(classes: Sequence[str] | None) -> str:
    """Return a short digest of the names of classes in their order; empty without names."""
    if classes is None:
        return ""
    return blake2b(json.dumps(list(classes)).encode(), digest_size=8).hexdigest()


def _label_name(form: LabelForm, classes: Sequence[str] | None) -> str:
    return f"{form.name} {_class_digest(classes)}".strip()
