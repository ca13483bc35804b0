"""Checks on lists of API messages."""

from typing import Any

from foldmark.fitting.fit import list_tokens
from foldmark.fitting.scan import MessageScanner
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import codec_named


def size(messages: list[Any], api: str) -> int:
    return list_tokens(messages, codec_named(api))


def check_pairs(messages: list[Any], api: str) -> None:
    """Each call has its results right behind it, and each result its call."""
    scanner = MessageScanner(messages, codec_named(api), by_classes)
    waiting: list[str] = []
    for index in range(len(messages)):
        scan = scanner.at(index)
        for call_id in scan.results:
            waiting.remove(call_id)
        if scan.role != "tool" and not scan.joins:
            assert not waiting, (index, waiting)
        waiting += scan.calls
    assert not waiting
