"""The schedule and its account: stages, noise, and (ε, δ) composed again from first principles."""

import math
from itertools import groupby
from typing import Any

import pytest
from tests.narrow import present
from tests.strict.classifying import schedule_of
from tests.strict.composition import (
    DELTA,
    IN_SUMS,
    all_sums,
    epsilon_of,
    honest_noise,
    moves,
    mus,
)

from lumos.errors import UsageError
from lumos.secagg.noise import delta_of, mu_for
from lumos.strict.classify.stages import (
    AGREEMENT,
    CANDIDATES,
    COUNTS,
    ENCODER,
    EVIDENCE_WEIGHTS,
    LAST_PROPAGATED,
    PREDICTED,
    PROPAGATED,
    RANDOMIZED,
    SELECTION,
    TEMPERATURE,
    TREES,
    ClassifySchedule,
)
from lumos.strict.settings import StrictSettings, default_epochs
from lumos.strict.stages import Sensitivity
from lumos.training.config import Config
from lumos.training.split import Role

FACEBOOK: dict[str, Any] = {"devices": 22_470, "training": 11_235, "validation": 5_617}
LAST = (SELECTION, TEMPERATURE)


def composed(schedule: ClassifySchedule, role: Role, question: str, ends: int = 1) -> float:
    """ε of all sums of a device of some role, from noise and moves alone."""
    return epsilon_of(mus(schedule, role, question, ends), DELTA)


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "signed": {"signed": True},
    "tree network": {"tree_network": True},
    "no propagated labels": {"propagated_labels": 0},
    "three propagated labels": {"propagated_labels": 3, "propagated_epsilon": 2.0},
    "small budget": {"feature_epsilon": 1.0},
    "few sums": {"encoder_epochs": 1, "epochs": 7},
    "few devices": {"devices": 40, "training": 20, "validation": 10},
    "digits": {"classes": 40},
    "all devices": {"participation": "all"},
    "all devices, signed": {"participation": "all", "signed": True, "tree_network": True},
    "few labels": {"devices": 2000, "training": 100, "validation": 100, "classes": 6},
}


SHARES = {
    COUNTS: 0.06,
    ENCODER: 0.94,
    RANDOMIZED: 0.018,
    PROPAGATED: 0.018,
    AGREEMENT: 0.05,
    PREDICTED: 0.018,
    LAST_PROPAGATED: 0.018,
    EVIDENCE_WEIGHTS: 0.030,
    TREES: 0.030,
    SELECTION: 0.018,
    TEMPERATURE: 0.004,
}

# Stages.


@pytest.mark.parametrize("propagated_labels", [0, 1, 2, 3])
@pytest.mark.parametrize("encoder", [1, 16])
@pytest.mark.parametrize("trees", [False, True])
def test_stages_cover_all_epochs_in_order(
    propagated_labels: int, encoder: int, trees: bool
) -> None:
    given: dict[str, Any] = {
        "propagated_labels": propagated_labels,
        "encoder_epochs": encoder,
        "tree_network": trees,
    }
    expected = {COUNTS: 1, RANDOMIZED: 1}
    expected |= {PROPAGATED: propagated_labels} if propagated_labels else {}
    expected |= {ENCODER: encoder}
    left = 1 + max(0, 2 - propagated_labels)  # default epochs are for two, and one sum more
    rest = {EVIDENCE_WEIGHTS: 40, TREES: 60 + left} if trees else {EVIDENCE_WEIGHTS: 40 + left}
    expected |= rest
    schedule = schedule_of(**given)
    epochs = schedule.config.train.epochs
    assert epochs == sum(expected.values()) == default_epochs("classify", given)
    places = [schedule.place(epoch) for epoch in range(epochs)]
    stages = [stage.name for stage, _ in places]
    assert {stage: len(list(run)) for stage, run in groupby(stages)} == expected
    assert list(dict.fromkeys(stages)) == list(expected)
    for stage in expected:
        steps = [step for found, step in places if found.name == stage]
        assert steps == list(range(expected[stage]))
    assert tuple(stage.name for stage in schedule.last_stages) == LAST
    with pytest.raises(ValueError, match="there is no such epoch"):
        schedule.place(epochs)


