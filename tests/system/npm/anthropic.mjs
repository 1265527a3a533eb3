// Drives a server with the @anthropic-ai/sdk package of npm: messages, tools, streaming, count_tokens, errors.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { check, key, model, url } from "./check.mjs";

const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me a story." }];
const sides = { type: "integer", minimum: 1, maximum: 20 };
const tools = [
  { name: "roll", description: "Rolls a die.", cache_control: { type: "ephemeral" },
    input_schema: { type: "object", properties: { sides }, required: ["sides"], additionalProperties: false } },
  { name: "shout", description: "Says it aloud.", input_schema: {
    type: "object", properties: { what: { type: "string", minLength: 1, maxLength: 8 }, loud: { type: "boolean" } },
    required: ["what", "loud"], additionalProperties: false } },
  { type: "web_search_20250305", name: "web_search", max_uses: 2 },
];

function plain(message) {
  return { content: message.content, stop_reason: message.stop_reason, stop_sequence: message.stop_sequence };
}


await check("messages", async () => {
  const { data, request_id } = await client.messages.create({ model, max_tokens: 12, messages, temperature: 0,
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }] }).withResponse();
  assert.ok(request_id);
  assert.equal(data.type, "message");
  assert.equal(data.role, "assistant");
  assert.ok(data.id.startsWith("msg_") && data.id.endsWith(request_id), data.id);
  assert.equal(data.content.length, 1);
  assert.ok(data.content[0].text.length > 0);
  assert.equal(data.stop_reason, "max_tokens");
  assert.equal(data.usage.output_tokens, 12);
});

await check("models", async () => {
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert.equal(ids[0], model);
});

await check("count_tokens", async () => {
  const { input_tokens: n } = await client.messages.countTokens({ model, messages, tools });
  const reply = await client.messages.create({ model, max_tokens: 1, messages });
  const { input_tokens, cache_read_input_tokens, cache_creation_input_tokens } = reply.usage;
  assert.equal(input_tokens + cache_read_input_tokens + cache_creation_input_tokens, n);
});

await check("the stream helper equals the whole", async () => {
  const ask = { model, max_tokens: 60, messages, temperature: 0 };
  const whole = await client.messages.create(ask);
  let text = "";
  const stream = client.messages.stream(ask).on("text", (delta) => { text += delta; });
  const final = await stream.finalMessage();
  assert.deepEqual(plain(final), plain(whole));
  assert.equal(text, whole.content[0].text);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

await check("raw events come in their order", async () => {
  const seen = [];
  for await (const event of await client.messages.create({ model, max_tokens: 8, messages, temperature: 0, stream: true }))
    if (event.type !== "content_block_delta") seen.push(event.type);
  assert.deepEqual(seen, ["message_start", "content_block_start", "content_block_stop", "message_delta",
    "message_stop"]);
});

await check("stop sequences, and the answer goes on with its beginning", async () => {
  const whole = (await client.messages.create({ model, max_tokens: 40, messages, temperature: 0 })).content[0].text;
  const stop = whole.slice(10, 14);
  const cut = await client.messages.create({ model, max_tokens: 40, messages, temperature: 0, stop_sequences: [stop] });
  assert.equal(cut.stop_reason, "stop_sequence");
  assert.equal(cut.stop_sequence, stop);
  assert.equal(cut.content[0]?.text ?? "", whole.slice(0, whole.indexOf(stop)));
  const more = await client.messages.create({ model, max_tokens: 10, temperature: 0,
    messages: [...messages, { role: "assistant", content: whole.slice(0, 20) }] });
  assert.ok(more.content[0].text.length > 0);
});

await check("tools: whole and streamed", async () => {
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "shout", disable_parallel_tool_use: true }]) {
    for (const seed of [1, 2, 3]) {
      const ask = { model, max_tokens: 400, messages, tools, tool_choice, temperature: 1, seed };
      const whole = await client.messages.create(ask);
      const calls = whole.content.filter((block) => block.type === "tool_use");
      assert.ok(calls.length > 0);
      for (const call of calls) {
        assert.ok(call.id.startsWith("toolu_"));
        if (whole.stop_reason === "max_tokens") continue;
        if (call.name === "roll") assert.ok(call.input.sides >= 1 && call.input.sides <= 20);
        else assert.deepEqual([call.name, Object.keys(call.input)], ["shout", ["what", "loud"]]);
      }
      if (tool_choice.type === "tool") assert.equal(whole.stop_reason, "tool_use");
      const stream = client.messages.stream(ask);
      const final = await stream.finalMessage();
      if (whole.stop_reason === "tool_use") assert.deepEqual(plain(final), plain(whole));
    }
  }
});

