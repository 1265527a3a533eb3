// Drives a server with the ai package of npm: tools, agents of several steps, thoughts.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, hasToolCall, jsonSchema, stepCountIs, streamText, tool, ToolLoopAgent } from "ai";
import { z } from "zod";
import { check, key, model, url } from "./check.mjs";

const provider = createOpenAICompatible({ name: "weft", baseURL: `${url}/v1`, apiKey: key, includeUsage: true });

const Forecast = z.object({ city: z.string().min(1).max(8), days: z.number().int().min(1).max(9).optional(),
  where: z.discriminatedUnion("kind", [z.object({ kind: z.literal("land") }),
    z.object({ kind: z.literal("sea"), depth: z.number().int().min(0).max(99) })]) });
const tools = {
  forecast: tool({ description: "The weather to come", inputSchema: Forecast,
    execute: ({ where }) => ({ warm: where.kind === "land" }) }),
  ping: tool({ inputSchema: jsonSchema({ type: "object", properties: {} }), execute: () => "pong" }),
};
const ask = { model: provider(model), system: "Be brief.", prompt: "Will it be warm?", tools, seed: 4, temperature: 1,
  maxOutputTokens: 400, maxRetries: 0 };
const called = { ...ask, toolChoice: "required" };
const several = { weft: { min_tokens: 180 } };  // one call takes fewer
const thinking = { weft: { chat_template_kwargs: { enable_thinking: true } } };

// What a step called, and what came of it.
function judge({ toolCalls, toolResults, finishReason }) {
  assert.equal(finishReason, "tool-calls");
  assert.ok(toolCalls.length > 0);
  assert.deepEqual(toolResults.map((r) => r.toolCallId), toolCalls.map((c) => c.toolCallId));
  for (const { toolName, input, invalid } of toolCalls) {
    assert.ok(!invalid && toolName in tools, toolName);
    if (toolName === "forecast") assert.deepEqual(Forecast.parse(input), input);
    else assert.deepEqual(input, {});
  }
  return toolCalls.map(({ toolName, toolCallId, input }) => ({ toolName, toolCallId, input }));
}

await check("required, one tool, and none", async () => {
  for (const temperature of [0, 1, 2]) judge(await generateText({ ...called, temperature }));
  const one = await generateText({ ...ask, toolChoice: { type: "tool", toolName: "ping" } });
  assert.equal(judge(one)[0].toolName, "ping");
  for (const toolChoice of ["auto", "none"]) {
    const free = await generateText({ ...ask, maxOutputTokens: 20, toolChoice });
    assert.ok(free.text.length > 0 && free.toolCalls.length === 0);
  }
  assert.ok(judge(await generateText({ ...called, providerOptions: several })).length > 1);
});

await check("three steps, streamed and whole", async () => {
  const three = { ...called, stopWhen: stepCountIs(3) };
  const whole = await generateText(three);
  const stream = streamText(three);
  let n = 0;
  for await (const part of stream.fullStream) {
    assert.notEqual(part.type, "error");
    if (part.type === "tool-input-delta") n++;
  }
  const steps = await stream.steps;
  assert.equal(steps.length, 3);
  assert.deepEqual(steps.map(judge), whole.steps.map(judge));
  assert.ok(n > 9, String(n));
  const sizes = steps.map((step) => step.usage.inputTokens);
  assert.ok(sizes[0] < sizes[1] && sizes[1] < sizes[2], String(sizes));
  assert.equal((await stream.totalUsage).outputTokens, whole.totalUsage.outputTokens);
});

await check("an agent whose last step answers", async () => {
  const agent = new ToolLoopAgent({ model: provider(model), tools, maxRetries: 0, seed: 2, maxOutputTokens: 400,
    stopWhen: [stepCountIs(5), hasToolCall("never")],
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber < 2 ? "required" : "none" }) });
  const { steps, text } = await agent.generate({ prompt: "Will it be warm?" });
  assert.equal(steps.length, 3);
  steps.slice(0, 2).forEach(judge);
  assert.ok(text.length > 0 && steps[2].toolCalls.length === 0);
});

await check("thoughts", async () => {
  const body = { ...ask, maxOutputTokens: 40, providerOptions: thinking };
  const whole = await generateText(body);
  assert.ok(whole.reasoningText.length > 0 && whole.text === "");
  assert.equal(whole.usage.outputTokenDetails.reasoningTokens, whole.usage.outputTokens);
  const stream = streamText(body);
  let text = "";
  for await (const part of stream.fullStream) if (part.type === "reasoning-delta") text += part.text;
  assert.equal(text, whole.reasoningText);
  const { messages } = whole.response;
  assert.equal(messages[0].content[0].type, "reasoning");
  const history = (list) => generateText({ ...ask, prompt: undefined, maxOutputTokens: 1,
    messages: [...list, { role: "user", content: "And then?" }] });
  const short = await history([{ role: "assistant", content: "" }]);
  assert.ok((await history(messages)).usage.inputTokens > short.usage.inputTokens);
});

await check("schemas that can't be honoured are loosened, tools that are not there are refused", async () => {
  const parameters = { properties: { a: { type: "string", maxLength: 9, pattern: "^(?!x)y(?=z)" } }, required: ["a"],
    additionalProperties: false };
  const odd = tool({ inputSchema: jsonSchema(parameters) });
  const { toolCalls: [call] } = await generateText({ ...called, tools: { odd } });
  assert.equal(typeof call.input.a, "string");
  await assert.rejects(generateText({ ...ask, toolChoice: { type: "tool", toolName: "nobody" } }),
    (e) => APICallError.isInstance(e) && e.statusCode === 400 && e.message.includes("nobody"));
});
