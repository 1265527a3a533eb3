// A small HTTP server around llama.cpp as npm's node-llama-cpp ships it, for bench/peer.py where there is no llama-server.
//   node llama_server.mjs MODEL.gguf PORT SEQUENCES CONTEXT THREADS
// It stands for llama.cpp's engine, not for a good server: scripting between two tokens costs time that llama-server does
// not spend, so figures against it say less than figures against a native build. What it has in common with llama-server:
// requests run side by side on so many sequences of one context and are batched, in parts of 512 tokens; the rest wait,
// first come, first served; a sequence keeps its tokens, and a prompt goes to the free one with which it has most in
// common. POST /v1/completions (prompt: token ids; max_tokens; greedy, past the end of the text) always streams, and
// names tokens by id; GET /health. Run it in a folder that has the package.
import http from "node:http";
import { getLlama } from "node-llama-cpp";

const [modelPath, port, sequences, contextSize, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext(
  { sequences: Number(sequences), contextSize: Number(contextSize), batchSize: 512, threads: Number(threads) });
const free = Array.from({ length: Number(sequences) }, () => context.getSequence());
const waiting = [];

function inCommon(sequence, prompt) {
  const has = sequence.contextTokens;
  let n = 0;
  while (n < has.length && n < prompt.length && has[n] === prompt[n]) n++;
  return n;
}

// The free sequence that has most of the prompt; among equals the one that was free longest.
async function takeSequence(prompt) {
  if (!free.length) await new Promise((resolve) => waiting.push(resolve));
  let best = 0;
  for (let i = 1; i < free.length; i++)
    if (inCommon(free[i], prompt) > inCommon(free[best], prompt)) best = i;
  return free.splice(best, 1)[0];
}

function giveBack(sequence) {
  free.push(sequence);
  waiting.shift()?.();
}

async function complete(body, reply) {
  const { prompt, max_tokens: nMost = 16 } = body;
  const send = (event) => reply.write(`data: ${JSON.stringify(event)}\n\n`);
  const sequence = await takeSequence(prompt);
  let n = 0, nCached = 0;
  try {
    if (reply.destroyed) return;
    nCached = Math.min(inCommon(sequence, prompt), prompt.length - 1); // the last token is computed: for its logits
    if (nCached < sequence.nextTokenIndex)
      await sequence.eraseContextTokenRanges([{ start: nCached, end: sequence.nextTokenIndex }]);
    nCached = sequence.nextTokenIndex;
    reply.writeHead(200, { "Content-Type": "text/event-stream" });
    for await (const token of sequence.evaluate(prompt.slice(nCached), { temperature: 0, yieldEogToken: true })) {
      send({ choices: [{ index: 0, text: model.detokenize([token]) || " ", token_ids: [token] }] });
      if (++n >= nMost || reply.destroyed) break;
    }
  } finally {
    giveBack(sequence);
  }
  send({ choices: [], usage: { prompt_tokens: prompt.length, completion_tokens: n,
                               prompt_tokens_details: { cached_tokens: nCached } } });
  reply.end("data: [DONE]\n\n");
}

const server = http.createServer((request, reply) => {
  if (request.url === "/health") return reply.end("{}");
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => complete(JSON.parse(Buffer.concat(parts)), reply).catch((why) => {
    console.error(String(why));
    reply.destroy();
  }));
});
server.requestTimeout = 0;
server.listen(Number(port), "127.0.0.1");
process.on("SIGTERM", () => process.exit(0));
