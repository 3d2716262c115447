"""Rounds, topics, doors and the ledger: everything that passes between devices passes here."""

from lumos.exchange.endpoint import EVERY_DOOR, Connection, Endpoint, Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import PUBLIC_ID, TOPICS, Batch, Door, Inbox, Outbox, Topic
from lumos.exchange.observer import LedgerReport, TopicLine, add_up
from lumos.exchange.tape import Passed, Tape, TopicTraffic, recording
from lumos.exchange.transports import TRANSPORTS, Transport, TransportFactory

__all__ = [
    "EVERY_DOOR",
    "PUBLIC_ID",
    "TOPICS",
    "TRANSPORTS",
    "Batch",
    "Connection",
    "Door",
    "Endpoint",
    "Inbox",
    "Ledger",
    "LedgerReport",
    "Outbox",
    "Passed",
    "Program",
    "Tape",
    "Topic",
    "TopicLine",
    "TopicTraffic",
    "Transport",
    "TransportFactory",
    "add_up",
    "recording",
]
