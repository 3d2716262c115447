"""Rounds, topics, doors and the ledger: everything that passes between devices passes here."""

from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.carrier import CARRIERS, Carrier, CarrierFactory
from lumos.exchange.endpoint import EVERY_DOOR, Connection, Endpoint, Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.ledger_report import LedgerReport, TopicLine, add_up
from lumos.exchange.tape import Passed, Tape, TopicTraffic, recording
from lumos.exchange.topic import PUBLIC_ID, TOPICS, Door, Topic

__all__ = [
    "CARRIERS",
    "EVERY_DOOR",
    "PUBLIC_ID",
    "TOPICS",
    "Batch",
    "Carrier",
    "CarrierFactory",
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
    "add_up",
    "recording",
]
