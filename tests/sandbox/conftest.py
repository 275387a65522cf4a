import pytest
from sandbox.sandboxed import children, until_gone

from beforehand.sandbox import close_spares


@pytest.fixture(autouse=True)
async def nothing_is_left_running():
    """After every test here: no worker and no zombie."""
    before = children()
    yield
    await close_spares()
    await until_gone(before)