def test_epochs_that_are_left_belong_to_the_last_stage() -> None:
    assert schedule_of(epochs=100)[EVIDENCE_WEIGHTS].num_sums == 80
    trees = schedule_of(epochs=100, tree_network=True)
    assert (trees[EVIDENCE_WEIGHTS].num_sums, trees[TREES].num_sums) == (40, 40)


@pytest.mark.parametrize(
    ("settings", "least", "reason"),
    [
        (
            {},
            20,
            "1 for counts, 1 for .* 2 for propagated_labels, 16 for encoder; got 20",
        ),
        (
            {"propagated_labels": 0, "encoder_epochs": 3},
            5,
            "1 for randomized_labels, 3 for encoder; got 5",
        ),
        ({"tree_network": True}, 60, "16 for encoder, 40 for evidence_weights; got 60"),
    ],
)
def test_too_few_epochs_are_refused_with_the_reason(
    settings: dict[str, Any], least: int, reason: str
) -> None:
    with pytest.raises(UsageError, match=f"`epochs` must be above {least} .*{reason}"):
        schedule_of(epochs=least, **settings)
    assert schedule_of(epochs=least + 1, **settings).rest_epochs == 1


def test_candidates() -> None:
    assert schedule_of().candidates == ("own", "neighbours")
    assert schedule_of(tree_network=True).candidates == CANDIDATES


# The noise of each sum.


@pytest.mark.parametrize("name", SETTINGS)
def test_reach_is_what_a_vector_can_move(name: str) -> None:
    schedule = schedule_of(**SETTINGS[name])
    for stage, _ in all_sums(schedule):
        assert schedule[stage].sensitivity._asdict() == pytest.approx(moves(schedule, stage))
        assert schedule[stage].clip == schedule[stage].sensitivity.norm
        assert 0 < schedule[stage].limit(100) < schedule[stage].clip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stage_has_its_share_of_the_budget(name: str) -> None:
    """For other features up to the release, for one edge after it."""
    schedule = schedule_of(**SETTINGS[name])
    whole = mu_for(schedule.strict.feature_epsilon, DELTA)
    spent = dict.fromkeys(SHARES, 0.0)
    for stage, step in all_sums(schedule):
        question = {COUNTS: "features", ENCODER: "features", AGREEMENT: "norm"}.get(stage, "edge")
        move = moves(schedule, stage)[question]
        spent[stage] += (move / honest_noise(schedule, stage, step)) ** 2
    growth = {100: 4.0, 200: 2.0, 10: 4.0}.get(schedule.validation, 1.0)  # of few devices
    for stage, share in SHARES.items():
        many = schedule[stage].num_sums
        expected = share * (many if stage == PROPAGATED else min(1, many))
        expected *= 1.0 if stage in (COUNTS, ENCODER, AGREEMENT) else growth
        assert spent[stage] == pytest.approx(expected * whole**2, rel=1e-9)
    assert SHARES[COUNTS] + SHARES[ENCODER] == 1


@pytest.mark.parametrize("epochs", [1, 5, 16])
def test_the_encoder_spends_less_in_each_of_its_sums(epochs: int) -> None:
    """μ² of sum t is in proportion to 1 - t/T, and so is the size of its step."""
    schedule = schedule_of(encoder_epochs=epochs)
    first = present(schedule[ENCODER].noise(0)).sigma
    for step in range(epochs):
        weight = 1 - step / epochs
        assert schedule.falling(step) == weight
        assert present(schedule[ENCODER].noise(step)).sigma == pytest.approx(first / weight**0.5)
    assert schedule.total_falling == pytest.approx(sum(1 - step / epochs for step in range(epochs)))


def test_a_share_of_noise_spans_a_thousand_steps_of_the_fixed_point() -> None:
    for settings in SETTINGS.values():
        schedule = schedule_of(**settings)
        for stage, step in all_sums(schedule):
            noise = present(schedule[stage].noise(step))
            assert noise.share * 2.0**schedule.config.updates.fraction_bits >= 1000
            assert noise.devices == schedule.devices
    with pytest.raises(UsageError, match="noise would fall between"):
        schedule_of(fraction_bits=10)[ENCODER].noise()


