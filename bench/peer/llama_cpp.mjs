// A peer for bench/compare.py: llama.cpp as npm's node-llama-cpp ships it, on the CPU.
//   node llama_cpp.mjs MODEL.gguf PROMPTS GEN_TOKENS BATCHES CONTEXT THREADS     (PROMPTS: 128,512; BATCHES: 1,16)
// Prints one line of JSON in the form of `weft bench --json`. Run it in a folder that has the package.
import { getLlama } from "node-llama-cpp";

const [modelPath, prompts, nGen, batches, nContext, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const tokens = (n) => Array.from({ length: n }, (_, i) => (i * 7919 + 13) % 30000);
const newContext = (sequences, contextSize) =>
  model.createContext({ sequences, contextSize, batchSize: 512, threads: Number(threads) });
const prompt = [], decode = [];

for (const n of prompts.split(",").map(Number)) {
  const context = await newContext(1, n + 8);
  const begin = performance.now();
  await context.getSequence().evaluateWithoutGeneratingNewTokens(tokens(n));
  prompt.push({ tokens: n, tokens_per_s: n / (performance.now() - begin) * 1e3 });
  await context.dispose();
}

for (const batch of batches.split(",").map(Number)) {
  const context = await newContext(batch, Number(nContext) + Number(nGen) + 8);
  const sequences = Array.from({ length: batch }, () => context.getSequence());
  // All of the context but its last token first, so that only decoding is timed.
  const before = tokens(Number(nContext));
  if (before.length > 1)
    await Promise.all(sequences.map((s) => s.evaluateWithoutGeneratingNewTokens(before.slice(0, -1))));
  const times = sequences.map(() => []);
  await Promise.all(sequences.map(async (s, i) => {
    for await (const _ of s.evaluate([before.at(-1)], { temperature: 0 })) {
      times[i].push(performance.now());
      if (times[i].length === Number(nGen)) break;
    }
  }));
  // As bench/batching.py: while all of them decode.
  const from = Math.max(...times.map((t) => t[0])), to = Math.min(...times.map((t) => t.at(-1)));
  const n = times.flat().filter((t) => t > from && t <= to).length;
  decode.push({ batch, tokens_per_s: n / (to - from) * 1e3 });
  await context.dispose();
}
console.log(JSON.stringify({ model: modelPath, threads: Number(threads), prompt, decode }));
process.exit(0);
