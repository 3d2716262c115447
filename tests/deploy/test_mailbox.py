"""The mailbox: repeated until acknowledged, the first write wins, kept until it is on disk."""

from lumos.deploy.protocol.frames import (
    Acknowledged,
    Asked,
    Data,
    Frame,
    Hello,
    RoundKey,
    Wanted,
    Welcome,
)
from lumos.deploy.protocol.mailbox import (
    ENVELOPE,
    FIRST_WAIT,
    FORGOTTEN,
    LARGE,
    MAX_AHEAD,
    MAX_ASKED,
    MAX_WAIT,
    Mailbox,
)


def key(phase: int, number: int = 0, attempt: int = 0) -> RoundKey:
    return RoundKey(phase, attempt, 0, number)


def data(phase: int, body: bytes = b"body", number: int = 0) -> Data:
    return Data(key(phase, number), "a topic", 1, body)


def sent(mailbox: Mailbox, now: float, *kinds: type[Frame]) -> list[Frame]:
    """What is sent to participant 2."""
    packets = dict(mailbox.due(now))
    return [frame for frame in packets.get(2, []) if isinstance(frame, kinds or Data)]


def test_an_envelope_is_repeated_byte_by_byte_until_it_is_acknowledged() -> None:
    mailbox = Mailbox(b"boot")
    mailbox.post(2, data(0), 0.0)
    assert sent(mailbox, 0.0) == [data(0)]
    assert sent(mailbox, FIRST_WAIT / 2) == []
    assert sent(mailbox, FIRST_WAIT) == [data(0)]
    mailbox.post(2, data(0, b"another body"), 0.0)  # posted before: not changed
    assert sent(mailbox, FIRST_WAIT + MAX_WAIT) == [data(0)]
    assert not mailbox.acknowledged(2, key(0))
    mailbox.receive(2, Acknowledged([key(0)], 0, b""), 9.0)
    assert mailbox.acknowledged(2, key(0))
    assert sent(mailbox, 99.0) == []


def test_the_first_write_wins_and_every_copy_is_acknowledged() -> None:
    mailbox = Mailbox(b"boot")
    for body in (b"first", b"second"):
        mailbox.receive(2, data(0, body), 0.0)
        assert sent(mailbox, 0.0, Acknowledged) == [Acknowledged([key(0)], 0, b"boot")]
    found = mailbox.envelope(2, key(0))
    assert found is not None
    assert found.body == b"first"
    mailbox.drop(2, key(0))
    mailbox.receive(2, data(0, b"third"), 0.0)
    assert mailbox.envelope(2, key(0)) is None  # refused once, refused for good


def test_whoever_starts_again_gets_what_it_may_have_lost() -> None:
    mailbox = Mailbox(b"boot")
    mailbox.receive(2, Hello(b"its first", 0), 0.0)
    assert sent(mailbox, 0.0, Welcome) == [Welcome(b"its first")]
    for phase in (0, 1, 2):
        mailbox.post(2, data(phase), 0.0)
    sent(mailbox, 0.0)
    acknowledged = Acknowledged([key(0), key(1), key(2)], 1, b"its first")
    mailbox.receive(2, acknowledged, 0.0)
    assert sent(mailbox, 9.0) == []
    mailbox.receive(2, Hello(b"its second", 1), 10.0)
    assert sent(mailbox, 10.0) == [data(1), data(2)]
    mailbox.receive(2, Hello(b"its second", 1), 10.0)  # repeated: nothing is sent twice for it
    assert sent(mailbox, 10.0) == []
    mailbox.receive(2, acknowledged, 10.0)  # late, of the first start, which is gone
    assert sent(mailbox, 11.0) == [data(1), data(2)]
    for number in (1, 2):
        assert sent(mailbox, 11.0, Welcome) == []
        mailbox.receive(2, Acknowledged([key(number)], 1, b"its second"), 11.0)
    assert sent(mailbox, 11.0, Welcome) == [Welcome(b"its second")]
    assert sent(mailbox, 99.0) == []


