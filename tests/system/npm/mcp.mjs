// Drives a server with what @modelcontextprotocol/sdk of npm lists: a server's tools, called through its client.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import Ajv from "ajv";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const word = z.string().max(8);
const size = z.number().int().min(0).max(99);
// zod's own patterns, some with look-ahead, a tree of itself, unions, defaults, and nothing at all.
const shapes = {
  nothing: {},
  plain: { word, size, is_big: z.boolean(), exact: z.number().min(-1).max(1).multipleOf(0.5) },
  patterns: { mail: z.email().max(20), at: z.iso.date(), when: z.iso.time({ precision: 0 }), id: z.uuid(),
    ip: z.ipv4() },
  ahead: { key: z.string().max(8).regex(/^(?=[a-z])[a-z0-9]{1,4}$/), not: z.string().max(4).regex(/^(?!0)[0-9]+$/) },
  unions: { what: z.union([z.null(), word, z.strictObject({ a: size })]), nullable: word.nullable(),
    either: z.discriminatedUnion("kind", [z.strictObject({ kind: z.literal("a"), a: size }),
      z.strictObject({ kind: z.literal("b") })]) },
  lists: { some: z.array(z.enum(["x", "y"])).min(1).max(3), pair: z.tuple([size, word]), may: word.optional(),
    usual: size.default(7) },
  tree: { node: z.strictObject({ n: size, get next() { return node.nullable(); } }) },
};
const node = shapes.tree.node;

const server = new McpServer({ name: "shapes", version: "1.0.0" });
const results = [];
for (const [name, shape] of Object.entries(shapes)) {
  // Strict: what else an open object may hold, the toy goes on about.
  const inputSchema = z.strictObject(shape);
  server.registerTool(name, { title: name, description: `Takes ${name}.`, inputSchema }, (args) => {
    results.push([name, args]);
    return { content: [{ type: "text", text: `${name}: ${JSON.stringify(args)}` }] };
  });
}
server.registerTool("bare", { annotations: { readOnlyHint: true } }, () => ({ content: [{ type: "text", text: "bare" }] }));

// Schemas as servers in other languages list them: what is unset is null, types are missing, words nobody knows.
const inherited = [
  { name: "no_properties", inputSchema: { type: "object" } },
  { name: "nulls", description: "Nulls.", inputSchema: { type: "object", title: null, required: ["a"], properties: {
    a: { type: "integer", minimum: 0, maximum: 9, default: null, description: null, enum: null } },
  additionalProperties: false } },
  { name: "untyped", inputSchema: { type: "object", properties: { a: { description: "anything short", maxLength: 4,
    enum: ["one", 2, null] } }, required: ["a"], additionalProperties: false } },
  { name: "defs", inputSchema: { $schema: "http://json-schema.org/draft-07/schema#", type: "object", required: ["p"],
    properties: { p: { $ref: "#/$defs/Point" } }, additionalProperties: false, $defs: {
      Point: { type: "object", properties: { at: { $ref: "#/$defs/Deep/$defs/At" } }, required: ["at"],
        additionalProperties: false },
      Deep: { $defs: { At: { anyOf: [{ type: "integer", minimum: 1, maximum: 9 }, { type: "null" }] } } } } } },
  { name: "unknown.words-1", inputSchema: { type: "object", "x-order": ["a"], properties: {
    a: { type: "string", maxLength: 5, format: "a-format", "x-hint": { is: true }, examples: ["b"] } },
  required: ["a"], additionalProperties: false } },
];
const others = new Server({ name: "others", version: "1.0.0" }, { capabilities: { tools: {} } });
others.setRequestHandler(ListToolsRequestSchema, () => ({ tools: inherited }));
others.setRequestHandler(CallToolRequestSchema, ({ params: { name, arguments: args } }) => {
  results.push([name, args]);
  return { content: [{ type: "text", text: JSON.stringify(args) }] };
});

const ajv = new Ajv({ strict: false, validateFormats: false });
// A schema as its server means it: what is null is unset.
const withoutNulls = (schema) =>
  JSON.parse(JSON.stringify(schema), (name, value) => (value === null && isNaN(name) ? undefined : value));

async function clientOf(of) {
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "agent", version: "1.0.0" });
  await Promise.all([of.connect(theirs), client.connect(ours)]);
  return client;
}

// OpenAI's form of a list, as agents make it.
const functions = (tools) => tools.map(({ name, description, inputSchema }) =>
  ({ type: "function", function: { name, description, parameters: inputSchema } }));

async function post(body) {
  const reply = await fetch(`${url}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ model, ...body }),
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" } });
  const answer = await reply.json();
  assert.equal(reply.status, 200, JSON.stringify(answer));
  return answer.choices[0];
}

const user = [{ role: "user", content: "Do something." }];
const ask = { messages: user, max_tokens: 900, temperature: 1, tool_choice: "required", parallel_tool_calls: false };

// Has one called, runs it, and sends back what came of it.
async function turn(client, messages, body) {
  const { message, finish_reason: reason } = await post({ ...ask, ...body, messages });
  assert.equal(reason, "tool_calls", JSON.stringify(message));
  const [{ id, function: { name, arguments: args } }] = message.tool_calls;
  const { content, isError } = await client.callTool({ name, arguments: JSON.parse(args) });
  assert.ok(!isError, `${name} of ${args}: ${JSON.stringify(content)}`);
  return [...messages, message, { role: "tool", tool_call_id: id, content }];
}

const client = await clientOf(server), stranger = await clientOf(others);

await check("each tool that a server lists, by its name", async () => {
  const { tools } = await client.listTools();
  assert.equal(tools.length, Object.keys(shapes).length + 1);
  for (const { name } of tools) {
    const body = { tools: functions(tools), tool_choice: { type: "function", function: { name } } };
    await turn(client, user, { ...body, seed: 1 });
  }
  assert.ok(Object.keys(shapes).every((name) => results.some((r) => r[0] === name)), JSON.stringify(results));
});

await check("tools of servers in other languages", async () => {
  const { tools } = await stranger.listTools();
  for (const { name, inputSchema } of tools.filter((tool) => tool.name !== "no_properties")) {
    await turn(stranger, user, { tools: functions(tools), tool_choice: { type: "function", function: { name } }, seed: 3 });
    const [called, args] = results.pop();
    assert.equal(called, name);
    assert.ok(ajv.validate(withoutNulls(inputSchema), args), ajv.errorsText());
  }
});

await check("an agent of three turns with all of them", async () => {
  const { tools } = await client.listTools();
  let messages = user;
  for (const seed of [1, 2, 3]) messages = await turn(client, messages, { tools: functions(tools), seed });
  const { message } = await post({ ...ask, messages, tools: functions(tools), max_tokens: 20, tool_choice: "none" });
  assert.ok(message.content.length > 0);
});

await Promise.all([client.close(), stranger.close()]);
