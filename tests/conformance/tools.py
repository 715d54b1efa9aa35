"""A client that knows only tools, with the official SDK: answers questions about the demo agent as JSON.

Arguments: the endpoint, the key, and how to connect: `legacy`, `auto` or a modern revision.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, key: str, mode: str) -> None:
    async with httpx2.AsyncClient(headers={"X-Agent-API-Key": key}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            # The SDK then checks structured content against the output schema.
            tools = [tool.name for tool in (await client.list_tools()).tools]

            found = await client.call_tool("search", {"query": "能力"})
            result = found.structured_content["results"][0]["id"]
            fetched = await client.call_tool("fetch", {"id": result})

            listed = await client.call_tool("list_resources", {})
            resources = listed.structured_content["resources"]
            assert json.loads(listed.content[0].text) == listed.structured_content
            config = next(resource["uri"] for resource in resources if "能力" in resource.get("description", ""))
            read = await client.call_tool("read_resource", {"uri": config})

            prompt = await client.call_tool("research", {"topic": "量子计算", "depth": "deep"})
            missing = await client.call_tool("read_resource", {"uri": "beeos://agent/none"})
            print(
                json.dumps(
                    {
                        "tools": tools,
                        "found": [result, json.loads(fetched.structured_content["text"])["model"]],
                        "model": json.loads(read.content[0].text)["model"],
                        "prompt": prompt.content[0].text,
                        "failed": [missing.is_error, missing.content[0].text],
                    }
                )
            )


asyncio.run(main(*sys.argv[1:]))
