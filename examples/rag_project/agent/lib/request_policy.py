async def transform(input):
    """The same as request-policy.ts, in Python."""
    request, loop = input["request"], input["loop"]
    enrichment = await adf.sys_lambda(
        source="lib/fast_rag.py:enrich_messages",
        args={"messages": request["messages"], "loop": loop["name"]},
    )
    return {**request, "messages": enrichment["messages"]}
