// Drives a server with the @langchain/openai package of npm: tools, and agents that call them.
import assert from "node:assert/strict";
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const chatOf = (more) => new ChatOpenAI({ model, apiKey: key, configuration: { baseURL: `${url}/v1` }, maxRetries: 0,
  temperature: 1, maxTokens: 400, modelKwargs: { seed: 4 }, ...more });

const Forecast = z.object({ city: z.string().min(1).max(8), days: z.number().int().min(1).max(9).describe("how many"),
  hours: z.array(z.enum(["day", "night"])).max(2).nullable() });
const tools = [
  tool(({ days }) => (days > 4 ? "warm" : "cold"), { name: "forecast", description: "The weather", schema: Forecast }),
  tool(() => ({ pong: true }), { name: "ping", description: "", schema: { type: "object", properties: {} } }),
];
const ask = [new SystemMessage("Be brief."), new HumanMessage("Will it be warm?")];

function judge({ tool_calls: calls, invalid_tool_calls: invalid, response_metadata: meta }) {
  assert.equal(meta.finish_reason, "tool_calls");
  assert.ok(calls.length > 0 && !invalid?.length);
  for (const { name, args, id } of calls) {
    assert.ok(id && ["forecast", "ping"].includes(name), name);
    if (name === "forecast") assert.deepEqual(Forecast.parse(args), args);
    else assert.deepEqual(args, {});
  }
  return calls.map(({ name, args, id }) => ({ name, args, id }));
}

// As chunks add up, and how many they were.
async function gather(llm, messages) {
  let all = null, n = 0;
  for await (const chunk of await llm.stream(messages)) {
    all = all ? all.concat(chunk) : chunk;
    n++;
  }
  return [all, n];
}

await check("required, any, one tool, auto, none", async () => {
  for (const tool_choice of ["required", "any"]) judge(await chatOf().bindTools(tools, { tool_choice }).invoke(ask));
  for (const strict of [true, false]) {
    const [call] = judge(await chatOf().bindTools(tools, { tool_choice: "ping", strict }).invoke(ask));
    assert.equal(call.name, "ping");
  }
  for (const tool_choice of ["auto", "none"]) {
    const { content, tool_calls: calls } = await chatOf({ maxTokens: 20 }).bindTools(tools, { tool_choice }).invoke(ask);
    assert.ok(content.length > 0 && calls.length === 0);
  }
});

await check("several calls, streamed, equal the whole", async () => {
  const several = { seed: 4, min_tokens: 100 };  // one call takes fewer
  const llm = chatOf({ modelKwargs: several }).bindTools(tools, { tool_choice: "required" });
  const whole = judge(await llm.invoke(ask));
  const [all, n] = await gather(llm, ask);
  assert.ok(whole.length > 1 && n > 3 * whole.length, `${whole.length}, ${n}`);
  assert.deepEqual(judge(all), whole);
  const single = chatOf({ modelKwargs: several }).bindTools(tools, { tool_choice: "required", parallel_tool_calls: false });
  assert.equal(judge(await single.invoke(ask)).length, 1);
});

await check("an agent's loop of three calls, streamed and whole", async () => {
  const llm = chatOf().bindTools(tools, { tool_choice: "any" });
  const messages = [...ask];
  let tokens = 0;
  for (let turn = 0; turn < 3; turn++) {
    const reply = await llm.invoke(messages);
    const calls = judge(reply);
    assert.deepEqual(judge((await gather(llm, messages))[0]), calls);
    assert.ok(reply.usage_metadata.input_tokens > tokens);  // the conversation so far is a part of the prompt
    tokens = reply.usage_metadata.input_tokens;
    messages.push(reply);
    for (const call of reply.tool_calls) messages.push(await tools.find((t) => t.name === call.name).invoke(call));
    assert.ok(ToolMessage.isInstance(messages.at(-1)));
  }
  const last = await chatOf({ maxTokens: 20 }).bindTools(tools, { tool_choice: "none" }).invoke(messages);
  assert.ok(last.content.length > 0);
});

await check("structured output by a function's call", async () => {
  const llm = chatOf().withStructuredOutput(Forecast, { method: "functionCalling", name: "forecast" });
  const forecast = await llm.invoke(ask);
  assert.deepEqual(Forecast.parse(forecast), forecast);
});

await check("thoughts are no content", async () => {
  const llm = chatOf({ maxTokens: 40, modelKwargs: { seed: 4, chat_template_kwargs: { enable_thinking: true } } });
  const { content, usage_metadata: usage } = await llm.invoke(ask);
  assert.equal(content, "");
  assert.equal(usage.output_token_details.reasoning, usage.output_tokens);
  assert.equal((await gather(llm, ask))[0].content, "");
});

await check("responses in place of chats", async () => {
  // One function: other choices it doesn't send here.
  const llm = chatOf({ useResponsesApi: true }).bindTools(tools, { tool_choice: "forecast" });
  const messages = [...ask];
  for (let turn = 0; turn < 2; turn++) {
    const reply = await llm.invoke(messages);
    assert.ok(reply.tool_calls.length > 0 && !reply.invalid_tool_calls?.length);
    for (const { args } of reply.tool_calls) assert.deepEqual(Forecast.parse(args), args);
    const [all] = await gather(llm, messages);
    assert.deepEqual(all.tool_calls.map((call) => call.args), reply.tool_calls.map((call) => call.args));
    messages.push(reply);
    for (const call of reply.tool_calls) messages.push(await tools.find((t) => t.name === call.name).invoke(call));
  }
});

await check("errors", async () => {
  const refused = (says) => (e) => e.status === 400 && e.message.includes(says);
  await assert.rejects(chatOf().bindTools(tools, { tool_choice: "nobody" }).invoke(ask), refused("nobody"));
  const wrong = { type: "function", function: { name: "a", parameters: "x" } };
  await assert.rejects(chatOf().invoke(ask, { tools: [wrong] }), refused("tool a"));
});
