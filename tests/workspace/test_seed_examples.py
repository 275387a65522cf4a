"""The examples of the format's own guide, word for word, as hooks of real runs; and the same in Python."""

from pathlib import Path

import pytest

from beforehand import Agent, HookFailed, tool
from beforehand.testing import ScriptedModel, text, tool_call
from beforehand.workspace import Lambda, Workspace

CONTRACT = """
async function transform({ request, loop }) {
  // loop.name is "main" or the current inner-loop name
  return {
    system: request.system,
    messages: request.messages,
    tools: request.tools,
    options: request.options,
  }
}
"""

GUIDE = Path(__file__).parents[2] / "examples" / "rag_project" / "agent" / "lib"
"""Where the guide's two exported examples are kept, byte for byte, which a test of that project sees to."""
TWO_TOOLS = (GUIDE / "two-tools.ts").read_text(encoding="utf-8")
FAST_RAG = (GUIDE / "request-policy.ts").read_text(encoding="utf-8")

ENRICH = """
interface Found { path: string; content: string }

export async function enrichMessages({ messages, loop }) {
  const question = messages[messages.length - 1].content.toLowerCase()
  const found: Found[] = []
  for (const { path } of await adf.fs_list({ prefix: 'notes/' })) {
    const { content } = await adf.fs_read({ path })
    const words = question.split(/\\W+/).filter((word) => word.length > 3)
    if (words.some((word) => content.toLowerCase().includes(word))) found.push({ path, content })
  }
  console.log('found', found.length, 'for', loop)
  const facts = found.map((f) => f.content).join('\\n')
  return { messages: [{ role: 'user', content: 'Known facts:\\n' + facts }, ...messages] }
}
"""

FAST_RAG_PY = """
async def transform(input):
    request, loop = input["request"], input["loop"]
    enrichment = await adf.sys_lambda(
        source="lib/fast_rag.py:enrich_messages",
        args={"messages": request["messages"], "loop": loop["name"]},
    )
    return {**request, "messages": enrichment["messages"]}
"""

ENRICH_PY = """
import re

async def enrich_messages(args):
    words = [w for w in re.split(r"\\W+", args["messages"][-1]["content"].lower()) if len(w) > 3]
    found = []
    for entry in await adf.fs_list(prefix="notes/"):
        content = (await adf.fs_read(path=entry["path"]))["content"]
        if any(word in content.lower() for word in words):
            found.append(content)
    print("found", len(found), "for", args["loop"])
    return {"messages": [{"role": "user", "content": "Known facts:\\n" + "\\n".join(found)}, *args["messages"]]}
"""

RAG = {
    "ts": ("lib/request-policy.ts", FAST_RAG, "lib/fast-rag.ts", ENRICH),
    "py": ("lib/policy.py", FAST_RAG_PY, "lib/fast_rag.py", ENRICH_PY),
}


def policy(place, source, name="lib/request-policy.ts"):
    (place / name).write_text(source)
    return Lambda(f"{name}:transform", seam="before_provider_call", workspace=Workspace(place), timeout=60)