await check("results of tools", async () => {
  const turns = [...messages];
  for (let turn = 0; turn < 3; turn++) {
    const reply = await client.messages.create({ model, max_tokens: 200, messages: turns, tools, temperature: 1,
      seed: turn, tool_choice: { type: "tool", name: "roll", disable_parallel_tool_use: true } });
    assert.equal(reply.stop_reason, "tool_use");
    const calls = reply.content.filter((block) => block.type === "tool_use");
    assert.equal(calls.length, 1);
    turns.push({ role: "assistant", content: reply.content }, { role: "user", content: [
      { type: "tool_result", tool_use_id: calls[0].id, content: [{ type: "text", text: String(calls[0].input.sides) }] },
      { type: "text", text: "Again." }] });
  }
  const last = await client.messages.create({ model, max_tokens: 8, messages: turns, tools,
    tool_choice: { type: "none" } });
  assert.equal(last.content[0].type, "text");
});

await check("the tool runner", async () => {
  const given = [];
  const roll = { ...tools[0], run: async (input) => { given.push(input.sides); return `It fell on ${input.sides}.`; } };
  const runner = client.beta.messages.toolRunner({ model, max_tokens: 200, messages, tools: [roll], max_iterations: 3,
    tool_choice: { type: "any", disable_parallel_tool_use: true }, temperature: 1, seed: 4 });
  const replies = [];
  for await (const reply of runner) replies.push(reply);
  assert.equal(replies.length, 3);
  assert.ok(given.length >= 2 && given.every((n) => Number.isInteger(n)), String(given));
});

// A server that is asked to remember a conversation refuses, and the runner goes on without that.
await check("no threads", async () => {
  await assert.rejects(client.beta.messages.create({ model, max_tokens: 4, messages, thread: { type: "create" } }),
    (e) => e instanceof Anthropic.BadRequestError && e.message.includes("thread"));
});

await check("structured output", async () => {
  const schema = { type: "object", properties: { size: { enum: ["small", "large"] }, n: sides }, required: ["size", "n"],
    additionalProperties: false };
  const reply = await client.messages.create({ model, max_tokens: 60, messages, temperature: 1.5, seed: 1,
    output_config: { format: { type: "json_schema", schema } } });
  const thing = JSON.parse(reply.content[0].text);
  assert.ok(["small", "large"].includes(thing.size) && thing.n >= 1 && thing.n <= 20, reply.content[0].text);
});

await check("abort", async () => {
  const stream = client.messages.stream({ model, max_tokens: 900, messages, ignore_eos: true });
  let nSeen = 0;
  await assert.rejects(async () => {
    for await (const event of stream) if (event.type === "content_block_delta" && ++nSeen === 3) stream.abort();
  }, Anthropic.APIUserAbortError);
  assert.ok(nSeen >= 3 && nSeen < 900, String(nSeen));
});

await check("errors", async () => {
  const ask = { model, max_tokens: 4, messages };
  await assert.rejects(client.messages.create({ ...ask, model: "no-such-model" }),
    (e) => e instanceof Anthropic.NotFoundError && e.type === "not_found_error" && e.message.includes(`'${model}'`));
  await assert.rejects(client.messages.create({ ...ask, temperature: -1 }),
    (e) => e instanceof Anthropic.BadRequestError && e.type === "invalid_request_error" && e.requestID !== null);
  await assert.rejects(client.messages.create({ ...ask, messages: [{ role: "user", content: [
    { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }] }] }),
    (e) => e instanceof Anthropic.BadRequestError && e.message.includes("image"));
  const stranger = new Anthropic({ baseURL: url, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(stranger.messages.create(ask),
    (e) => e instanceof Anthropic.AuthenticationError && e.type === "authentication_error");
  const bearer = new Anthropic({ baseURL: url, apiKey: null, authToken: key, maxRetries: 0 });
  assert.equal((await bearer.messages.create(ask)).type, "message");
});
