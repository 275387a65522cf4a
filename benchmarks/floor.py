"""The floor: the same work as the agent does, written out by hand, without validation, events, hooks or errors.

It is what the figures of `run.py` are measured against. Nobody should use it.
"""

import json

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        },
    }
]


async def add(a, b):
    return a + b


def asked(text):
    return [{"role": "system", "content": "You add."}, {"role": "user", "content": text}]


class Loop:
    """`ask(messages)` is the model; `hooks` are awaited before it, before the tool and after it."""

    def __init__(self, ask, hooks=()):
        self.ask = ask
        self.hooks = list(hooks)

    async def run(self, text="go"):
        messages = asked(text)
        while True:
            for hook in self.hooks:
                await hook(messages)
            reply = await self.ask(messages)
            messages.append(reply)
            if not reply.get("tool_calls"):
                return reply["content"]
            for call in reply["tool_calls"]:
                args = json.loads(call["function"]["arguments"])
                for hook in self.hooks:
                    await hook(args)
                result = await add(**args)
                for hook in self.hooks:
                    await hook(result)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})


def in_process(turns, final, before_reply=None):
    """A model that asks for `turns - 1` additions and then says `final`."""

    async def ask(messages):
        if before_reply is not None:
            await before_reply()
        last = messages[-1]
        done = int(last["content"]) if last["role"] == "tool" else 0
        if done >= turns - 1:
            return {"role": "assistant", "content": final}
        arguments = f'{{"a":{done},"b":1}}'
        call = {"id": f"call_{done}", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return ask


def over_http(session, url, stream):
    """A model behind an OpenAI-compatible endpoint, on a bare aiohttp session."""
    headers = {"content-type": "application/json", "authorization": "Bearer x"}

    async def ask(messages):
        body = {"model": "fake", "messages": messages, "tools": TOOLS}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with session.post(url, data=json.dumps(body).encode(), headers=headers) as response:
            if not stream:
                return json.loads(await response.read())["choices"][0]["message"]
            return await gathered(response.content.iter_any())

    return ask


async def gathered(pieces):
    """The message in a stream of server-sent events."""
    rest, text, calls = b"", [], {}
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: ") or line == b"data: [DONE]":
                continue
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    text.append(delta["content"])
                    await shown(delta["content"])
                for part in delta.get("tool_calls") or ():
                    call = calls.setdefault(
                        part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                    )
                    call["id"] = part.get("id") or call["id"]
                    call["function"]["name"] += part["function"].get("name") or ""
                    call["function"]["arguments"] += part["function"].get("arguments") or ""
    return {"role": "assistant", "content": "".join(text) or None, "tool_calls": list(calls.values())}


async def shown(text):
    """Where a reader would get the text."""
