"""Publishes what an agent has at a Waggle gateway: resources, resource templates, prompts, manifests."""

from .agent import Agent, Revised, Written
from .http import WaggleError
from .types import Applied, Manifest, NewManifest, NewPrompt, NewResource, NewTemplate, Prompt, Resource, Template

__all__ = [
    "Agent",
    "Applied",
    "Manifest",
    "NewManifest",
    "NewPrompt",
    "NewResource",
    "NewTemplate",
    "Prompt",
    "Resource",
    "Revised",
    "Template",
    "WaggleError",
    "Written",
]
