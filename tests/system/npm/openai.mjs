// Drives a server with the openai package of npm: completions, chat, structured output, streaming, abort, errors.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });

await check("models", async () => {
  const ids = (await client.models.list()).data.map((m) => m.id);
  assert.equal(ids[0], model);
  assert.equal((await client.models.retrieve(ids[1])).id, ids[1]);
});

await check("completions", async () => {
  const reply = await client.completions.create({ model, prompt: "Once upon", max_tokens: 8, temperature: 0 });
  assert.equal(reply.object, "text_completion");
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
  assert.ok(reply.choices[0].text.length > 0);
});

await check("completions, streamed, equal the whole", async () => {
  const body = { model, prompt: "The sea was", max_tokens: 40, temperature: 0 };
  const whole = await client.completions.create(body);
  let text = "", usage = null;
  const stream = await client.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.text ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].text);
  assert.deepEqual(usage, whole.usage);
});

await check("chat", async () => {
  const reply = await client.chat.completions.create({
    model, messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello!" }],
    max_completion_tokens: 12, temperature: 0, logprobs: true, top_logprobs: 2,
  });
  const [choice] = reply.choices;
  assert.equal(choice.message.role, "assistant");
  assert.ok(["stop", "length"].includes(choice.finish_reason), choice.finish_reason);
  // Every token counts and has its entry; the end-of-sequence token alone is no part of the message.
  assert.equal(choice.logprobs.content.length, reply.usage.completion_tokens);
  const inMessage = choice.finish_reason === "stop" ? choice.logprobs.content.slice(0, -1) : choice.logprobs.content;
  assert.equal(Buffer.from(inMessage.flatMap((entry) => entry.bytes)).toString(), choice.message.content);
  for (const entry of choice.logprobs.content) {
    assert.equal(entry.top_logprobs.length, 2);
    assert.equal(entry.top_logprobs[0].logprob, entry.logprob);  // greedy
  }
});

await check("chat, streamed, two choices", async () => {
  const texts = ["", ""], ends = [null, null];
  const stream = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Tell me a story." }], n: 2, seed: 7, max_tokens: 20, stream: true });
  for await (const chunk of stream) {
    for (const choice of chunk.choices) {
      texts[choice.index] += choice.delta.content ?? "";
      ends[choice.index] = choice.finish_reason ?? ends[choice.index];
    }
  }
  assert.ok(ends.every((e) => e === "stop" || e === "length"), String(ends));
  const whole = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Tell me a story." }], n: 2, seed: 7, max_tokens: 20 });
  assert.deepEqual(texts, whole.choices.map((choice) => choice.message.content));
  assert.notEqual(texts[0], texts[1]);
});

await check("the stream helper", async () => {
  const runner = client.chat.completions.stream({
    model, messages: [{ role: "user", content: "Hi" }], max_tokens: 6, temperature: 0 });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.role, "assistant");
  const whole = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Hi" }], max_tokens: 6, temperature: 0 });
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

const whom = [{ role: "user", content: "Who was it?" }];
const Kin = z.object({ name: z.string().min(1).max(8), older: z.boolean() });
const Person = z.object({
  name: z.string().min(2).max(12), age: z.number().int().min(0).max(120), mood: z.enum(["glad", "sad"]).nullable(),
  kin: z.array(Kin).max(2), born: z.iso.date(),
});

await check("response_format: json_schema and json_object", async () => {
  const schema = {
    type: "object", properties: { size: { enum: ["small", "large"] }, n: { type: "integer", minimum: 3, maximum: 40 } },
    required: ["size", "n"], additionalProperties: false,
  };
  const reply = await client.chat.completions.create({ model, messages: whom, max_tokens: 60, temperature: 1.5, seed: 1,
    response_format: { type: "json_schema", json_schema: { name: "thing", strict: true, schema } } });
  assert.equal(reply.choices[0].finish_reason, "stop");
  const thing = JSON.parse(reply.choices[0].message.content);
  assert.deepEqual(Object.keys(thing), ["size", "n"]);
  assert.ok(["small", "large"].includes(thing.size) && thing.n >= 3 && thing.n <= 40, JSON.stringify(thing));
  const free = await client.chat.completions.create({ model, messages: whom, max_tokens: 8, temperature: 1.5,
    response_format: { type: "json_object" } });
  assert.equal(free.choices[0].message.content[0], "{");
});

await check("zod: parse", async () => {
  for (const temperature of [0, 1, 2]) {
    const reply = await client.chat.completions.parse({ model, messages: whom, max_tokens: 400, temperature, seed: 5,
      response_format: zodResponseFormat(Person, "person") });
    const { parsed, content, refusal } = reply.choices[0].message;
    assert.ok(parsed && !refusal, content);
    assert.deepEqual(Person.parse(JSON.parse(content)), parsed);
  }
});

await check("zod: a schema that contains itself, and a choice", async () => {
  const Tree = z.object({ leaf: z.union([z.literal("oak"), z.number().int().min(1).max(9)]),
    get kids() { return z.array(Tree).max(1); } });
  const reply = await client.chat.completions.parse({ model, messages: whom, max_tokens: 900, temperature: 1, seed: 2,
    response_format: zodResponseFormat(Tree, "tree") });
  Tree.parse(reply.choices[0].message.parsed);
});

await check("zod: the stream helper", async () => {
  const ask = { model, messages: whom, max_tokens: 400, temperature: 1, seed: 3,
    response_format: zodResponseFormat(Person, "person") };
  let n = 0;
  const runner = client.chat.completions.stream(ask).on("content.delta", () => n++);
  const { parsed, content } = (await runner.finalChatCompletion()).choices[0].message;
  assert.ok(n > 1);
  assert.deepEqual(Person.parse(JSON.parse(content)), parsed);
  assert.equal(content, (await client.chat.completions.parse(ask)).choices[0].message.content);
});

await check("abort", async () => {
  const stream = await client.completions.create(
    { model, prompt: "For ever and", max_tokens: 900, stream: true, ignore_eos: true });
  let nSeen = 0;
  for await (const _ of stream) {
    if (++nSeen === 3) stream.controller.abort();
  }
  assert.ok(nSeen >= 3 && nSeen < 900, String(nSeen));
});

await check("stop strings, up to 64", async () => {
  const body = { model, prompt: "Once upon a time", max_tokens: 40, temperature: 0 };
  const whole = (await client.completions.create(body)).choices[0].text;
  const stops = [...Array(63).keys()].map((i) => `<never ${i}>`);
  const cut = await client.completions.create({ ...body, stop: [...stops, whole.slice(10, 14)] });
  assert.equal(cut.choices[0].text, whole.slice(0, whole.indexOf(whole.slice(10, 14))));
  assert.equal(cut.choices[0].finish_reason, "stop");
});

await check("errors", async () => {
  await assert.rejects(client.completions.create({ model: "no-such-model", prompt: "x" }),
    (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found" && e.message.includes(`'${model}'`));
  await assert.rejects(client.completions.create({ model, prompt: "x", temperature: -1 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
  const unique = { type: "array", items: { type: "integer" }, uniqueItems: true };
  await assert.rejects(client.chat.completions.create({ model, messages: whom,
    response_format: { type: "json_schema", json_schema: { name: "set", strict: true, schema: unique } } }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === "response_format" && e.message.includes("uniqueItems"));
  const stranger = new OpenAI({ baseURL: client.baseURL, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), (e) => e instanceof OpenAI.AuthenticationError);
});
