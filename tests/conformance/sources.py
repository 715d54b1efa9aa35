"""Reads resources whose content comes from connections, with the official SDK, and prints their texts as JSON.

Arguments: the endpoint, the key, how to connect (`legacy`, `auto` or a modern revision), and the URIs.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, key: str, mode: str, *uris: str) -> None:
    async with httpx2.AsyncClient(headers={"X-Agent-API-Key": key}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            print(json.dumps([(await client.read_resource(uri)).contents[0].text for uri in uris]))


asyncio.run(main(*sys.argv[1:]))
