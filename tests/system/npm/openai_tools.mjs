// Drives a server with the openai package of npm: tools, their results, the helpers that stream and run them, thoughts.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction } from "openai/helpers/zod";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const chat = client.chat.completions;

const Forecast = z.object({ city: z.string().min(1).max(8), days: z.number().int().min(1).max(9),
  unit: z.enum(["C", "F"]).nullable() });
const forecast = zodFunction({ name: "forecast", description: "The weather to come", parameters: Forecast });
const ping = { type: "function", function: { name: "ping", strict: true } };
const user = [{ role: "user", content: "Will it be warm in Oslo?" }];
const ask = { model, messages: user, tools: [forecast, ping], max_tokens: 400, temperature: 1, seed: 3 };
const called = { ...ask, tool_choice: "required" };
const several = { ...called, min_tokens: 100 };  // one call takes fewer

// Every call is of a tool that was given, and fits it.
function judge({ finish_reason: reason, message }) {
  assert.equal(reason, "tool_calls");
  assert.equal(message.content, null);
  assert.ok(message.tool_calls.length > 0);
  assert.equal(new Set(message.tool_calls.map((call) => call.id)).size, message.tool_calls.length);
  for (const { id, type, function: { name, arguments: text } } of message.tool_calls) {
    assert.ok(type === "function" && id.length > 0 && ["forecast", "ping"].includes(name), name);
    if (name === "forecast") Forecast.parse(JSON.parse(text));
    else assert.deepEqual(JSON.parse(text), {});
  }
  return message.tool_calls;
}

// A stream's message as its chunks add up.
async function gather(body) {
  const message = { content: null, tool_calls: [] };
  let n = 0, reason = null;
  for await (const { choices: [choice] } of await chat.create({ ...body, stream: true })) {
    const { content, reasoning_content: thought, tool_calls: calls = [] } = choice.delta;
    if (content) message.content = (message.content ?? "") + content;
    if (thought) message.reasoning_content = (message.reasoning_content ?? "") + thought;
    for (const { index, ...call } of calls) {
      if (call.id) message.tool_calls[index] = structuredClone(call);
      else message.tool_calls[index].function.arguments += call.function.arguments;
    }
    n++;
    reason = choice.finish_reason ?? reason;
  }
  return { message, n, reason };
}

await check("required, and one function", async () => {
  for (const temperature of [0, 1, 2]) judge((await chat.create({ ...called, temperature })).choices[0]);
  const one = { type: "function", function: { name: "forecast" } };
  const calls = judge((await chat.create({ ...ask, tool_choice: one })).choices[0]);
  assert.equal(calls[0].function.name, "forecast");
  const allowed = { mode: "required", tools: [{ type: "function", function: { name: "ping" } }] };
  const only = await chat.create({ ...ask, tool_choice: { type: "allowed_tools", allowed_tools: allowed } });
  assert.ok(judge(only.choices[0]).every((call) => call.function.name === "ping"));
});

await check("auto and none", async () => {
  for (const tool_choice of [undefined, "auto", "none"]) {
    const [{ message, finish_reason: reason }] = (await chat.create({ ...ask, max_tokens: 20, tool_choice })).choices;
    assert.ok(message.content.length > 0 && !message.tool_calls && reason !== "tool_calls", reason);
  }
});

await check("several calls, and no more than one", async () => {
  assert.ok(judge((await chat.create(several)).choices[0]).length > 1);
  const { choices } = await chat.create({ ...several, n: 4, parallel_tool_calls: false });
  for (const choice of choices) assert.equal(judge(choice).length, 1);
});

await check("a stream's calls are the whole's", async () => {
  const { choices: [whole] } = await chat.create(several);
  const { message, n, reason } = await gather(several);
  assert.ok(n > judge(whole).length * 3, String(n));
  assert.deepEqual(message.tool_calls, whole.message.tool_calls);
  assert.equal(message.content, null);
  assert.equal(reason, whole.finish_reason);
});

await check("the stream helper", async () => {
  let n = 0;
  const ended = [];
  const runner = chat.stream({ ...several, stream_options: { include_usage: true } })
    .on("tool_calls.function.arguments.delta", () => n++)
    .on("tool_calls.function.arguments.done", (call) => ended.push(call));
  const { choices: [choice], usage } = await runner.finalChatCompletion();
  const whole = await chat.parse(several);
  const calls = judge(choice);
  assert.deepEqual(calls, whole.choices[0].message.tool_calls);
  assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(n > calls.length * 3, String(n));
  assert.deepEqual(ended.map((call) => call.arguments), calls.map((call) => call.function.arguments));
  for (const { name, parsed_arguments: parsed } of ended) if (name === "forecast") Forecast.parse(parsed);
});