@tool
async def fs_read(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


@tool
async def drop_table(name: str) -> str:
    """Drop a table."""
    return f"dropped {name}"


async def test_the_contract_example_changes_nothing(place):
    plain, hooked = ScriptedModel([tool_call("fs_read", {"path": "a"}, id="c1"), text("done")]), ScriptedModel(
        [tool_call("fs_read", {"path": "a"}, id="c1"), text("done")])  # fmt: skip
    await Agent(model=plain, tools=[fs_read], instructions="Be brief.").run("Hi")
    await Agent(model=hooked, tools=[fs_read], instructions="Be brief.", hooks=[policy(place, CONTRACT)]).run("Hi")
    for one, other in zip(plain.requests, hooked.requests, strict=True):
        assert (one.system, one.tools, one.options) == (other.system, other.tools, other.options)
        assert [(m.role, m.text) for m in one.messages] == [(m.role, m.text) for m in other.messages]


async def test_the_tools_example_hides_a_tool_that_still_runs_through_its_gates(place):
    model = ScriptedModel([tool_call("drop_table", {"name": "x"}), text("done")])
    await Agent(model=model, tools=[fs_read, drop_table], hooks=[policy(place, TWO_TOOLS)]).run("Hi")
    assert [[t.name for t in request.tools] for request in model.requests] == [["fs_read"], ["fs_read"]]
    assert model.requests[1].messages[-1].text == "dropped x"


@pytest.mark.parametrize("language", ["ts", "py"])
async def test_the_retrieval_example_enriches_the_request_and_not_the_history(place, language, caplog):
    hook_file, hook_source, rag_file, rag_source = RAG[language]
    (place / rag_file).write_text(rag_source)
    (place / "notes").mkdir()
    (place / "notes" / "trains.txt").write_text("The night train to Mar del Plata leaves at 23:50.")
    (place / "notes" / "cooking.txt").write_text("Onions first.")
    caplog.set_level("INFO", logger="beforehand.lambdas")
    model = ScriptedModel([text("At 23:50.")])
    result = await Agent(model=model, hooks=[policy(place, hook_source, hook_file)]).run("When does the night train leave?")
    assert [m.text for m in model.requests[0].messages] == [
        "Known facts:\nThe night train to Mar del Plata leaves at 23:50.",
        "When does the night train leave?",
    ]
    assert [m.text for m in result.messages] == ["When does the night train leave?", "At 23:50."]
    assert "found 1 for main" in caplog.text


@pytest.mark.parametrize("language", ["ts", "py"])
@pytest.mark.parametrize("failure", ["is missing", "fails", "returns no messages"])
async def test_when_retrieval_fails_the_unenriched_request_does_not_leave(place, language, failure):
    hook_file, hook_source, rag_file, _ = RAG[language]
    if failure == "fails":
        (place / rag_file).write_text("def enrich_messages(a):\n    raise ValueError('no index')" if language == "py" else
                                      "export function enrichMessages() { throw new Error('no index') }")  # fmt: skip
    elif failure == "returns no messages":
        (place / rag_file).write_text("def enrich_messages(a):\n    return {'messages': []}" if language == "py" else
                                      "export function enrichMessages() { return {messages: []} }")  # fmt: skip
    model = ScriptedModel([text("never")])
    result = await Agent(model=model, hooks=[policy(place, hook_source, hook_file)]).run("When?", check=False)
    assert model.requests == []
    assert isinstance(result.error, HookFailed)
    expected = {
        "is missing": "NOT_FOUND",
        "fails": "no index",
        "returns no messages": "$.messages must be a list with at least one",
    }
    assert expected[failure] in str(result.error)


@pytest.mark.parametrize(
    "returned", ["null", "[]", "{request, loop}", "{...request, extra: 1}", "'text'", "undefined", "{...request, messages: []}"]
)
async def test_what_is_no_complete_request_is_refused_and_nothing_leaves(place, returned):
    model = ScriptedModel([text("never")])
    source = f"export function transform({{ request, loop }}) {{ return {returned} }}"
    with pytest.raises(HookFailed, match="returned a request that cannot be sent"):
        await Agent(model=model, hooks=[policy(place, source)]).run("Hi")
    assert model.requests == []


async def test_nothing_of_one_round_is_there_in_the_next(place):
    source = """
    globalThis.rounds = (globalThis.rounds ?? 0) + 1
    export function transform({ request }) { return {...request, system: 'round ' + globalThis.rounds} }
    """
    model = ScriptedModel([tool_call("fs_read", {"path": "a"}), text("done")])
    await Agent(model=model, tools=[fs_read], hooks=[policy(place, source)]).run("Hi")
    assert [request.system for request in model.requests] == ["round 1", "round 1"]
