async def add_notes(input):
    """Put the notes into the system text. The history keeps what was said, this request alone carries them."""
    request = input["request"]
    notes = []
    for file in await adf.fs_list(prefix="notes/"):
        note = await adf.fs_read(path=file["path"])
        notes.append(note["content"].strip())
    return {**request, "system": request["system"] + "\n\nWhat is known:\n" + "\n".join(notes)}
