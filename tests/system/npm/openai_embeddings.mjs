// Drives a server with the openai package of npm: embeddings, in both encodings.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { check, key, model, url } from "./check.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const input = ["A loom keeps the threads in tension.", "東京", ""];

await check("embeddings, which the package asks for in base64", async () => {
  const reply = await client.embeddings.create({ model, input });
  assert.equal(reply.object, "list");
  assert.deepEqual(reply.data.map((d) => d.index), [0, 1, 2]);
  for (const { embedding } of reply.data) {
    assert.equal(embedding.length, 64);
    assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-5);
  }
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens);
});

await check("embeddings as numbers, which are the same", async () => {
  const decoded = await client.embeddings.create({ model, input });
  const numbers = await client.embeddings.create({ model, input, encoding_format: "float" });
  for (const [i, { embedding }] of numbers.data.entries())
    assert.deepEqual(Array.from(Float32Array.from(embedding)), Array.from(decoded.data[i].embedding));
});

await check("embeddings as text, for who decodes it", async () => {
  const reply = await client.embeddings.create({ model, input, encoding_format: "base64", dimensions: 16 });
  assert.equal(Buffer.from(reply.data[0].embedding, "base64").length, 64);
});

await check("embeddings of ids, cut", async () => {
  const reply = await client.embeddings.create({ model, input: [[5, 6], [7]], dimensions: 8 });
  assert.deepEqual(reply.data.map((d) => d.embedding.length), [8, 8]);
});

await check("an error", async () => {
  await assert.rejects(client.embeddings.create({ model, input: [] }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.match(error.message, /'input' must not be empty/);
    return true;
  });
});
