"""One PostgreSQL for all tests of this folder. Where it is not installed they are skipped, and say so; never in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from durable.cluster import Cluster, cluster, programs
from durable.workers import Worker


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Iterator[None]:
    """A test that fails leaves no process behind."""
    yield
    while Worker.started:
        Worker.started.pop().kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    missing = [
        what
        for what, there in (
            ("PostgreSQL (Debian: apt-get install postgresql)", programs() is not None),
            ('the extra "durable" of beforehand', find_spec("psycopg") is not None and find_spec("dbos") is not None),
        )
        if not there
    ]
    if missing:
        if os.environ.get("CI"):
            pytest.fail(f"these tests are never skipped in CI, and {' and '.join(missing)} is missing")
        pytest.skip(f"NOT TESTED: runs on PostgreSQL, because {' and '.join(missing)} is missing")
    with cluster() as made:
        yield made


@pytest.fixture(scope="session")
def prepared(postgres: Cluster) -> str:
    """A database with the queue's tables, to be copied: making them takes seconds."""
    from dbos import DBOS

    url = postgres.url()
    DBOS.migrate(url)
    return url.rpartition("/")[2]


@pytest.fixture
def empty_url(postgres: Cluster) -> str:
    """An empty database."""
    return postgres.url()


@pytest.fixture
def url(postgres: Cluster, prepared: str) -> str:
    """A database of its own for each test, in which no run has been recorded or submitted."""
    return postgres.url(prepared)