await check("results go back", async () => {
  let messages = user;
  let tokens = 0;
  for (const seed of [1, 2, 3]) {
    const { choices: [choice], usage } = await chat.create({ ...called, messages, seed });
    assert.ok(usage.prompt_tokens > tokens);  // the conversation so far is a part of the prompt
    tokens = usage.prompt_tokens;
    const results = judge(choice).map(({ id }, i) => ({ role: "tool", tool_call_id: id,
      content: i % 2 ? "warm" : [{ type: "text", text: JSON.stringify({ warm: true }) }] }));
    messages = [...messages, choice.message, ...results];
  }
  const { choices: [last] } = await chat.create({ ...ask, messages, max_tokens: 20, tool_choice: "none" });
  assert.ok(last.message.content.length > 0);
});

// Tools that run here, and what they were given.
function running() {
  const given = [];
  const warm = zodFunction({ name: "forecast", parameters: Forecast, function: (args) => {
    given.push(Forecast.parse(args));
    return { warm: args.days > 4 };
  } });
  const parameters = { type: "object", properties: {} };
  const pong = { type: "function", function: { name: "ping", parameters, parse: JSON.parse,
    function: (args) => {
      given.push(args);
      return "pong";
    } } };
  return { given, tools: [warm, pong] };
}

await check("runTools", async () => {
  const { given, tools } = running();
  const runner = chat.runTools({ ...called, tools }, { maxChatCompletions: 3 });
  await runner.done();
  assert.equal(runner.allChatCompletions().length, 3);
  assert.ok(given.length >= 3);
  assert.equal(runner.messages.filter((m) => m.role === "tool").length, given.length);
  assert.ok((await runner.totalUsage()).completion_tokens > 0);
});

await check("runTools, streamed", async () => {
  const { given, tools } = running();
  let n = 0;
  const runner = chat.runTools({ ...called, tools, stream: true }, { maxChatCompletions: 3 }).on("chunk", () => n++);
  await runner.done();
  assert.equal(runner.messages.filter((m) => m.role === "assistant").length, 3);
  assert.equal(runner.messages.filter((m) => m.role === "tool").length, given.length);
  assert.ok(given.length >= 3 && n > 9, `${given.length}, ${n}`);
  const once = chat.runTools({ ...ask, tools, stream: true, tool_choice: { type: "function", function: { name: "ping" } } });
  assert.equal(await once.finalFunctionToolCallResult(), "pong");
});

await check("runTools ends with an answer", async () => {
  const { given, tools } = running();
  const runner = chat.runTools({ ...ask, tools, max_tokens: 900, stop: ["."] });  // it refuses one cut off
  assert.ok((await runner.finalContent()).length > 0);
  assert.equal(given.length, 0);
});

await check("thoughts", async () => {
  const body = { ...ask, max_tokens: 40, chat_template_kwargs: { enable_thinking: true } };
  const { choices: [{ message }], usage } = await chat.create(body);
  assert.ok(message.reasoning_content.length > 0 && message.content === null);
  assert.equal(message.reasoning, message.reasoning_content);
  assert.equal(usage.completion_tokens_details.reasoning_tokens, usage.completion_tokens);
  const stream = await gather(body);
  assert.equal(stream.message.reasoning_content, message.reasoning_content);
  assert.equal(stream.message.content, null);
  const history = [...user, { role: "assistant", content: "No.", reasoning_content: message.reasoning_content }, ...user];
  const long = await chat.create({ ...ask, messages: history, max_tokens: 1 });
  const bare = history.map(({ role, content }) => ({ role, content }));
  const short = await chat.create({ ...ask, messages: bare, max_tokens: 1 });
  assert.ok(long.usage.prompt_tokens > short.usage.prompt_tokens);
});

await check("errors", async () => {
  const refused = (param) => (e) => e instanceof OpenAI.BadRequestError && e.param === param;
  const nobody = { type: "function", function: { name: "nobody" } };
  await assert.rejects(chat.create({ ...ask, tool_choice: nobody }), refused("tool_choice"));
  await assert.rejects(chat.create({ ...called, tools: undefined }), refused("tool_choice"));
  await assert.rejects(chat.create({ ...ask, tools: [{ type: "function", function: {} }] }), refused("tools"));
  const broken = { role: "assistant", tool_calls: [{ id: "a", type: "function", function: { arguments: "{}" } }] };
  await assert.rejects(chat.create({ ...ask, messages: [...user, broken] }), refused("messages[1].tool_calls"));
});
