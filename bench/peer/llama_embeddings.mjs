// A small HTTP server around llama.cpp's embeddings as npm's node-llama-cpp ships it, for bench/embeddings.py where there
// is no llama-server.
//   node llama_embeddings.mjs MODEL.gguf PORT SEQUENCES CONTEXT THREADS
// It stands for llama.cpp's engine, not for a good server: the package computes one text at a time, with all threads, where
// llama-server would put several into a batch. A text of a hundred tokens is a matrix product already, so that gains
// little on a few cores. POST /v1/embeddings (input: texts); GET /health. Run it in a folder that has the package.
import http from "node:http";
import { getLlama } from "node-llama-cpp";

const [modelPath, port, , contextSize, threads] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createEmbeddingContext(
  { contextSize: Math.min(Number(contextSize), model.trainContextSize), batchSize: 512, threads: Number(threads) });

async function embed(body, reply) {
  const data = [];
  for (const [index, text] of body.input.entries())
    data.push({ index, embedding: (await context.getEmbeddingFor(text)).vector });
  reply.writeHead(200, { "Content-Type": "application/json" });
  reply.end(JSON.stringify({ data }));
}

http.createServer((request, reply) => {
  if (request.url === "/health") return reply.end("{}");
  let text = "";
  request.on("data", (part) => (text += part));
  request.on("end", () => embed(JSON.parse(text), reply).catch((error) => {
    console.error(error);
    reply.destroy();
  }));
}).listen(Number(port), "127.0.0.1");
