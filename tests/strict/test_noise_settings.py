"""Settings that would take noise out of sums are refused, or counted (finding 8)."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.narrow import present
from tests.strict.classifying import schedule_of
from tests.strict.linking import schedule as link_schedule
from tests.strict.strictly import small

from lumos import UsageError, load
from lumos.graph.facts import facts_of
from lumos.secagg.noise import Noise
from lumos.secagg.parameters import AggregateSettings, mask_parameters
from lumos.strict.classify.stages import ENCODER
from lumos.strict.guarantees import classify_reading as reading
from lumos.strict.guarantees import link_reading
from lumos.strict.profile import PROFILE
from lumos.strict.settings import default_delta, settings_of
from lumos.strict.stages import Stage
from lumos.training.config import UPDATES, Config


def config(task: str = "classify", updates: dict[str, Any] | None = None, **more: Any) -> Config:
    return replace(Config.of(**{"task": task, **more}), updates=replace(UPDATES, **(updates or {})))


@pytest.mark.parametrize("minimum", [None, 2, 30, 95, 99, 100])
def test_as_many_shares_may_be_missing_as_a_sum_allows(minimum: int | None) -> None:
    """The least noise over all numbers of survivors that open a sum is that of the account."""
    settings = AggregateSettings(corrupt=0.1, dropped=0.05, minimum=minimum)
    noise = Noise.of(1.0, 1, 0.5, 100, settings)
    opened = min(mask_parameters(settings, 100).minimum, 95)
    honest = max(1, opened - 10)  # survivors that do not collude: one is there, or none is harmed
    assert noise.share * math.sqrt(honest) == pytest.approx(noise.sigma * noise.clip)


def test_noise_that_was_left_out_of_the_account() -> None:
    """The account before, with `minimum` ignored, has less noise than it says."""
    few = AggregateSettings(minimum=20)
    absent = math.ceil(0.1 * 100) + math.ceil(0.05 * 100)
    before = Noise(1.0, 0.5, 100, absent)
    now = Noise.of(1.0, 1, 0.5, 100, few)
    survivors = 20 - 10
    assert before.share * math.sqrt(survivors) < 0.4 * before.sigma * before.clip
    assert now.share * math.sqrt(survivors) >= now.sigma * now.clip * (1 - 1e-12)


@pytest.mark.parametrize(
    ("refused", "words", "followed"),
    [
        ({"label_epsilon": 1e-4}, "raise `clip`", {"clip": 1000.0}),
        ({"label_epsilon": 1e-4}, "or `label_epsilon`", {"label_epsilon": 0.01}),
        ({"label_epsilon": 1e-4}, "lower `feature_epsilon`", {"feature_epsilon": 0.01}),
        ({"feature_epsilon": 1e-6}, "; raise `feature_epsilon`", {"feature_epsilon": 0.01}),
        ({"feature_epsilon": 1e-6, "task": "link"}, "raise `feature", {"feature_epsilon": 0.01}),
        ({"feature_epsilon": 5000.0}, "use `protect='none'`", {"protect": "none"}),
        ({"epochs": 20}, "`epochs` must be above 20", {"epochs": 21}),
    ],
    ids=str,
)
def test_advice_of_a_refusal_can_be_followed(
    refused: dict[str, Any], words: str, followed: dict[str, Any]
) -> None:
    def check(settings: dict[str, Any]) -> None:
        PROFILE.check(facts_of(small(60)), config(**settings))

    with pytest.raises(UsageError) as error:
        check(refused)
    assert words in str(error.value)
    check(followed if "protect" in followed else refused | followed)


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ({"clip": True}, "`clip` of masked sums would cut off noise"),
        ({"limit": 1.0}, "noise may exceed the `limit` of masked sums"),
        ({"neighbours": 4}, "`neighbours` of masked sums cannot be set"),
        ({"threshold": 2}, "`threshold` of masked sums cannot be set"),
        ({"security_bits": 8}, "`security_bits` of masked sums must be 40 or more"),
        ({"fraction_bits": 2}, "between the steps of the fixed point"),
    ],
)
def test_what_takes_noise_out_is_refused(task: str, updates: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        PROFILE.check(facts_of(small(60)), config(task, updates))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    if not updates.keys() & {"limit", "fraction_bits"}:
        PROFILE.check(facts_of(small(60)), config(task, updates, protect="none"))


@pytest.mark.parametrize("task", ["classify", "link"])
def test_the_sums_after_the_last_epoch_are_checked_too(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule_of() if task == "classify" else link_schedule()
    checked: list[str] = []
    plain = Stage.noise

    def noise(self: Stage, step: int = 0) -> Any:
        checked.append(self.name)
        return plain(self, step)

    monkeypatch.setattr(Stage, "noise", noise)
    made.check()
    assert set(checked) >= {stage.name for stage in made.stages if stage.num_sums}


@pytest.mark.parametrize("task", ["classify", "link"])
def test_the_limit_has_room_for_twelve_deviations(task: str) -> None:
    """Just below the limit a run is refused, just above it is not."""
    made = schedule_of(devices=60) if task == "classify" else link_schedule(60)
    noises = [present(stage.noise(step)) for stage, step in made.sums]
    needed = max(noise.clip + 12 * noise.share for noise in noises)
    for limit, refused in ((needed * 0.999, True), (needed * 1.001, False)):
        changed = replace(made.config, updates=replace(made.config.updates, limit=limit))
        again = replace(made, config=changed)
        if refused:
            with pytest.raises(UsageError, match="`limit`"):
                again.check()
        else:
            again.check()


@pytest.mark.parametrize(
    ("devices", "delta", "advice"),
    [(60, 0.9, "0.01"), (60, 0.017, "0.01"), (22_470, 5e-5, "1e-05"), (1_000_000, 1e-5, "1e-06")],
)
@pytest.mark.parametrize("task", ["classify", "link"])
def test_delta_above_one_over_n_is_refused(
    task: str, devices: int, delta: float, advice: str
) -> None:
    made = schedule_of if task == "classify" else link_schedule
    schedule: Any = made(devices=devices, delta=delta)
    with pytest.raises(UsageError) as refused:
        schedule.check()
    message = str(refused.value)
    assert f"{devices:,} devices" in message
    assert f"1/n = {1 / devices:.3g}" in message
    assert f"use {advice} or less" in message
    allowed: Any = made(devices=devices, delta=float(advice))
    allowed.check()
    exact: Any = made(devices=devices, delta=delta, protect="none")
    exact.check()


def test_the_reading_says_who_may_collude_and_be_missing() -> None:
    both: list[tuple[Any, Any]] = [(schedule_of(), reading), (link_schedule(), link_reading)]
    for made, said in both:
        text = said(made, 30)
        assert "up to 10 % of the devices collude, while 5 % add no noise" in text
        updates = replace(made.config.updates, corrupt=0.2, dropped=0.01, minimum=700)
        text = said(replace(made, config=replace(made.config, updates=updates)), 30)
        assert "up to 20 % of the devices collude, while 30 % add no noise" in text


def test_the_reading_names_what_is_public_and_what_is_outside() -> None:
    text = reading(schedule_of(), 30)
    for fact in (
        "who trains, who validates and who has a label",
        "the number of devices",
        "the classes by number and name",
        "the number of features, and whether any of them is negative",
        "counts and outcome of the model selection",
        "follow from noisy sums",
        "Scores are the observer's",
    ):
        assert fact in text
    assert "negative" not in reading(schedule_of(signs="nonnegative"), 30)
    assert "follow from exact sums" in reading(schedule_of(protect="none"), 30)
    links = link_reading(link_schedule(), 30)
    assert "the number of features, and whether any of them is negative" in links
    assert "thresholds" in links
    beside = reading(schedule_of(control=True), 30), link_reading(link_schedule(control=True), 30)
    for said in beside:
        assert "nor any account covers" in said
        assert "would cost as much again" in said
    assert "control" not in text


def test_more_absent_devices_need_more_noise_in_a_run() -> None:
    made = schedule_of()
    fewer = replace(made.config, updates=replace(made.config.updates, minimum=500))
    noise, more = (present(s[ENCODER].noise()) for s in (made, replace(made, config=fewer)))
    assert more.sigma == noise.sigma
    assert more.share == pytest.approx(noise.share * math.sqrt(850 / 400))


@given(st.integers(1, 10**12))
def test_the_default_delta_is_the_printed_formula(devices: int) -> None:
    found = default_delta(devices)
    power = next(power for power in range(20) if 10**power >= devices)  # 10^-power <= 1/n
    assert found == min(1e-5, float(f"1e-{power}"))
    assert found <= 1e-5
    assert Fraction(f"1e-{power}") <= Fraction(1, devices)


def test_a_default_delta_follows_the_number_of_devices_and_a_given_one_does_not() -> None:
    def delta(devices: int, **given: Any) -> float:
        return settings_of(Config.of(**given).for_devices(devices)).delta

    assert [delta(10**power) for power in (1, 5, 6)] == [1e-5, 1e-5, 1e-6]
    assert delta(100_001) == 1e-6
    assert delta(10**6, delta=1e-5) == 1e-5  # and refused, as before
    assert delta(60, delta=1e-7) == 1e-7
    made = Config.of()
    own = replace(made, profile_settings=replace(settings_of(made), delta=1e-9))
    assert settings_of(own.for_devices(10**6)).delta == 1e-9
    assert Config.of(profile="paper").for_devices(10**6) == Config.of(profile="paper")


def test_a_run_of_more_than_a_hundred_thousand_devices_needs_no_option() -> None:
    """The finding: `lumos train demo:1000000` was refused for its default δ."""
    facts = replace(facts_of(load("demo:60")), devices=1_000_000)
    config = Config.of().for_devices(facts.devices)
    PROFILE.check(facts, config)
    with pytest.raises(UsageError, match=r"`delta=1e-05` is above 1/n = 1e-06 .*use 1e-06 or less"):
        PROFILE.check(facts, Config.of())
