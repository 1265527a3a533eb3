// A peer for bench/compare.py: llama.cpp as npm's node-llama-cpp ships it, on the CPU.
//   node llama_cpp.mjs MODEL.gguf PROMPT_TOKENS GEN_TOKENS BATCHES THREADS     (BATCHES: 1,16)
// Prints one line of JSON in the form of `weft bench --json`. Run it in a folder that has the package.
import { getLlama } from "node-llama-cpp";

const [modelPath, nPrompt, nGen, batches, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const prompt = Array.from({ length: Number(nPrompt) }, (_, i) => (i * 7919 + 13) % 30000);
const results = [];

for (const batch of batches.split(",").map(Number)) {
  const size = Number(nPrompt) + Number(nGen) + 8;
  const context = await model.createContext({ sequences: batch, contextSize: size, batchSize: 512, threads: Number(threads) });
  const sequences = Array.from({ length: batch }, () => context.getSequence());
  // All prompts but the last token first, so that prompt and generation are timed apart.
  const begin = performance.now();
  await Promise.all(sequences.map((s) => s.evaluateWithoutGeneratingNewTokens(prompt.slice(0, -1))));
  const promptMs = performance.now() - begin;
  const times = sequences.map(() => []);
  await Promise.all(sequences.map(async (s, i) => {
    for await (const _ of s.evaluate([prompt.at(-1)], { temperature: 0 })) {
      times[i].push(performance.now());
      if (times[i].length === Number(nGen)) break;
    }
  }));
  // As bench/batching.py: while all of them decode.
  const from = Math.max(...times.map((t) => t[0])), to = Math.min(...times.map((t) => t.at(-1)));
  const n = times.flat().filter((t) => t > from && t <= to).length;
  results.push({ batch, prompt_tok_s: batch * (prompt.length - 1) / promptMs * 1e3, gen_tok_s: n / (to - from) * 1e3 });
  await context.dispose();
}
console.log(JSON.stringify({ model: modelPath, threads: Number(threads), results }));
process.exit(0);
