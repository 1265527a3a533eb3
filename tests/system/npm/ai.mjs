// Drives a server with the ai package of npm and its provider for servers like OpenAI's.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, NoObjectGeneratedError, Output, streamObject, streamText } from "ai";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const settings = { name: "weft", baseURL: `${url}/v1`, apiKey: key, includeUsage: true };
const provider = createOpenAICompatible(settings);
const structured = createOpenAICompatible({ ...settings, supportsStructuredOutputs: true });
const greedy = { temperature: 0, maxRetries: 0 };
const chat = { ...greedy, model: provider(model), system: "Be brief.", prompt: "Hello!" };

await check("chat", async () => {
  const { text, usage, finishReason, response } = await generateText({ ...chat, maxOutputTokens: 12 });
  assert.ok(text.length > 0 && ["length", "stop"].includes(finishReason), finishReason);
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
  assert.equal(response.modelId, model);
});

await check("chat, streamed, equals the whole", async () => {
  const whole = await generateText({ ...chat, maxOutputTokens: 40 });
  const stream = streamText({ ...chat, maxOutputTokens: 40 });
  let text = "", n = 0;
  for await (const piece of stream.textStream) {
    text += piece;
    n++;
  }
  assert.ok(n > 1);
  assert.equal(text, whole.text);
  assert.equal(await stream.finishReason, whole.finishReason);
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
});

await check("completions", async () => {
  const ask = { ...greedy, model: provider.completionModel(model), prompt: "Once upon a time", maxOutputTokens: 20 };
  const whole = await generateText(ask);
  let text = "";
  for await (const piece of streamText(ask).textStream) text += piece;
  assert.ok(whole.text.length > 0);
  assert.equal(text, whole.text);
});

await check("a conversation, and a seed", async () => {
  const ask = {
    model: provider(model), maxOutputTokens: 20, seed: 7, topP: 0.9, presencePenalty: 0.5, frequencyPenalty: 0.5,
    messages: [{ role: "user", content: "Hi" }, { role: "assistant", content: "Hello." },
      { role: "user", content: [{ type: "text", text: "Tell me a story." }] }],
  };
  assert.equal((await generateText(ask)).text, (await generateText(ask)).text);
});

const schema = z.object({
  name: z.string().min(2).max(12).describe("the hero's name"), age: z.number().int().min(0).max(120),
  tags: z.array(z.enum(["brave", "small"])).max(2), home: z.object({ town: z.string().max(10) }).optional(),
});
const ask = { model: structured(model), prompt: "Who was it?", maxOutputTokens: 400, seed: 4, maxRetries: 0 };

await check("objects", async () => {
  for (const temperature of [0, 1, 2]) {
    const { object, finishReason, warnings } = await generateObject({ ...ask, temperature, schema });
    assert.equal(finishReason, "stop");
    assert.deepEqual(warnings ?? [], []);
    assert.deepEqual(schema.parse(object), object);
  }
});

await check("objects, streamed", async () => {
  const stream = streamObject({ ...ask, temperature: 1, schema });
  let n = 0;
  for await (const _ of stream.partialObjectStream) n++;
  const object = await stream.object;
  assert.ok(n > 1);
  assert.deepEqual(object, (await generateObject({ ...ask, temperature: 1, schema })).object);
});

await check("arrays, choices, and a text's output", async () => {
  const element = z.object({ n: z.number().int().min(1).max(99) });
  const listed = await generateObject({ ...ask, temperature: 1, output: "array", schema: element }).catch((e) => e);
  if (NoObjectGeneratedError.isInstance(listed)) assert.equal(listed.finishReason, "length");  // it may go on for ever
  else z.array(element).parse(listed.object);
  const { object: one } = await generateObject({ ...ask, temperature: 2, output: "enum", enum: ["sun", "rain", "snow"] });
  assert.ok(["sun", "rain", "snow"].includes(one), one);
  const { output } = await generateText({ ...ask, temperature: 1, output: Output.object({ schema }) });
  assert.deepEqual(schema.parse(output), output);
});

await check("an object without a schema", async () => {
  const { text } = await generateText({ ...ask, model: provider(model), maxOutputTokens: 8, temperature: 1,
    output: Output.json() }).catch((e) => e);
  assert.equal(text[0], "{");
});

await check("stop", async () => {
  const { text } = await generateText({ ...chat, maxOutputTokens: 40 });
  const stop = text.slice(5, 8);
  const cut = await generateText({ ...chat, maxOutputTokens: 40, stopSequences: [stop] });
  assert.equal(cut.text, text.slice(0, text.indexOf(stop)));
  assert.equal(cut.finishReason, "stop");
});

await check("abort", async () => {
  const abort = new AbortController();
  const stream = streamText({
    ...chat, maxOutputTokens: 900, abortSignal: abort.signal, providerOptions: { weft: { ignore_eos: true } } });
  let n = 0;
  for await (const part of stream.fullStream) {
    if (part.type === "text-delta" && ++n === 3) abort.abort();
  }
  assert.ok(n >= 3 && n < 900, String(n));
});

await check("errors", async () => {
  const refused = (status, says) => (e) =>
    APICallError.isInstance(e) && e.statusCode === status && !e.isRetryable && e.message.includes(says);
  await assert.rejects(generateText({ ...chat, model: provider("x") }), refused(404, `this server has '${model}'`));
  await assert.rejects(generateText({ ...chat, temperature: -1 }), refused(400, "'temperature'"));
  const unique = z.array(z.number()).min(2).meta({ uniqueItems: true });
  await assert.rejects(generateObject({ ...ask, schema: z.object({ unique }) }), refused(400, "uniqueItems"));
  const stranger = createOpenAICompatible({ name: "weft", baseURL: `${url}/v1`, apiKey: "wrong" });
  await assert.rejects(generateText({ ...chat, model: stranger(model) }), refused(401, "API key"));
});
