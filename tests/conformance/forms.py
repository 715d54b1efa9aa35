"""A client that shows forms, with the official SDK: gets a prompt that asks, and prints what came of each answer as JSON.

Arguments: the endpoint, the key, how to connect (`legacy`, `auto` or a modern revision), the name of the prompt, and the
answers to its forms: a list of lists as JSON. Each result is the text or the error, and the number of forms.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult


async def get(url: str, key: str, mode: str, prompt: str, answers: list) -> list:
    forms = []

    async def fill(_context, params):
        forms.append(params.requested_schema)
        return ElicitResult(**answers[len(forms) - 1])

    async with httpx2.AsyncClient(headers={"X-Agent-API-Key": key}) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=fill) as client:
            try:
                result = await client.get_prompt(prompt)
            except MCPError as error:
                return [error.error.message, error.error.data, len(forms)]
            return [result.messages[0].content.text, None, len(forms)]


async def main(url: str, key: str, mode: str, prompt: str, answers: str) -> None:
    print(json.dumps([await get(url, key, mode, prompt, given) for given in json.loads(answers)]))


asyncio.run(main(*sys.argv[1:]))
