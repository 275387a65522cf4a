def asked(message):
    """What somebody has asked in this message; nothing if it holds results of tools."""
    content = message["content"]
    if message["role"] != "user":
        return ""
    if isinstance(content, str):
        return content
    if any(block["type"] == "tool_result" for block in content):
        return ""
    return " ".join([block["text"] for block in content if block["type"] == "text"])


async def enrich_messages(args):
    """Put the notes that fit the last question in front of it."""
    messages = args["messages"]
    questions = [i for i, message in enumerate(messages) if asked(message)]
    notes = await adf.search_notes(question=asked(messages[questions[-1]])) if questions else []
    print(len(notes), "notes for", args["loop"])
    if not notes:
        return {"messages": messages}
    content = "From the handbook:\n" + "\n".join(["- " + note["content"] for note in notes])
    return {"messages": [*messages[: questions[-1]], {"role": "user", "content": content}, *messages[questions[-1] :]]}