def test_whoever_has_started_itself_posts_again_before_it_welcomes_others() -> None:
    mailbox = Mailbox(b"boot")
    mailbox.receive(2, Hello(b"its second", 0), 0.0)
    mailbox.post(2, data(0), 0.0)  # from what is on the disk
    assert sent(mailbox, 0.0, Welcome) == []
    mailbox.receive(2, Acknowledged([key(0)], 0, b"its second"), 0.0)
    assert sent(mailbox, 0.0, Welcome) == [Welcome(b"its second")]


def test_hello_is_repeated_until_it_is_welcome() -> None:
    mailbox = Mailbox(b"boot", 3)
    mailbox.greet([2], 0.0)
    assert sent(mailbox, 0.0, Hello) == [Hello(b"boot", 3)]
    assert sent(mailbox, FIRST_WAIT, Hello) == [Hello(b"boot", 3)]
    mailbox.receive(2, Welcome(b"of another start"), 1.0)
    assert sent(mailbox, 9.0, Hello) == [Hello(b"boot", 3)]
    assert not mailbox.welcome()
    mailbox.receive(2, Welcome(b"boot"), 9.0)
    assert mailbox.welcome()
    assert sent(mailbox, 99.0, Hello) == []
    assert mailbox.next_due() == float("inf")


def test_what_is_on_disk_is_neither_kept_nor_taken_again() -> None:
    mailbox = Mailbox(b"boot")
    mailbox.receive(2, data(0), 0.0)
    mailbox.settle(1)
    assert mailbox.envelope(2, key(0)) is None
    mailbox.receive(2, data(0), 0.0)
    assert mailbox.envelope(2, key(0)) is None
    assert sent(mailbox, 0.0, Acknowledged) == [Acknowledged([key(0), key(0)], 1, b"boot")]


def test_a_sender_fills_no_memory() -> None:
    """What waits to be read is bounded by sender and phase; what was read makes room."""
    lines: list[str] = []
    size = ENVELOPE + 100 + 4 * len("a topic")
    mailbox = Mailbox(b"boot", 0, 10 * size, lines.append)
    for phase in (0, 1):
        for number in range(20):
            mailbox.receive(2, data(phase, bytes(100), number), 0.0)
        kept = [mailbox.envelope(2, key(phase, number)) is not None for number in range(20)]
        assert kept == [True] * 10 + [False] * 10
    acknowledged = {frame for one in sent(mailbox, 0.0, Acknowledged) for frame in one.keys}  # type: ignore[union-attr]
    assert acknowledged == {key(phase, number) for phase in (0, 1) for number in range(10)}
    mailbox.receive(2, data(MAX_AHEAD + 1), 0.0)
    assert mailbox.envelope(2, key(MAX_AHEAD + 1)) is None
    assert lines == ["device 2 sends more than is read in one phase; dropped"]
    assert mailbox.unread(2) == 2 * 10 * size
    mailbox.forget_round(key(0, 0))
    for number in (0, 10, 11):  # a copy of one that was read is none again
        mailbox.receive(2, data(0, bytes(100), number), 0.0)
    assert [mailbox.envelope(2, key(0, at)) is None for at in (0, 10, 11)] == [True, False, True]
    mailbox.receive(3, data(0, number=1), 0.0)
    assert mailbox.envelope(3, key(0, 1)) is not None


def test_names_lengths_and_phases_fill_no_memory_either() -> None:
    mailbox = Mailbox(b"boot", 0, 10_000)
    for number, phase in enumerate((0, FORGOTTEN, FORGOTTEN + 1, FORGOTTEN + 2)):
        long = Data(key(phase, 0), "a" * 10_000, 0, b"")
        many = Data(key(phase, 1), "", 1000, b"", [0] * 1000)
        for frame in (long, many, data(phase, bytes(6_000), 2), data(phase, bytes(6_000), 3)):
            mailbox.receive(2, frame, 0.0)
        kept = [mailbox.envelope(2, key(phase, at)) is not None for at in range(4)]
        assert kept == [False, False, number < 2, False]