def test_exact_sums_have_no_noise_and_no_account() -> None:
    schedule = schedule_of(protect="none")
    assert all(schedule[stage].noise(step) is None for stage, step in all_sums(schedule))
    assert schedule.account(1.0) is None
    assert schedule.mu("norm", Role.TRAIN) == 0
    for stage in (COUNTS, RANDOMIZED, PROPAGATED, SELECTION, TEMPERATURE):
        assert schedule[stage].clip == schedule_of()[stage].clip  # bounded without any clipping
    for stage in (ENCODER, EVIDENCE_WEIGHTS, TREES):
        assert schedule[stage].clip == math.inf


# The account.


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("question", ["norm", "features", "edge"])
def test_the_account_is_that_of_composed_privacy_losses(name: str, question: str) -> None:
    schedule = schedule_of(**SETTINGS[name])
    for role in Role.TRAIN, Role.VALIDATION, Role.TEST:
        spent = present(schedule.account(schedule.mu(question, role)))
        assert spent[0] == pytest.approx(composed(schedule, role, question), rel=2e-3, abs=1e-6)
        assert spent[1] == DELTA


@pytest.mark.parametrize("name", SETTINGS)
def test_an_edge_moves_the_vectors_of_two_devices(name: str) -> None:
    schedule = schedule_of(**SETTINGS[name])
    ends = (Role.TRAIN, Role.VALIDATION)
    largest = max(composed(schedule, role, "edge", ends=2) for role in ends)
    mu = 2 * max(schedule.mu("edge", role) for role in ends)
    spent = present(schedule.account(mu))[0]
    assert spent == pytest.approx(largest, rel=2e-3)
    # Ends of two roles: their moves add up in the one sum that both are in.
    both = [
        sum(moves(schedule, stage)["edge"] * (stage in IN_SUMS[role]) for role in ends)
        / honest_noise(schedule, stage, step)
        for stage, step in all_sums(schedule)
    ]
    assert epsilon_of(both, DELTA) <= spent * (1 + 1e-3)


def test_composition_is_the_closed_form() -> None:
    """The oracle itself, against the formula for one Gaussian mechanism."""
    for parts in ([1.5], [0.3, 0.4, 1.2], [0.05] * 900):
        mu = math.sqrt(sum(part**2 for part in parts))
        assert delta_of(epsilon_of(parts, DELTA), mu) == pytest.approx(DELTA, rel=5e-3)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("encoder", [1, 16])
def test_other_features_of_a_training_device_spend_the_whole_budget(
    epsilon: float, signed: bool, encoder: int
) -> None:
    schedule = schedule_of(signed=signed, feature_epsilon=epsilon, encoder_epochs=encoder)
    mu = schedule.mu("features", Role.TRAIN)
    assert mu == pytest.approx(mu_for(epsilon, DELTA), rel=1e-12)
    assert f"{present(schedule.account(mu))[0]:.3f}" == f"{epsilon:.3f}"


def test_what_the_defaults_guarantee() -> None:
    schedule = schedule_of(**FACEBOOK)
    figures = {
        (role, question): present(schedule.account(schedule.mu(question, role)))[0]
        for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)
        for question in ("norm", "features", "edge")
    }
    assert figures[Role.TRAIN, "features"] == pytest.approx(8, abs=5e-4)
    assert figures[Role.VALIDATION, "features"] < 3.1
    assert figures[Role.TRAIN, "norm"] < 7
    assert figures[Role.VALIDATION, "norm"] < 7.7
    assert {figures[Role.TEST, question] for question in Sensitivity._fields} == {0.0}


@pytest.mark.parametrize(
    ("sizes", "propagated", "most"),
    [
        (FACEBOOK, 1, (5, 10.2)),
        ({"devices": 2000, "training": 1000, "validation": 500, "classes": 6}, 2, (10.2, 20.9)),
    ],
)
def test_what_the_defaults_guarantee_about_edges(
    sizes: dict[str, Any], propagated: int, most: tuple[float, float]
) -> None:
    """Propagated labels of the user at ε_m = 4, and the sums; twice of all if replaced."""
    schedule = schedule_of(**sizes)
    messages = schedule.disclosed(Role.TRAIN).propagated_labels
    assert messages == 4 * propagated
    mu = max(schedule.mu("edge", role) for role in (Role.TRAIN, Role.VALIDATION))
    for changes, bound in enumerate(most, start=1):
        assert changes * messages + present(schedule.account(changes * mu))[0] <= bound


