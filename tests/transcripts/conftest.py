"""Frees the cached transcripts of each test file."""

from collections.abc import Iterator

import pytest

from tests.support.corpus import read, views


@pytest.fixture(scope="module", autouse=True)
def drop_read_transcripts() -> Iterator[None]:
    """Empty the caches after each file, as all transcripts together take much memory."""
    yield
    views.cache_clear()
    read.cache_clear()
