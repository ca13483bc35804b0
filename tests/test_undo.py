"""Whatever is done to a session, it can be taken back, and nothing is lost."""

import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.policy import Policy

from .driving import POLICIES, Driver, operations
from .sessions import bytes_of, call, opened, step, work
from .stores import new_database

policies = st.sampled_from(POLICIES)


@settings(max_examples=1500)
@given(operations, policies)
def test_any_row_of_operations_in_a_file(row: list[tuple[str, int]], policy: Policy) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Driver(str(Path(folder) / "store.db"), policy, "s").run(row)


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations, policies)
def test_any_row_of_operations_in_postgres(
    address: str, row: list[tuple[str, int]], policy: Policy
) -> None:
    Driver(address, policy, uuid4().hex).run(row)
