"""The table of what is enabled and restricted, for the model, for authorised code and for other code."""

import pytest

from beforehand import Agent, tool
from beforehand.testing import ScriptedModel, text, tool_call
from beforehand.workspace import Authority

CODE = """
async def transform(i):
    try:
        said = await adf.wipe(path="x")
    except Exception as error:
        said = str(error)
    return {**i["request"], "system": said}
"""


@tool
def wipe(path: str) -> str:
    """Delete something."""
    return f"wiped {path}"


@pytest.mark.parametrize(
    ("enabled", "restricted", "model", "authorised", "other"),
    [
        ("false", "false", "not found", "DISABLED", "DISABLED"),
        ("false", "true", "not found", "wiped x", "REQUIRES_AUTHORIZED_CODE"),
        ("true", "false", "wiped x", "wiped x", "wiped x"),
        ("true", "true", "approval", "wiped x", "REQUIRES_AUTHORIZED_CODE"),
    ],
)
@pytest.mark.parametrize("who", ["authorised", "other"])
async def test_the_table(folder, enabled, restricted, model, authorised, other, who):
    folder.lambda_(CODE)
    if who == "authorised":
        Authority(folder.root / "agent").authorize("lib/x.py")
    folder.toml(
        'workspace = "agent"\n[pre_llm_hook]\nsource = "lib/x.py:transform"\n[[tools]]\nname = "wipe"\n'
        f"enabled = {enabled}\nrestricted = {restricted}\n"
    )
    scripted = ScriptedModel([tool_call("wipe", {"path": "x"}), text("done")])
    result = await Agent.from_project(folder.root, model=scripted, tools=[wipe]).run("go")
    said = scripted.requests[0].system
    assert said.startswith(authorised if who == "authorised" else other), said
    if model == "approval":
        assert result.stop_reason == "suspended"
    else:
        assert model in scripted.requests[1].messages[-1].text
