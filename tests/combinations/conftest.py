import pytest


@pytest.fixture
async def no_spares_are_left():
    from beforehand.sandbox import close_spares

    yield
    await close_spares()
