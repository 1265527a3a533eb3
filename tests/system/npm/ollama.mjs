// Drives a server with the ollama package of npm.
import assert from "node:assert/strict";
import { Ollama } from "ollama";
import { check, key, model, url } from "./check.mjs";

const clientOf = (apiKey) => new Ollama({ host: url, headers: { Authorization: `Bearer ${apiKey}` } });
const client = clientOf(key);
const options = { temperature: 0, num_predict: 20 };
const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello!" }];

await check("models", async () => {
  assert.equal((await client.list()).models[0].name, model);
  assert.equal((await client.ps()).models[0].model, model);
  assert.ok((await client.version()).version);
  const shown = await client.show({ model: `${model}:latest` });
  assert.deepEqual(shown.capabilities, ["completion"]);
  assert.ok(shown.template.length > 0);
});

await check("generate", async () => {
  const reply = await client.generate({ model, prompt: "Once upon a time", raw: true, options });
  assert.ok(reply.done && reply.response.length > 0 && ["length", "stop"].includes(reply.done_reason));
  assert.ok(reply.eval_count > 0 && reply.eval_count <= 20 && reply.total_duration > 0);
  assert.ok(Math.abs(Date.now() - new Date(reply.created_at)) < 600e3);
  const loaded = await client.generate({ model, prompt: "" });
  assert.ok(loaded.done && loaded.done_reason === "load");
});

await check("generate, streamed, equals the whole", async () => {
  const ask = { model: `${model}:latest`, prompt: "Hello!", system: "Be brief.", options };
  const whole = await client.generate(ask);
  let text = "", last = null;
  for await (const part of await client.generate({ ...ask, stream: true })) {
    text += part.response;
    last = part;
  }
  assert.equal(text, whole.response);
  assert.equal(last.eval_count, whole.eval_count);
  assert.equal(last.done_reason, whole.done_reason);
});

await check("chat, whole and streamed", async () => {
  const whole = await client.chat({ model, messages, options });
  assert.equal(whole.message.role, "assistant");
  let text = "", n = 0;
  for await (const part of await client.chat({ model, messages, options, stream: true })) {
    assert.equal(part.message.role, "assistant");
    text += part.message.content;
    n++;
  }
  assert.ok(n > 1);
  assert.equal(text, whole.message.content);
});

await check("log-probabilities", async () => {
  const reply = await client.chat({ model, messages, options, logprobs: true, top_logprobs: 2 });
  assert.equal(reply.logprobs.length, reply.eval_count);
  assert.ok(reply.logprobs.every((entry) => entry.top_logprobs.length === 2 && entry.logprob <= 0));
});

await check("stop, and a seed", async () => {
  const { message: { content } } = await client.chat({ model, messages, options });
  const stop = content.slice(5, 8);
  const cut = await client.chat({ model, messages, options: { ...options, stop: [stop] } });
  assert.equal(cut.message.content, content.slice(0, content.indexOf(stop)));
  assert.equal(cut.done_reason, "stop");
  const seeded = { seed: 7, temperature: 1, top_k: 50, top_p: 0.9, min_p: 0.01, repeat_penalty: 1.1, num_predict: 20 };
  const twice = [1, 2].map(() => client.chat({ model, messages, options: seeded, keep_alive: "5m" }));
  const [first, second] = await Promise.all(twice);
  assert.equal(first.message.content, second.message.content);
});

await check("abort", async () => {
  const stream = await client.generate({ model, prompt: "For ever and", raw: true, stream: true,
    options: { num_predict: 900, ignore_eos: true } });
  let n = 0;
  await assert.rejects(async () => {
    for await (const _ of stream) {
      if (++n === 3) stream.abort();
    }
  }, (e) => e.name === "AbortError");
  assert.ok(n >= 3 && n < 900, String(n));
});

await check("errors", async () => {
  const refused = (status, says) => (e) => e.status_code === status && e.error.includes(says);
  await assert.rejects(client.chat({ model: "x", messages }), refused(404, `this server has '${model}'`));
  await assert.rejects(client.chat({ model, messages, stream: true, options: { temperature: -1 } }),
    refused(400, "'temperature'"));
  const format = {
    type: "object",
    properties: { n: { type: "integer", minimum: 0, maximum: 99 } },
    required: ["n"],
    additionalProperties: false,
  };
  const formed = await client.chat({ model, messages, format });
  assert.ok(JSON.parse(formed.message.content).n <= 99);
  await assert.rejects(client.embed({ model, input: "x" }), refused(400, "embeddings"));
  await assert.rejects(client.pull({ model }), refused(404, "/api/pull"));
  await assert.rejects(clientOf("wrong").list(), refused(401, "API key"));
});
