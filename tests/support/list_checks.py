"""Checks on lists of request messages."""

from typing import Any

from foldmark.fitting.scan import MessageScanner
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import codec_named


def size(messages: list[Any], wire: str) -> int:
    scanner = MessageScanner(messages, codec_named(wire), by_classes)
    scans = [scanner.at(place) for place in range(len(messages))]
    return sum(scan.tokens + scan.output for scan in scans)


def check_pairs(messages: list[Any], wire: str) -> None:
    """Each call has its results right behind it, and each result its call."""
    scanner = MessageScanner(messages, codec_named(wire), by_classes)
    waiting: list[str] = []
    for place in range(len(messages)):
        scan = scanner.at(place)
        for name in scan.results:
            waiting.remove(name)
        if scan.role != "tool" and not scan.joins:
            assert not waiting, (place, waiting)
        waiting += scan.calls
    assert not waiting