def test_how_many_labels_are_propagated_depends_on_public_numbers() -> None:
    settings = StrictSettings()
    assert [settings.num_propagated(devices, 4) for devices in (50, 7999, 8000)] == [2, 2, 1]
    assert settings.num_propagated(8000, 5) == 2
    for given in range(4):
        assert StrictSettings(propagated_labels=given).num_propagated(10**6, 2) == given


def test_many_validation_devices_get_by_with_less() -> None:
    """The share of sums about messages falls, but its noise grows less than their number."""
    for stage in (RANDOMIZED, PROPAGATED, EVIDENCE_WEIGHTS, SELECTION, TEMPERATURE):
        few, many = (
            present(
                schedule_of(devices=4 * size, validation=size, propagated_labels=2)[stage].noise()
            )
            for size in (1500, 6000)
        )
        assert many.sigma == pytest.approx(2 * few.sigma)
    for stage in (COUNTS, ENCODER):
        few, many = (
            present(schedule_of(devices=4 * size, validation=size)[stage].noise())
            for size in (1500, 6000)
        )
        assert many.sigma == pytest.approx(few.sigma)


def test_an_account_charges_both_ends_for_an_edge() -> None:
    """Roles may be exchanged from run to run: what an edge costs is on both ends' account."""
    schedule = schedule_of()
    mu = schedule.mu("edge", Role.VALIDATION)
    for role in Role:
        assert schedule.charged_mu(role) == {**schedule.run_mu(role), "edge": mu}
    assert schedule.mu("edge", Role.TRAIN) < mu


def test_all_devices_take_part_where_labels_are_few() -> None:
    """A randomized label counts by its strength; nothing but public numbers decides."""

    def taking_part(training: int, **given: Any) -> bool:
        return schedule_of(**{"devices": 22_470, "training": training, **given}).all_take_part

    assert [taking_part(number) for number in (449, 2247, 11_235)] == [True, True, False]
    assert taking_part(1000, devices=2000, classes=6, label_epsilon=2.0)
    assert not taking_part(1000, devices=2000, classes=6)
    assert not taking_part(100_000, devices=1_000_000)  # a tenth, but many per class
    assert taking_part(11_235, participation="all")
    assert not taking_part(449, participation="labelled")
    few: dict[str, Any] = {"devices": 22_470, "training": 449}
    assert schedule_of(**few).num_propagated == 2
    assert schedule_of(**few, participation="labelled").num_propagated == 1
    assert schedule_of(**few, propagated_labels=1).num_propagated == 1


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("role", [Role.TRAIN, Role.VALIDATION, Role.TEST])
def test_no_role_spends_more_on_its_features_than_it_may(name: str, role: Role) -> None:
    """Predicted labels, pure, and all sums together; validation devices may spend all of it."""
    schedule = schedule_of(**SETTINGS[name])
    spent = composed(schedule, role, "features") + schedule.disclosed(role).predicted_labels
    assert spent <= schedule.strict.feature_epsilon * (1 + 2e-3)
    if schedule.all_take_part and role == Role.VALIDATION:
        assert spent > 0.99 * schedule.strict.feature_epsilon


