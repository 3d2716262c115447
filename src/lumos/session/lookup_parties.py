"""The two ends of a session of table look-ups: keys, nonces, and the messages that open it.

S opens the session with nonce ‖ A; R's nonce stands in front of its first message. What follows is
the protocol's own: `_compose_tasks` and `_take_tasks`.
"""

from lumos.crypto import entropy
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.session.errors import SessionClosed
from lumos.session.lookup import ReceiverKeys, SenderKeys, session_id
from lumos.session.message_list import NONCE
from lumos.session.party import Party, Rules, SpecT, TaskT, ValueT

_CLOSED = "the session is closed; open a new one"


class LookupSender(Party[SpecT, ValueT, TaskT]):
    """S: it has the tables and answers every digit of R."""

    _is_sender = True

    def __init__(
        self, me: int, peer: int, rules: Rules[SpecT, ValueT, TaskT], group: Group = ED25519
    ) -> None:
        super().__init__(me, peer, rules, group.point_bytes)
        self._nonce = entropy.draw(NONCE)
        self._keys: SenderKeys | None = SenderKeys(group)

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._keys = None

    def _live(self) -> SenderKeys:
        if self._keys is None:
            raise SessionClosed(_CLOSED)
        return self._keys

    def _compose(self, position: int) -> bytes:
        if position < 0:
            return self._nonce + self._live().A
        return self._compose_tasks(position)

    def _take(self, position: int, message: bytes, check: int) -> None:
        if position == 0 and self._opening:
            keys, nonce = self._live(), message[:NONCE]
            opening = self._nonce + keys.A
            keys.bind(session_id(self._sender_id, self._receiver_id, opening, nonce))
            message = message[NONCE:]
        self._take_tasks(position, message, check)

    def _compose_tasks(self, position: int) -> bytes:
        raise NotImplementedError

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        raise NotImplementedError


class LookupReceiver(Party[SpecT, ValueT, TaskT]):
    """R: it asks for one entry per table and reads no other."""

    _is_sender = False

    def __init__(
        self, me: int, peer: int, rules: Rules[SpecT, ValueT, TaskT], group: Group = ED25519
    ) -> None:
        super().__init__(me, peer, rules, group.point_bytes)
        self._group = group
        self._nonce = entropy.draw(NONCE)
        self._keys: ReceiverKeys | None = None

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._keys = None

    def _live(self) -> ReceiverKeys:
        if self._keys is None:
            raise SessionClosed(_CLOSED)
        return self._keys

    def _compose(self, position: int) -> bytes:
        message = self._compose_tasks(position)
        return self._nonce + message if position == 0 and self._opening else message

    def _take(self, position: int, message: bytes, check: int) -> None:
        if position < 0:
            sid = session_id(self._sender_id, self._receiver_id, message, self._nonce)
            self._keys = ReceiverKeys(message[NONCE:], sid, self._group)
        else:
            self._take_tasks(position, message, check)

    def _compose_tasks(self, position: int) -> bytes:
        raise NotImplementedError

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        raise NotImplementedError
