"""Rounds, topics, doors and the ledger: everything that passes between devices passes here."""

from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.endpoint import EVERY_DOOR, Carrier, Endpoint, Program
from lumos.exchange.ledger import Ledger, LedgerReport, TopicLine, add_up
from lumos.exchange.loopback import Loopback, Router
from lumos.exchange.topic import PUBLIC_ID, TOPICS, Door, Topic

__all__ = [
    "EVERY_DOOR",
    "PUBLIC_ID",
    "TOPICS",
    "Batch",
    "Carrier",
    "Door",
    "Endpoint",
    "Inbox",
    "Ledger",
    "LedgerReport",
    "Loopback",
    "Outbox",
    "Program",
    "Router",
    "Topic",
    "TopicLine",
    "add_up",
]