def test_left_out_and_given_up() -> None:
    mailbox = Mailbox(b"boot")
    mailbox.post(2, data(0), 0.0)
    mailbox.receive(2, data(0), 0.0)
    mailbox.forget_attempt(0, 0)
    assert mailbox.envelope(2, key(0)) is None
    assert sent(mailbox, 0.0) == []
    mailbox.post(2, data(1), 0.0)
    mailbox.leave_out(2)
    assert mailbox.acknowledged(2, key(1))
    assert sent(mailbox, 0.0) == []


def test_a_receiver_is_asked_about_a_large_envelope_before_it_is_repeated() -> None:
    """Kilobytes are not sent again to one that is only slow: they may be on their way."""
    large, mailbox = data(0, bytes(LARGE)), Mailbox(b"boot")
    mailbox.post(2, large, 0.0)
    assert sent(mailbox, 0.0) == [large]
    for now in (FIRST_WAIT, 4.0, 40.0):
        assert sent(mailbox, now, Data, Asked) == [Asked([key(0)], [1])]
    mailbox.receive(2, Wanted([key(0)], [1]), 41.0)
    assert sent(mailbox, 41.0) == [large]
    for _ in range(3):  # answers to earlier questions
        mailbox.receive(2, Wanted([key(0)], [1]), 41.0)
        assert sent(mailbox, 41.1) == []
    mailbox.receive(2, Wanted([key(0)], [2]), 41.0)  # that question was not asked
    assert sent(mailbox, 41.1) == []
    assert sent(mailbox, 80.0, Asked) == [Asked([key(0)], [2])]
    mailbox.receive(2, Acknowledged([key(0)], 0, b""), 80.0)
    mailbox.receive(2, Wanted([key(0)], [2]), 80.0)
    assert sent(mailbox, 99.0, Data, Asked) == []


def test_a_question_is_answered_by_what_its_sender_has_sent_alone() -> None:
    """Rounds that go on without an envelope change no answer: they would tell of others."""
    for over in (False, True):
        mailbox = Mailbox(b"boot", 1)
        mailbox.receive(2, data(1, number=0), 0.0)
        mailbox.drop(2, key(1, 0))
        mailbox.receive(3, data(1, number=1), 0.0)
        mailbox.due(0.0)
        if over:
            for number in range(3):
                mailbox.forget_round(key(1, number))
        keys = [key(0), *(key(1, number) for number in range(3))]
        mailbox.receive(2, Asked(keys, [1, 2, 3, 4]), 1.0)
        answers = sent(mailbox, 1.0, Acknowledged, Wanted)
        assert answers == [
            Wanted([key(1, 1), key(1, 2)], [3, 4]),
            Acknowledged([key(0), key(1, 0)], 1, b"boot"),
        ]


def test_many_questions_in_one_packet_get_a_bounded_answer() -> None:
    mailbox = Mailbox(b"boot")
    mailbox.receive(2, Asked([key(0, number) for number in range(10**4)], [1] * 10**4), 0.0)
    (wanted,) = sent(mailbox, 0.0, Wanted)
    assert isinstance(wanted, Wanted)
    assert len(wanted.keys) == MAX_ASKED


def test_slow_acknowledgements_are_learnt_though_envelopes_are_repeated() -> None:
    """Each is repeated at first; two acknowledgements show that the first copy had arrived."""
    slow, copies = 3.0, []
    mailbox = Mailbox(b"boot")
    for number in range(40):
        began = 100.0 * number
        mailbox.post(2, data(0, number=number), began)
        times = [began + step / 10 for step in range(30)]
        copies.append(sum(len(sent(mailbox, now)) for now in times))
        for _ in range(copies[-1]):
            mailbox.receive(2, Acknowledged([key(0, number)], 0, b""), began + slow)
    assert copies[0] > 3
    assert copies[-1] == 1


def test_acknowledgements_of_a_lossy_link_teach_no_slowness() -> None:
    """Of two copies the first was lost: one acknowledgement comes."""
    mailbox = Mailbox(b"boot")
    for number in range(40):
        began = 100.0 * number
        mailbox.post(2, data(0, number=number), began)
        assert sent(mailbox, began) == [data(0, number=number)]
        assert sent(mailbox, began + FIRST_WAIT) == [data(0, number=number)]
        mailbox.receive(2, Acknowledged([key(0, number)], 0, b""), began + FIRST_WAIT + 0.01)