def test_vectors_of_full_norm_would_spend_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: whoever does not train adds gradients as long as whoever does."""
    monkeypatch.setattr(ClassifySchedule, "others_part", 1.0)
    schedule = schedule_of(participation="all")
    for role in (Role.VALIDATION, Role.TEST):
        spent = composed(schedule, role, "features") + schedule.disclosed(role).predicted_labels
        assert spent > 1.2 * schedule.strict.feature_epsilon


def test_signed_features_cost_the_same_guarantee_more_noise() -> None:
    signed, plain = (present(schedule_of(signed=signs)[ENCODER].noise()) for signs in (True, False))
    assert signed.sigma == pytest.approx(math.sqrt(2) * plain.sigma)


# Labels and propagated labels.


@pytest.mark.parametrize("mechanism", ["auto", "krr", "digits"])
@pytest.mark.parametrize("classes", [4, 30])
def test_labels_are_single_values_whatever_propagated_labels_are(
    mechanism: str, classes: int
) -> None:
    schedule = schedule_of(classes=classes, mechanism=mechanism)
    expected = {"krr": 1, "digits": 2}.get(mechanism, 1 if classes == 4 else 2)
    if mechanism != "digits" or classes == 30:
        assert schedule.label_form.places == expected
    assert schedule.label_form.size == classes
    if mechanism != "auto":
        assert schedule.propagated_label_mechanism.name == mechanism
    assert schedule.propagated_label_mechanism.epsilon == 4.0
    assert schedule.strength == pytest.approx(schedule.label_form.strength(3.0))


# Settings.


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"label_epsilon": 0.0}, "`label_epsilon`"),
        ({"label_epsilon": float("nan")}, "`label_epsilon`"),
        ({"propagated_labels": -1}, "`propagated_labels` must be 0 to 3, got -1"),
        ({"propagated_labels": 4}, "`propagated_labels` must be 0 to 3, got 4"),
        ({"propagated_epsilon": 0.0}, "`propagated_epsilon`"),
        ({"propagated_epsilon": math.inf}, "`propagated_epsilon`"),
        ({"propagated_epsilon": float("nan")}, "`propagated_epsilon`"),
        ({"signs": "some"}, "`signs`"),
        ({"feature_epsilon": 0.0}, "`feature_epsilon`"),
        ({"feature_epsilon": float("nan")}, "`feature_epsilon`"),
        ({"feature_epsilon": float("inf")}, "`feature_epsilon`"),
        ({"delta": 0.0}, "`delta`"),
        ({"delta": 1.0}, "`delta`"),
        ({"clip": 0.0}, "`clip`"),
        ({"clip": 1e-5}, "`clip` must be 0.05 or more"),
        ({"clip": float("inf")}, "`clip`"),
        ({"encoder_epochs": 0}, "`encoder_epochs`"),
        ({"random_marks": 1}, "`random_marks` must be 2 to 32"),
        ({"random_marks": 33}, "`random_marks` must be 2 to 32"),
        ({"query_bits": 0}, "`query_bits` must be 1, 2 or 3"),
        ({"query_bits": 4}, "`query_bits` must be 1, 2 or 3"),
        ({"score_queries": 1}, "`score_queries` must be above 2"),
        ({"score_queries": 2}, "`score_queries` must be above 2"),
        ({"score_queries": -3}, "`score_queries` must be above 2"),
        ({"query_epsilon": 0.0}, "`query_epsilon` must be above 0"),
        ({"query_epsilon": float("nan")}, "`query_epsilon` must be above 0"),
        ({"lifetime_epsilon": 0.0}, "`lifetime_epsilon`"),
        ({"lifetime_propagated_epsilon": 0.0}, "`lifetime_propagated_epsilon`"),
        ({"lifetime_propagated_epsilon": float("nan")}, "`lifetime_propagated_epsilon`"),
        ({"protect": "hope"}, "protect"),
        ({"mechanism": "rappor"}, "mechanism"),
    ],
)
def test_settings_that_guarantee_nothing_are_refused(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=option):
        Config.of(profile="strict", **settings)


@pytest.mark.parametrize(
    "gone",
    [
        "symbol",
        "relay",
        "answer",
        "min_holders",
        "projection",
        "word_buckets",
        "score_degrees",
        "products",
        "embedding",
        "tokens",
    ],
)
def test_settings_of_the_profile_before_do_not_exist(gone: str) -> None:
    with pytest.raises(UsageError, match=f"'{gone}'|`{gone}`"):
        Config.asked(profile="strict", **{gone: 1})


@pytest.mark.parametrize(
    ("task", "others"),
    [
        (
            "classify",
            {
                "random_marks": 4,
                "query_bits": 1,
                "score_queries": 8,
                "query_epsilon": 2.0,
            },
        ),
        (
            "link",
            {
                "label_epsilon": 4.0,
                "mechanism": "krr",
                "lifetime_epsilon": 9.0,
                "tree_network": True,
                "encoder_epochs": 3,
                "clip": 0.2,
            },
        ),
    ],
)
def test_settings_of_the_other_task_are_refused(task: str, others: dict[str, Any]) -> None:
    for name, value in others.items():
        with pytest.raises(UsageError, match=f"`{name}` has no effect with .*task='{task}'"):
            Config.asked(task=task, **{name: value})


def test_defaults_of_the_two_tasks() -> None:
    both = [Config.of(task=task) for task in ("classify", "link")]
    assert [config.train.epochs for config in both] == [61, 7]
    strict = [config.settings_as(StrictSettings) for config in both]
    assert [settings.propagated_labels for settings in strict] == [None, 3]
    assert strict[0].label_epsilon == strict[0].epsilon == 3.0
