"""Each of the fifty behaviours of the format that this bridge follows has a test with its number in its name."""

import re
from pathlib import Path

HERE = Path(__file__).parent
WITH_NUMBER = re.compile(r"^(?:async )?def test_(\d\d)_", re.MULTILINE)


def test_each_of_the_fifty_is_named_by_a_test():
    named = {int(number) for file in HERE.glob("test_fifty_*.py") for number in WITH_NUMBER.findall(file.read_text())}
    assert named == set(range(1, 51))
