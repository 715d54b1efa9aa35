/** Publishes what an agent has at a Waggle gateway: resources, resource templates, prompts, manifests. */

export { Agent, Definitions, Resources, type Options, type Revised, type Written } from './agent.js';
export { WaggleError } from './http.js';

import type { components } from './schema.js';

type Schemas = components['schemas'];
export type Applied = Schemas['Applied'];
export type Manifest = Schemas['Manifest'];
export type NewManifest = Schemas['NewManifest'];
export type NewPrompt = Schemas['NewPrompt'];
export type NewResource = Schemas['NewResource'];
export type NewTemplate = Schemas['NewTemplate'];
export type Prompt = Schemas['Prompt'];
export type Resource = Schemas['Resource'];
export type Template = Schemas['Template'];
