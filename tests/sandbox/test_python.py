"""What Python lambdas lack is named, with the line and a way out."""

import pytest
from sandbox.sandboxed import run

from beforehand.sandbox import LambdaMissing, LambdaRaised, LambdaUnsupported

LACKING = {
    "class inheritance": (
        "class A:\n    pass\nclass B(A):\n    pass\ndef main(a):\n    return 1",
        3,
        "plain class, a dataclass or functions",
    ),
    "yield": ("def g():\n    yield 1\ndef main(a):\n    return list(g())", 2, "build a list"),
    "the 'del' statement": ("def main(a):\n    x = 1\n    del x", 3, "assign None"),
    "import *": ("from math import *\ndef main(a):\n    return 1", 1, "the names that are used"),
    "super()": ("class A:\n    def f(self):\n        return super().f()\ndef main(a):\n    return A().f()", 3, "by its name"),
    "functools.wraps": ("import functools\ndef main(a):\n    return functools.wraps(main)", 3, "in TypeScript"),
    "typing.TypedDict": ("from typing import TypedDict\ndef main(a):\n    return 1", 1, "in TypeScript"),
    "input()": ("def main(a):\n    return input()", 2, "in TypeScript"),
    "callable replacement in re.sub()": (
        "import re\ndef main(a):\n    return re.sub('a', lambda m: 'b', 'a')", 3, "in TypeScript",
    ),
    "a third-party import": ("import numpy\ndef main(a):\n    return 1", 1, "numpy"),
    "a late third-party import": ("def main(a):\n    import requests\n    return 1", 2, "requests"),
    "a sibling": ("from .rank import best\ndef main(a):\n    return best(a)", 1, "adf.sys_lambda"),
    "a sibling by name": ("from rank import best\ndef main(a):\n    return best(a)", 1, "adf.sys_lambda"),
}


@pytest.mark.parametrize("what", LACKING)
async def test_what_python_lambdas_lack_is_named_with_its_line_and_a_way_out(what):
    source, line, way_out = LACKING[what]
    with pytest.raises(LambdaUnsupported) as caught:
        await run(source)
    assert str(caught.value).startswith(f"lib/x.py:{line}: ")
    assert way_out in str(caught.value)
    assert "import" in what or "sibling" in what or what.removeprefix("the ") in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_standard_library_that_lambdas_have_works():
    source = """
import json, re, math, asyncio
from dataclasses import dataclass

@dataclass
class Train:
    number: int

def main(a):
    trains = [Train(n) for n in sorted(a, key=lambda n: -n)]
    match trains[0]:
        case Train(number=n):
            return [n, re.sub(r"\\d", "#", "12"), math.floor(2.5), json.loads("[1]")]
"""
    assert (await run(source, [1, 3, 2])).value == [3, "##", 2, [1]]


async def test_a_sleep_that_is_longer_than_the_time_is_told_and_none_ends_early():
    with pytest.raises(LambdaRaised, match=r"lib/x\.py:3: raised TimeoutError: sleep limit exceeded: 1000s > 60s"):
        await run("import asyncio\nasync def main(a):\n    await asyncio.sleep(1000)")


async def test_a_lambda_may_have_something_that_it_calls_type():
    assert (await run("type = 'rule'\nasync def main(a):\n    return type")).value == "rule"


@pytest.mark.parametrize("name", ["_names", "_type", "_json", "_argument", "_value", "_locals", "adf_names"])
async def test_a_lambda_may_have_helpers_of_any_name(name):
    source = f"def {name}(a):\n    return [a]\nasync def main(a):\n    return {name}(a)"
    assert (await run(source, "x")).value == ["x"]
    assert (await run(source, "x", function=name)).value == ["x"]
    assert (await run(f"{name} = ['x']\ndef main(a):\n    return {name}")).value == ["x"]


@pytest.mark.parametrize("name", ["_names", "_type", "_json", "_argument", "_value"])
async def test_a_private_function_that_is_missing_is_told_so(name):
    with pytest.raises(LambdaMissing, match=f"has no function '{name}'"):
        await run("def main(a):\n    return 1", function=name)


@pytest.mark.parametrize("sleep", ["await asyncio.sleep(0.01)", "time.sleep(0.01)", "await asyncio.gather(asyncio.sleep(0.01))"])
async def test_a_lambda_may_sleep(sleep):
    assert (await run(f"import asyncio, time\nasync def main(a):\n    {sleep}\n    return 1")).value == 1


async def test_a_function_that_takes_something_else_is_told_what_it_is_called_with():
    with pytest.raises(LambdaRaised, match=r"is called with one argument, an object: write def main\(input\)"):
        await run("def main(request, loop):\n    return 1", {})


async def test_bridge_arguments_may_be_keywords_or_one_object():
    async def bridge(method, argument):
        return argument

    source = "async def main(a):\n    return [await adf.fs_read(path='x'), await adf.fs_read({'path': 'x'}), await adf.fs_list()]"
    assert (await run(source, bridge=bridge)).value == [{"path": "x"}, {"path": "x"}, {}]


async def test_a_bridge_call_with_two_arguments_is_refused():
    with pytest.raises(LambdaRaised, match=r"INVALID_INPUT: adf\.fs_read takes one object"):
        await run("async def main(a):\n    await adf.fs_read('a', 'b')")


@pytest.mark.parametrize("name", ["input", "print", "len", "sorted", "dict"])
async def test_a_function_that_is_missing_is_told_so_whatever_its_name(name):
    """One that Python has by itself is none of the file's: `print` would let everything pass."""
    with pytest.raises(LambdaMissing, match=rf"lib/x\.py:{name}: has no function '{name}'"):
        await run("def main(a):\n    return 1", function=name)


@pytest.mark.parametrize("name", ["filter", "type", "locals"])
async def test_a_function_of_the_file_may_have_the_name_of_one_that_python_has(name):
    assert (await run(f"def {name}(a):\n    return 'mine'", function=name)).value == "mine"
