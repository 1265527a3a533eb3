// Drives a server with the openai package of npm: responses, whole and in events, with tools, forms, and a past.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const responses = client.responses;

const ask = { model, instructions: "Be brief.", input: "Will it be warm?", temperature: 1, seed: 3, max_output_tokens: 400 };
const Forecast = z.object({ city: z.string().min(1).max(8), days: z.number().int().min(1).max(9),
  unit: z.enum(["C", "F"]).nullable() });
const forecast = zodResponsesFunction({ name: "forecast", description: "The weather to come", parameters: Forecast });
const ping = { type: "function", name: "ping", parameters: { type: "object", properties: {} }, strict: true };
const called = { ...ask, tools: [forecast, ping, { type: "web_search" }], tool_choice: "required" };
const several = { ...called, min_tokens: 100 };  // one call takes fewer

// Every item is a call of a tool that was given, and fits it.
function judge({ status, output }) {
  assert.equal(status, "completed");
  assert.ok(output.length > 0);
  for (const { type, name, arguments: text, call_id: id } of output) {
    assert.ok(type === "function_call" && id && ["forecast", "ping"].includes(name), `${type} ${name}`);
    if (name === "forecast") Forecast.parse(JSON.parse(text));
    else assert.deepEqual(JSON.parse(text), {});
  }
  return output.map(({ name, arguments: text, call_id: id }) => ({ name, text, id }));
}

await check("a text", async () => {
  const reply = await responses.create({ ...ask, max_output_tokens: 12 });
  assert.ok(reply.object === "response" && reply.output_text.length > 0);
  assert.ok(["completed", "incomplete"].includes(reply.status));
  if (reply.status === "incomplete") assert.equal(reply.incomplete_details.reason, "max_output_tokens");
  assert.equal(reply.usage.total_tokens, reply.usage.input_tokens + reply.usage.output_tokens);
});

await check("events of a text", async () => {
  const body = { ...ask, max_output_tokens: 30 };
  const whole = await responses.create(body);
  const seen = [];
  let text = "";
  for await (const event of await responses.create({ ...body, stream: true })) {
    assert.equal(event.sequence_number, seen.length);
    if (event.type === "response.output_text.delta") text += event.delta;
    seen.push(event.type);
  }
  assert.equal(text, whole.output_text);
  const kinds = seen.filter((type, i) => type !== seen[i - 1]).map((type) => type.slice("response.".length));
  assert.deepEqual(kinds, ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
    "output_text.done", "content_part.done", "output_item.done", whole.status]);
});

await check("tools, as a stream and whole", async () => {
  const whole = await responses.parse(several);
  assert.ok(judge(whole).length > 1);
  let n = 0;
  const runner = responses.stream(several).on("response.function_call_arguments.delta", () => n++);
  const final = await runner.finalResponse();
  assert.deepEqual(judge(final), judge(whole));
  assert.ok(n > 3 * whole.output.length, String(n));
  for (const [i, item] of final.output.entries()) {
    assert.deepEqual(item.parsed_arguments, whole.output[i].parsed_arguments);
    if (item.name === "forecast") Forecast.parse(item.parsed_arguments);
  }
  assert.equal(judge(await responses.create({ ...several, parallel_tool_calls: false })).length, 1);
  const one = { type: "function", name: "ping" };
  assert.ok(judge(await responses.create({ ...called, tool_choice: one })).every(({ name }) => name === "ping"));
});

await check("results go back", async () => {
  let input = [{ role: "user", content: ask.input }];
  let tokens = 0;
  for (const seed of [1, 2, 3]) {
    const reply = await responses.create({ ...called, input, seed });
    assert.ok(reply.usage.input_tokens > tokens);  // the conversation so far is a part of the prompt
    tokens = reply.usage.input_tokens;
    const results = judge(reply).map(({ id }, i) => ({ type: "function_call_output", call_id: id,
      output: i % 2 ? "warm" : [{ type: "input_text", text: "21 degrees" }] }));
    input = [...input, ...reply.output, ...results];
  }
  const last = await responses.create({ ...called, input, max_output_tokens: 20, tool_choice: "none" });
  assert.ok(last.output_text.length > 0);
});

await check("text.format: parse and stream", async () => {
  const body = { ...ask, text: { format: zodTextFormat(Forecast, "forecast") } };
  const { output_parsed: parsed } = await responses.parse(body);
  assert.deepEqual(Forecast.parse(parsed), parsed);
  const final = await responses.stream(body).finalResponse();
  assert.deepEqual(final.output_parsed, parsed);
  const any = await responses.create({ ...ask, max_output_tokens: 8, text: { format: { type: "json_object" } } });
  assert.equal(any.output_text[0], "{");
});

await check("thoughts", async () => {
  const body = { ...ask, max_output_tokens: 40, chat_template_kwargs: { enable_thinking: true } };
  const whole = await responses.create(body);
  const [item] = whole.output;
  assert.equal(item.type, "reasoning");
  assert.equal(whole.usage.output_tokens_details.reasoning_tokens, whole.usage.output_tokens);
  let text = "";
  for await (const event of await responses.create({ ...body, stream: true })) {
    if (event.type === "response.reasoning_text.delta") text += event.delta;
  }
  assert.equal(text, item.content[0].text);
});

await check("a response that goes on", async () => {
  const first = await responses.create({ ...ask, max_output_tokens: 20 });
  const again = await responses.retrieve(first.id);
  assert.deepEqual(again.output, first.output);
  const next = await responses.create({ ...ask, input: "And then?", max_output_tokens: 20, previous_response_id: first.id });
  assert.ok(next.usage.input_tokens > first.usage.input_tokens && next.previous_response_id === first.id);
  await responses.delete(first.id);
  await assert.rejects(responses.retrieve(first.id), (e) => e instanceof OpenAI.NotFoundError);
  const unkept = await responses.create({ ...ask, max_output_tokens: 4, store: false });
  await assert.rejects(responses.retrieve(unkept.id), (e) => e instanceof OpenAI.NotFoundError);
});

await check("abort", async () => {
  const stream = await responses.create({ ...ask, max_output_tokens: 900, ignore_eos: true, stream: true });
  let n = 0;
  for await (const { type } of stream) {
    if (type === "response.output_text.delta" && ++n === 3) stream.controller.abort();
  }
  assert.ok(n >= 3 && n < 900, String(n));
});

await check("errors", async () => {
  const refused = (param) => (e) => e instanceof OpenAI.BadRequestError && e.param === param;
  await assert.rejects(responses.create({ ...ask, temperature: -1 }), refused("temperature"));
  await assert.rejects(responses.create({ ...ask, background: true }), refused("background"));
  await assert.rejects(responses.create({ ...ask, model: "x" }), (e) => e instanceof OpenAI.NotFoundError);
});
