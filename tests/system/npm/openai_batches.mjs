// Drives a server with the openai package of npm: files and batches.
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";
import { check, key, model, url } from "./check.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const endpoint = "/v1/chat/completions";
const body = (i) => ({ model, messages: [{ role: "user", content: `Tell me of ${i} looms.` }], max_tokens: 8, temperature: 0 });
const lines = [...Array(12).keys()].map((i) => ({ custom_id: `line ${i}`, method: "POST", url: endpoint, body: body(i) }));
const window = { endpoint, completion_window: "24h" };

async function upload(text) {
  return client.files.create({ purpose: "batch", file: await toFile(Buffer.from(text), "in.jsonl") });
}

async function ended(id) {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (["completed", "failed", "cancelled", "expired"].includes(batch.status)) return batch;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const read = async (id) => (await (await client.files.content(id)).text()).trim().split("\n").map((line) => JSON.parse(line));

await check("a batch from its file to its answers", async () => {
  const bad = { ...lines[0], custom_id: "bad", body: { ...body(0), temperature: -1 } };
  const text = [...lines, bad].map((line) => JSON.stringify(line)).join("\n");
  const file = await upload(text);
  assert.ok(file.purpose === "batch" && file.bytes === Buffer.byteLength(text) && file.filename === "in.jsonl");
  const made = await client.batches.create({ input_file_id: file.id, ...window, metadata: { who: "a test" } });
  assert.deepEqual(made.metadata, { who: "a test" });
  const batch = await ended(made.id);
  assert.equal(batch.status, "completed");
  assert.deepEqual(batch.request_counts, { total: 13, completed: 12, failed: 1 });
  const answers = new Map((await read(batch.output_file_id)).map((one) => [one.custom_id, one.response]));
  assert.deepEqual([...answers.keys()].sort(), lines.map((line) => line.custom_id).sort());
  const alone = await client.chat.completions.create(body(3));
  assert.deepEqual(answers.get("line 3").body.choices, alone.choices);
  const [error] = await read(batch.error_file_id);
  assert.ok(error.custom_id === "bad" && error.response.status_code === 400);
  assert.equal((await client.files.delete(file.id)).deleted, true);
  await assert.rejects(client.files.retrieve(file.id), (e) => e instanceof OpenAI.NotFoundError);
});

await check("lists, page by page", async () => {
  for (let i = 0; i < 3; i++) {
    const file = await upload(JSON.stringify(lines[i]));
    await ended((await client.batches.create({ input_file_id: file.id, ...window })).id);
  }
  const batches = [], files = new Set();
  for await (const batch of client.batches.list({ limit: 2 })) batches.push(batch.status);
  for await (const file of client.files.list({ limit: 3 })) files.add(file.id);
  assert.deepEqual(batches, Array(4).fill("completed"));
  assert.equal(files.size, 8);  // inputs but for one, outputs, an error file
});

await check("one that is at fault, and one that is cancelled", async () => {
  const wrong = await upload(JSON.stringify({ ...lines[0], url: "/v1/completions" }));
  const failed = await ended((await client.batches.create({ input_file_id: wrong.id, ...window })).id);
  assert.ok(failed.status === "failed" && failed.errors.data[0].code === "mismatched_endpoint");
  const long = lines.map((line) => JSON.stringify({ ...line, body: { ...line.body, max_tokens: 900, ignore_eos: true } }));
  const file = await upload(long.join("\n"));
  const { id } = await client.batches.create({ input_file_id: file.id, ...window });
  assert.ok(["cancelling", "cancelled"].includes((await client.batches.cancel(id)).status));
  assert.equal((await ended(id)).status, "cancelled");
});

await check("errors", async () => {
  const refused = (param) => (e) => e instanceof OpenAI.BadRequestError && e.param === param;
  await assert.rejects(client.batches.create({ input_file_id: "file-0", ...window }), OpenAI.APIError);
  const file = await upload(JSON.stringify(lines[0]));
  await assert.rejects(client.batches.create({ input_file_id: file.id, ...window, completion_window: "soon" }),
    refused("completion_window"));
});
