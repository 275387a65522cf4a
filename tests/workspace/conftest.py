import pytest

from beforehand.sandbox import close_spares


@pytest.fixture(autouse=True)
async def no_spares_are_left():
    yield
    await close_spares()


@pytest.fixture
def place(tmp_path):
    """A workspace folder with an empty `lib`."""
    (tmp_path / "agent" / "lib").mkdir(parents=True)
    return tmp_path / "agent"
