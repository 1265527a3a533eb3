// Drives a server with the @langchain/openai package of npm.
import assert from "node:assert/strict";
import { HumanMessage, SystemMessage } from "@langchain/core/messages";
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { ChatOpenAI, OpenAI } from "@langchain/openai";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const shared = { model, apiKey: key, configuration: { baseURL: `${url}/v1` }, maxRetries: 0, temperature: 0 };
const messages = [new SystemMessage("Be brief."), new HumanMessage("Hello!")];
const chatOf = (more) => new ChatOpenAI({ ...shared, maxTokens: 30, ...more });

await check("chat", async () => {
  const { content, usage_metadata: usage, response_metadata: meta } = await chatOf().invoke(messages);
  assert.ok(content.length > 0 && ["length", "stop"].includes(meta.finish_reason), meta.finish_reason);
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
});

await check("chat, streamed, equals the whole", async () => {
  const whole = await chatOf().invoke(messages);
  let all = null, n = 0;
  for await (const chunk of await chatOf().stream(messages)) {
    all = all ? all.concat(chunk) : chunk;
    n++;
  }
  assert.ok(n > 1);
  assert.equal(all.content, whole.content);
  assert.deepEqual(all.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
});

await check("completions, whole and streamed", async () => {
  const llm = new OpenAI({ ...shared, maxTokens: 20 });
  const whole = await llm.invoke("Once upon a time");
  let text = "";
  for await (const piece of await llm.stream("Once upon a time")) text += piece;
  assert.ok(whole.length > 0);
  assert.equal(text, whole);
});

await check("log-probabilities", async () => {
  const reply = await chatOf({ logprobs: true, topLogprobs: 2 }).invoke(messages);
  const { content } = reply.response_metadata.logprobs;
  assert.equal(content.length, reply.usage_metadata.output_tokens);
  assert.ok(content.every((entry) => entry.top_logprobs.length === 2 && entry.logprob <= 0));
});

await check("a chain, and a batch", async () => {
  const chain = ChatPromptTemplate.fromTemplate("Tell me about {what}.").pipe(chatOf());
  const one = await chain.invoke({ what: "the sea" });
  const both = await chain.batch([{ what: "the sea" }, { what: "a hill" }]);
  assert.equal(both[0].content, one.content);
  assert.equal(both.length, 2);
});

const Person = z.object({
  name: z.string().min(2).max(12), age: z.number().int().min(0).max(120), kin: z.array(z.enum(["aunt", "uncle"])).max(2),
});
const structured = { name: "person", method: "jsonSchema", strict: true };

await check("structured output", async () => {
  for (const temperature of [0, 1, 2]) {
    const llm = chatOf({ maxTokens: 400, temperature, modelKwargs: { seed: 6 } });
    const person = await llm.withStructuredOutput(Person, structured).invoke("Who was it?");
    assert.deepEqual(Person.parse(person), person);
    const both = await llm.withStructuredOutput(Person, { ...structured, includeRaw: true }).invoke("Who was it?");
    assert.deepEqual(both.parsed, person);
    assert.deepEqual(JSON.parse(both.raw.content), person);
  }
});

await check("structured output of a JSON schema, in a chain, and in JSON mode", async () => {
  const schema = {
    title: "thing", type: "object", properties: { n: { type: "integer", minimum: 3, maximum: 40 } }, required: ["n"],
    additionalProperties: false,
  };
  const llm = chatOf({ maxTokens: 60, temperature: 1 });
  const chain = ChatPromptTemplate.fromTemplate("How many {what}?").pipe(llm.withStructuredOutput(schema, structured));
  for (const { n } of await chain.batch([{ what: "ships" }, { what: "hills" }])) {
    assert.ok(Number.isInteger(n) && n >= 3 && n <= 40, String(n));
  }
  const any = chatOf({ maxTokens: 8, modelKwargs: { response_format: { type: "json_object" } } });
  assert.equal((await any.invoke("How many?")).content[0], "{");
});

await check("stop", async () => {
  const { content } = await chatOf().invoke(messages);
  const stop = content.slice(5, 8);
  const cut = await chatOf({ stop: [stop] }).invoke(messages);
  assert.equal(cut.content, content.slice(0, content.indexOf(stop)));
  assert.equal(cut.response_metadata.finish_reason, "stop");
});

await check("abort", async () => {
  const abort = new AbortController();
  const endless = chatOf({ maxTokens: 900, modelKwargs: { ignore_eos: true } });
  let n = 0;
  await assert.rejects(async () => {
    for await (const _ of await endless.stream(messages, { signal: abort.signal })) {
      if (++n === 3) abort.abort();
    }
  });
  assert.ok(n >= 3 && n < 900, String(n));
});

await check("errors", async () => {
  const refused = (status, says) => (e) => e.status === status && e.message.includes(says);
  await assert.rejects(chatOf({ model: "x" }).invoke(messages), refused(404, `this server has '${model}'`));
  await assert.rejects(chatOf({ temperature: -1 }).invoke(messages), refused(400, "'temperature'"));
  const unique = { title: "set", type: "object", properties: { a: { type: "array", uniqueItems: true } } };
  await assert.rejects(chatOf().withStructuredOutput(unique, { method: "jsonSchema" }).invoke("Which?"),
    refused(400, "uniqueItems"));
  await assert.rejects(chatOf({ apiKey: "wrong" }).invoke(messages), refused(401, "API key"));
});
