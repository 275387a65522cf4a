"""A scripted OpenAI-compatible endpoint for the benchmarks: canned bytes, no state.

    python endpoint.py

prints its port. `/{turns}/{chunks}/chat/completions` asks for `turns - 1` additions, one a request, and then answers with
`chunks` pieces of text, streamed in one write if the request asks for a stream.
"""

import asyncio
import json


def event(delta, finish=None):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
    chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
LAST = (
    b"data: "
    + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}).encode()
    + b"\n\ndata: [DONE]\n\n"
)


def call(number, arguments):
    return {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": "add", "arguments": arguments}}


def streamed(number, chunks):
    if number is not None:
        head = event({"role": "assistant", "content": None, "tool_calls": [call(number, "")]})
        pieces = (f'{{"a":{number},', '"b":1}')
        args = b"".join(event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces)
        return head + args + event({}, "tool_calls") + LAST
    return b"".join(event({"content": f"word{i} "}) for i in range(chunks)) + event({}, "stop") + LAST


def whole(number, chunks):
    if number is not None:
        message = {"role": "assistant", "content": None, "tool_calls": [call(number, f'{{"a":{number},"b":1}}')]}
    else:
        message = {"role": "assistant", "content": "".join(f"word{i} " for i in range(chunks))}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}).encode()


CACHE = {}


class Endpoint(asyncio.Protocol):

    def connection_made(self, transport):
        self.transport, self.data = transport, b""

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.data) < end + 4 + length:
                return
            body, self.data = self.data[end + 4 : end + 4 + length], self.data[end + 4 + length :]
            self.answer(head.split(b" ", 2)[1], json.loads(body))

    def answer(self, path, request):
        _, turns, chunks, *_ = path.split(b"/")
        last = request["messages"][-1]
        done = int(last["content"]) if last["role"] == "tool" else 0
        number = done if done < int(turns) - 1 else None
        key = (number, int(chunks), bool(request.get("stream")))
        if key not in CACHE:
            body = streamed(number, key[1]) if key[2] else whole(number, key[1])
            kind = b"text/event-stream" if key[2] else b"application/json"
            CACHE[key] = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(body)) + body
        self.transport.write(CACHE[key])


async def main():
    server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
