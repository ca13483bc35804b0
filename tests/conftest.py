"""What the tests share: where recorded vectors and real transcripts lie, and how they are read."""

import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.corpus import CORPUS
from tests.support.effort import examples
from tests.support.local_model import model_server
from tests.support.store_engines import ENGINES, cleared, new_database, postgres_server

# The machine may be busy: no deadlines.
settings.register_profile("foldmark", deadline=None, max_examples=examples(30, 100))
settings.load_profile("foldmark")

# The settings of whoever runs the tests are not theirs.
os.environ["XDG_CONFIG_HOME"] = str(Path(__file__).parent / "no-settings")

VECTORS = Path(__file__).parent / "vectors"


_homes = count()

# Only these folders run on PostgreSQL in the quick tier.
POSTGRES_IN_QUICK = ("contracts", "store")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `long` what only `make test-all` runs: system tests, and most tests on PostgreSQL."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        on_postgres = "postgres" in item.keywords or "[postgres" in item.name
        if folder == "system" or (on_postgres and folder not in POSTGRES_IN_QUICK):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the data and the settings of all tests."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def own_home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep each test apart from the user's own store, snapshots and settings."""
    home = homes / str(next(_homes))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home


@pytest.fixture
def seed() -> int:
    """Another one in each run, or FOLDMARK_SEED; it is told where a test fails."""
    chosen = int(os.environ.get("FOLDMARK_SEED", time.time()))
    print(f"FOLDMARK_SEED={chosen}")  # noqa: T201 - shown with the failure
    return chosen


@pytest.fixture
def vectors() -> Callable[[str], Any]:
    """Recorded inputs and outputs of OpenCode, by name."""
    return lambda name: json.loads((VECTORS / f"{name}.json").read_bytes())


@pytest.fixture
def corpus() -> Path:
    """The folder of real transcripts."""
    if not CORPUS.is_dir():
        pytest.skip(f"no corpus at {CORPUS}; set FOLDMARK_CORPUS")
    return CORPUS


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL server, started once."""
    with postgres_server() as address:
        yield address


@pytest.fixture(scope="session")
def shared_database(postgres: str) -> str:
    """A database that tests use one after the other: to make and remove hundreds takes minutes."""
    return new_database(postgres)


@pytest.fixture(params=ENGINES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store on each engine: a path, or an address."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return cleared(request.getfixturevalue("shared_database"))


@pytest.fixture(scope="session")
def local_model() -> Iterator[str]:
    """The address of a server of a small real model with a window of 2 048 tokens."""
    with model_server() as address:
        yield address
