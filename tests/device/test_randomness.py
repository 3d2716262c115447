"""Randomness: private numbers nobody else can predict, public ones everybody can recompute."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from lumos.crypto import entropy
from lumos.device import PrivateRandomness, PublicRandomness, simulated_secrets, system_secrets

SEED = 7
IDS = np.arange(2000)
WORDS = 16
BITS = len(IDS) * WORDS * 32
# Agreement of two independent fair bit strings is 1/2 ± 1/(2 √bits) = 0.5 ± 0.0005 here. Five
# standard deviations: a sound generator fails once in two million trials.
THRESHOLD = 5 / (2 * np.sqrt(BITS))

Stream = np.ndarray
Toss = Callable[[str, int], Stream]


def private(secrets: np.ndarray) -> Toss:
    owner = PrivateRandomness(secrets)
    return lambda purpose, step: owner.words(np.arange(len(secrets)), purpose, step, WORDS)


def bits(words: Stream) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1)


def predictions(toss: Toss, purpose: str, step: int) -> dict[str, Stream]:
    """What a receiver can try who knows run seed, ids, purpose, step and all earlier randomness."""
    everywhere = (len(IDS), WORDS)
    by_id = np.zeros((len(IDS), 8), np.uint32)
    by_id[:, 0] = IDS
    seeded = by_id.copy()
    seeded[:, 1] = SEED
    public = PublicRandomness(SEED).generator(purpose, step)
    last, current = toss(purpose, step - 1), toss(purpose, step)
    return {
        "all zeros": np.zeros(everywhere, np.uint32),
        "secrets derived as a simulation does": private(simulated_secrets(SEED, IDS))(
            purpose, step
        ),
        "secrets of another seed": private(simulated_secrets(0, IDS))(purpose, step),
        "the id as secret": private(by_id)(purpose, step),
        "id and seed as secret": private(seeded)(purpose, step),
        "public randomness": public.integers(0, 2**32, everywhere, np.uint32),
        "the same stream, a step before": last,
        "the difference of the two steps before": last - toss(purpose, step - 2),
        "another purpose of the same step": toss("another purpose", step),
        "the word before in the same stream": np.roll(current, 1, axis=1),
        "the same stream of the next device": np.roll(current, 1, axis=0),
        "the neighbouring bit": (current << np.uint32(1)) | (current >> np.uint32(31)),
    }


def learned_prediction(toss: Toss, purpose: str, step: int) -> float:
    """Advantage of a linear predictor trained on half of the devices, tested on the others."""
    known = np.concatenate([bits(toss(purpose, step - back)) for back in (1, 2)], axis=1)
    of_id = np.unpackbits(IDS.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1)
    signs = 2.0 * np.concatenate([known, of_id, np.ones((len(IDS), 1))], axis=1) - 1
    wanted = 2.0 * bits(toss(purpose, step))[:, :64] - 1
    half = len(IDS) // 2
    weights = np.linalg.solve(
        signs[:half].T @ signs[:half] + 100 * np.eye(signs.shape[1]), signs[:half].T @ wanted[:half]
    )
    right = np.sign(signs[half:] @ weights) == wanted[half:]
    return abs(right.mean() - 0.5) / (0.5 / np.sqrt(right.size)) * (0.5 / np.sqrt(BITS))


def advantages(toss: Toss) -> dict[str, float]:
    """How far each prediction is from guessing: |share of equal bits - 1/2|."""
    purpose, step = "relay draws", 11
    actual = bits(toss(purpose, step))
    found = {
        name: abs(float((bits(words) == actual).mean()) - 0.5)
        for name, words in predictions(toss, purpose, step).items()
    }
    found["a linear predictor"] = learned_prediction(toss, purpose, step)
    return found


def test_a_receiver_predicts_no_private_coin() -> None:
    found = advantages(private(system_secrets(IDS)))
    assert {name: edge for name, edge in found.items() if edge > THRESHOLD} == {}


def from_the_run_seed(purpose: str, step: int) -> Stream:
    return private(simulated_secrets(SEED, IDS))(purpose, step)


def from_public_randomness(purpose: str, step: int) -> Stream:
    generator = PublicRandomness(SEED).generator(purpose, step)
    return generator.integers(0, 2**32, (len(IDS), WORDS), np.uint32)


OWN = PrivateRandomness(system_secrets(IDS))


def blind_to_the_step(purpose: str, step: int) -> Stream:
    return OWN.words(IDS, purpose, 0, WORDS)


def blind_to_the_purpose(purpose: str, step: int) -> Stream:
    return OWN.words(IDS, "", step, WORDS)


def the_same_for_all(purpose: str, step: int) -> Stream:
    return np.tile(OWN.words(IDS[:1], purpose, step, WORDS), (len(IDS), 1))


def a_counter(purpose: str, step: int) -> Stream:
    return OWN.words(IDS, purpose, 0, WORDS) ^ np.uint32(step)


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (from_the_run_seed, "secrets derived as a simulation does"),
        (from_public_randomness, "public randomness"),
        (blind_to_the_step, "the same stream, a step before"),
        (blind_to_the_purpose, "another purpose of the same step"),
        (the_same_for_all, "the same stream of the next device"),
        (a_counter, "a linear predictor"),
    ],
)
def test_the_same_test_catches_broken_randomness(broken: Toss, caught_by: str) -> None:
    assert advantages(broken)[caught_by] > 20 * THRESHOLD


def test_system_secrets_are_fresh() -> None:
    one, other = system_secrets(IDS), system_secrets(IDS)
    assert len(np.unique(np.concatenate([one, other]), axis=0)) == 2 * len(IDS)


def test_streams_differ_by_device_purpose_and_step() -> None:
    owner = PrivateRandomness(simulated_secrets(SEED, IDS))
    streams = [owner.words(IDS, purpose, step, 4) for purpose in "ab" for step in range(3)]
    assert len(np.unique(np.concatenate(streams), axis=0)) == 6 * len(IDS)


def test_a_stream_is_the_same_however_it_is_asked() -> None:
    owner = PrivateRandomness(simulated_secrets(SEED, IDS))
    whole = owner.words(IDS, "noise", 3, 40)
    assert np.array_equal(whole[:, :7], owner.words(IDS, "noise", 3, 7))
    for row in (0, 17, 1999):  # one device alone takes the other path through the cipher
        assert np.array_equal(whole[[row]], owner.words(np.array([row]), "noise", 3, 40))


@pytest.mark.parametrize("count", [1, 8, 9, 17])
def test_numbers_of_one_device_are_those_of_all(count: int) -> None:
    owner = PrivateRandomness(simulated_secrets(SEED, IDS))
    drawn = owner.uniform(IDS, "noise", 3, count)
    for row in (0, 17, 1999):
        assert owner.uniform_of(row, "noise", 3, count) == drawn[row].tolist()


def test_uniform_is_uniform() -> None:
    drawn = PrivateRandomness(simulated_secrets(SEED, IDS)).uniform(IDS, "noise", 1, 50)
    assert drawn.shape == (len(IDS), 50)
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 0.001
    for shift in (1, 2):  # neighbours in a stream do not go together
        assert abs(np.corrcoef(drawn[:, shift:].ravel(), drawn[:, :-shift].ravel())[0, 1]) < 0.015


@pytest.mark.parametrize("word", [0, 1, 2**31, 2**32 - 1])
def test_uniform_lies_strictly_inside(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(keys: np.ndarray, nonce: bytes, count: int) -> np.ndarray:
        return np.full((len(keys), 16 * count), word, np.uint32)

    monkeypatch.setattr(entropy, "blocks", constant)
    drawn = PrivateRandomness(np.zeros((1, 8), np.uint32)).uniform(np.array([0]), "noise", 0)[0, 0]
    assert 0 < drawn < 1
    assert drawn == pytest.approx(word / 2**32, abs=2**-31)


def test_simulated_secrets_do_not_depend_on_the_split() -> None:
    devices = np.array([0, 1, 5, 65_535, 65_536, 65_537, 1_000_003])
    together = simulated_secrets(SEED, devices)
    assert np.array_equal(together, simulated_secrets(SEED, devices))
    alone = [simulated_secrets(SEED, devices[[row]]) for row in range(len(devices))]
    assert np.array_equal(together, np.concatenate(alone))
    assert np.array_equal(together[::-1], simulated_secrets(SEED, devices[::-1]))
    assert len(np.unique(together, axis=0)) == len(devices)
    assert not (together == simulated_secrets(SEED + 1, devices)).all(axis=1).any()
    assert simulated_secrets(SEED, devices[:0]).shape == (0, 8)


def test_secrets_are_not_shown() -> None:
    secrets = system_secrets(IDS[:3])
    shown = repr(PrivateRandomness(secrets)) + str(PrivateRandomness(secrets))
    assert "PrivateCoins(devices=3)" in shown
    assert not any(str(word) in shown for word in secrets.ravel().tolist() if word > 9)


def test_randomness_of_a_pair_are_the_same_at_both_ends_and_fair() -> None:
    random = np.random.default_rng(0)
    first, second = random.integers(0, 10**6, (2, 200_000))
    public = PublicRandomness(SEED)
    coin = public.for_pairs("ties", first, second)
    assert np.array_equal(coin, public.for_pairs("ties", second, first))
    deviation = 0.5 / np.sqrt(len(coin))
    assert abs(coin.mean() - 0.5) < 5 * deviation
    others = {
        "purpose": public.for_pairs("other", first, second),
        "seed": PublicRandomness(SEED + 1).for_pairs("ties", first, second),
        "next id": public.for_pairs("ties", first, second + 1),
        "both next": public.for_pairs("ties", first + 1, second + 1),
    }
    for name, other in others.items():
        assert abs((coin == other).mean() - 0.5) < 5 * deviation, name
    # Fair for each device too: its randomness with 1000 others.
    of_one = public.for_pairs("ties", np.full(1000, 3), np.arange(4, 1004))
    assert abs(of_one.mean() - 0.5) < 5 * 0.5 / np.sqrt(1000)


def test_public_generators_are_repeatable_and_apart() -> None:
    public = PublicRandomness(SEED)
    draws = {
        (purpose, step): tuple(public.generator(purpose, step).integers(0, 2**62, 4))
        for purpose in ("weights", "splits")
        for step in (0, 1)
    }
    assert len(set(draws.values())) == 4
    again = PublicRandomness(SEED).generator("splits", 1).integers(0, 2**62, 4)
    assert tuple(again) == draws["splits", 1]


def test_the_secret_of_a_device_does_not_depend_on_who_else_is_asked_for() -> None:
    """Secrets are drawn in runs of 65,536 devices, of which only the first that are needed."""
    whole = simulated_secrets(SEED, np.arange(70_000), "variant")
    assert len(np.unique(whole, axis=0)) == 70_000
    for ids in ([0], [1], [65_535], [65_536], [69_999, 3, 65_537, 0]):
        assert np.array_equal(simulated_secrets(SEED, np.array(ids), "variant"), whole[ids])
