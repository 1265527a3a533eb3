// The live view: /stats, four times a second, as pictures. The stream is read only while somebody looks.

import {headers, readEvents} from "./ask.js";
import {add, Picture} from "./charts.js";
import {checkServer, onServer, serverIsWatched} from "./server.js";

const HISTORY_MS = 60000, PAUSE_MS = 500, PAUSE_MS_MAX = 8000, SILENCE_MS = 5000;
const STEPS = 64, WIDTH = 640;

const $ = (id) => document.getElementById(id);

let isWanted = false, reading = null, timer = 0, pause = 0;
let pictures = null;
let history = []; // {at, prompt, generation}: tokens per second

function count(n) {
  return Number(n ?? 0).toLocaleString("en");
}

function plural(n, one, many = one + "s") {
  return `${count(n)} ${n === 1 ? one : many}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const ms = 1000 * seconds;
  if (ms < 0.1) return "< 0.1 ms";
  if (ms < 1000) return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

function bytes(n) {
  return n ? `${(n / 1048576).toFixed(n < 10485760 ? 1 : 0)} MiB` : "–";
}

// -------------------------------------------------------------------------------- pictures

// A step of 8 decoded tokens would vanish beside one of 512 prompt tokens: heights are logarithms, and the colours
// divide each bar by its tokens.
function drawSteps(picture, stats) {
  const steps = stats.last_steps.slice(-STEPS), height = 120, slot = WIDTH / STEPS;
  const most = Math.max(stats.max_num_batched_tokens || 1, ...steps.map((s) => s.prompt_tokens + s.decode_tokens));
  let prompt = 0, decode = 0;
  picture.begin();
  steps.forEach((step, i) => {
    const tokens = step.prompt_tokens + step.decode_tokens;
    const tall = height * Math.log2(1 + tokens) / Math.log2(1 + most);
    const below = tokens ? tall * step.prompt_tokens / tokens : 0, x = (STEPS - steps.length + i) * slot;
    picture.bar("prompt", x, height - below, slot - 1, below);
    picture.bar("decode", x, height - tall, slot - 1, tall - below);
    prompt += step.prompt_tokens;
    decode += step.decode_tokens;
  });
  const last = steps[steps.length - 1];
  const newest = last ? `newest: ${plural(last.sequences, "sequence")} in ${duration(last.seconds)}` : "no step yet";
  picture.words([["prompt", `prompt ${count(prompt)}`], ["decode", `decode ${count(decode)}`], ["", newest],
    ["", `full height: ${plural(most, "token")}, logarithmic`]]);
  picture.end(`${plural(steps.length, "step")} with ${plural(prompt, "prompt token")} and ${plural(decode, "decoded token")}; ${newest}`);
}

function drawShares(picture, parts, total, words) {
  picture.begin();
  picture.bar("free", 0, 0, WIDTH, 22);
  let x = 0;
  for (const [className, n] of parts) {
    const width = total ? WIDTH * n / total : 0;
    picture.bar(className, x, 0, width, 22);
    x += width;
  }
  picture.words(words);
  picture.end(words.map((part) => part[1]).join(", "));
}

function drawBlocks(picture, stats) {
  drawShares(picture, [["used", stats.kv_blocks_used], ["cached", stats.kv_blocks_cached]], stats.kv_blocks, [
    ["used", `${count(stats.kv_blocks_used)} used`], ["cached", `${count(stats.kv_blocks_cached)} cached`],
    ["free", `${count(stats.kv_blocks_free - stats.kv_blocks_cached)} free`],
    ["", `of ${count(stats.kv_blocks)} blocks of ${plural(stats.block_size, "token")}`],
  ]);
}

// A place is for a sequence, and a request may have several. Each worker's sequences that run come before those that
// wait: where one that waits is shown, all that run are.
function drawPlaces(picture, stats) {
  const height = 22, gap = 8, waiting = stats.num_requests_waiting, places = stats.max_num_seqs * stats.workers.serving;
  const running = stats.sequences.filter((s) => s.phase !== "waiting").length;
  const whole = new Set(stats.sequences.filter((s) => s.phase === "waiting").map((s) => s.group));
  const isLeast = stats.sequences_omitted > 0 && running < places && stats.sequences.some((s) => !whole.has(s.group));
  const share = (n, most) => (most ? WIDTH * Math.min(1, n / most) : 0);
  picture.begin();
  picture.bar("free", 0, 0, WIDTH, height);
  picture.bar("decode", 0, 0, share(running, places), height);
  picture.bar("free", 0, height + gap, WIDTH, height);
  picture.bar("waiting", 0, height + gap, share(waiting, stats.max_queue), height);
  const words = [["decode", `${isLeast ? "at least " : ""}${count(running)} of ${plural(places, "place")} in the batch`],
    ["waiting", `${count(waiting)} of ${count(stats.max_queue)} requests wait in the queue`]];
  picture.words(words);
  picture.end(words.map((part) => part[1]).join(", "));
}

function drawRates(picture, stats) {
  const now = performance.now(), height = 100;
  history.push({at: now, prompt: stats.tokens_per_second.prompt, generation: stats.tokens_per_second.generation});
  while (history.length && now - history[0].at > HISTORY_MS) history.shift();
  const most = Math.max(1, ...history.map((h) => Math.max(h.prompt, h.generation)));
  const points = (name) => history.map((h) => [WIDTH * (1 - (now - h.at) / HISTORY_MS), height - 2 - (height - 4) * h[name] / most]);
  picture.begin();
  picture.line("prompt", points("prompt"));
  picture.line("decode", points("generation"));
  const words = [["prompt", `prompt ${count(Math.round(stats.tokens_per_second.prompt))}/s`],
    ["decode", `generated ${count(Math.round(stats.tokens_per_second.generation))}/s`],
    ["", `the last minute, up to ${count(Math.round(most))}/s`]];
  picture.words(words);
  picture.end(words.map((part) => part[1]).join(", "));
}

// From 0.1 ms to 100 s on a logarithmic scale.
function drawLatency(picture, times) {
  const names = ["p50", "p95", "p99"], height = 16, gap = 6;
  const share = (s) => (s > 0 ? Math.min(1, Math.max(0.01, Math.log10(s / 1e-4) / 6)) : 0);
  picture.begin();
  names.forEach((name, i) => {
    picture.bar("free", 0, i * (height + gap), WIDTH, height);
    picture.bar(name, 0, i * (height + gap), WIDTH * share(times[name]), height);
  });
  const words = [...names.map((name) => [name, `${name} ${duration(times[name])}`]), ["", `of ${count(times.count)}, 0.1 ms to 100 s`]];
  picture.words(words);
  picture.end(words.map((part) => part[1]).join(", "));
}

function drawExperts(picture, experts) {
  picture.figure.hidden = !experts;
  if (!experts) return;
  const tokens = experts.tokens, most = Math.max(1, ...tokens), slot = WIDTH / Math.max(1, tokens.length), height = 80;
  picture.begin();
  tokens.forEach((n, i) => {
    const tall = Math.max(n ? 1 : 0, height * n / most);
    picture.bar("expert", i * slot, height - tall, Math.max(0.5, slot - (slot > 4 ? 1 : 0)), tall);
  });
  const words = [["expert", `${plural(experts.n_experts, "expert")}`],
    ["", `tokens: least ${count(Math.min(...tokens))}, most ${count(Math.max(...tokens))}`]];
  picture.words(words);
  picture.end(words.map((part) => part[1]).join(", "));
}

// Who is in the batch: one row each, with how far prompt and output have come.
class Sequences {
  constructor(parent) {
    const figure = add(parent, "figure", "picture wide");
    add(figure, "h2", "", "Sequences");
    const box = add(figure, "div", "table");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Sequences in the batch and in the queue");
    const table = add(box, "table", "sequences"), row = add(add(table, "thead"), "tr");
    for (const name of ["Request", "Phase", "Prompt and output", "Tokens", "Blocks", "Age"]) add(row, "th", "", name).scope = "col";
    this.body = add(table, "tbody");
    this.caption = add(figure, "figcaption");
    this.rows = [];
  }

  row(i) {
    if (this.rows[i]) return this.rows[i];
    const element = add(this.body, "tr"), cells = {};
    for (const name of ["request", "phase", "way", "tokens", "blocks", "age"]) cells[name] = add(element, "td", name);
    const way = add(cells.way, "span", "way");
    for (const name of ["prompt", "decode"]) cells[name] = add(way, "i", name);
    return (this.rows[i] = {element, cells});
  }

  draw(stats) {
    stats.sequences.forEach((s, i) => {
      const {cells} = this.row(i), whole = Math.max(1, s.prompt_tokens + (s.max_tokens || s.output_tokens));
      const set = (name, text) => {
        if (cells[name].textContent !== text) cells[name].textContent = text;
      };
      set("request", String(s.request_id) + (s.choice ? ` #${s.choice}` : ""));
      set("phase", s.phase);
      cells.phase.className = `phase ${s.phase}`;
      cells.prompt.style.width = `${100 * s.prompt_tokens_done / whole}%`;
      cells.decode.style.width = `${100 * s.output_tokens / whole}%`;
      set("tokens", `${count(s.prompt_tokens_done)} of ${count(s.prompt_tokens)} + ${count(s.output_tokens)}`);
      set("blocks", count(s.kv_blocks));
      set("age", duration(s.age_seconds));
    });
    for (const gone of this.rows.splice(stats.sequences.length)) gone.element.remove();
    const n = stats.sequences.length;
    this.caption.textContent = stats.sequences_omitted ? `and ${count(stats.sequences_omitted)} more`
      : n ? plural(n, "sequence") : "Nobody asks at the moment.";
  }
}

function buildPictures() {
  const parent = $("pictures");
  pictures = {
    steps: new Picture(parent, "The last steps", WIDTH, 120),
    rates: new Picture(parent, "Tokens per second", WIDTH, 100),
    places: new Picture(parent, "Batch and queue", WIDTH, 52),
    blocks: new Picture(parent, "KV blocks", WIDTH, 22),
    first: new Picture(parent, "Time to first token", WIDTH, 60),
    between: new Picture(parent, "Time between tokens", WIDTH, 60),
    experts: new Picture(parent, "Tokens of each expert", WIDTH, 80),
    sequences: new Sequences(parent),
    facts: add(parent, "p", "facts wide"),
  };
}

function draw(stats) {
  if (!pictures) buildPictures();
  drawSteps(pictures.steps, stats);
  drawRates(pictures.rates, stats);
  drawPlaces(pictures.places, stats);
  drawBlocks(pictures.blocks, stats);
  drawLatency(pictures.first, stats.time_to_first_token_seconds);
  drawLatency(pictures.between, stats.inter_token_latency_seconds);
  drawExperts(pictures.experts, stats.experts);
  pictures.sequences.draw(stats);
  const memory = stats.resident_bytes;
  pictures.facts.textContent = [
    `${count(stats.steps)} steps`, `${plural(stats.prompt_tokens, "prompt token")} and ${count(stats.generation_tokens)} generated`,
    plural(stats.num_preemptions, "preemption"), plural(stats.connections, "connection"),
    `${count(stats.workers.serving)} of ${plural(stats.workers.known, "worker")} serving`,
    `memory: router ${bytes(memory.router)}, scheduler ${bytes(memory.scheduler)}, worker ${bytes(memory.worker)}`,
  ].join(" · ");
  $("pictures").classList.remove("stale");
  note(stats.serving ? "" : `Not serving: ${stats.reason || "the model is not there"}.`);
}

function note(text) {
  if ($("live-note").textContent !== text) $("live-note").textContent = text;
  $("live-note").hidden = !text;
}

// --------------------------------------------------------------------------------- reading

// The figures of a server that is silent are not those of now.
function becomeStale(text) {
  serverIsWatched(false);
  $("pictures").classList.add("stale");
  note(text);
}

async function read(signal, abort) {
  let silence = 0;
  const hear = () => {
    clearTimeout(silence);
    silence = setTimeout(abort, SILENCE_MS);
  };
  try {
    hear();
    const response = await fetch("/stats", {headers: headers({Accept: "text/event-stream"}), cache: "no-store", signal});
    if (response.status === 401) return "The server wants an API key for its figures: type it above.";
    if (!response.ok) return `The server has no figures to show: it answers ${response.status}.`;
    await readEvents(response, (stats) => {
      hear();
      pause = 0;
      serverIsWatched(true);
      draw(stats);
    });
  } catch {
    // gone, silent, or nobody looks any more
  } finally {
    clearTimeout(silence);
  }
  return "The server does not answer: these figures are old.";
}

async function follow() {
  clearTimeout(timer);
  if (reading || !isWanted || document.hidden) return;
  const controller = new AbortController();
  reading = controller;
  const why = await read(controller.signal, () => controller.abort());
  reading = null;
  if (!isWanted || document.hidden) {
    serverIsWatched(false);
    return;
  }
  becomeStale(why);
  checkServer();
  pause = Math.min(pause ? 2 * pause : PAUSE_MS, PAUSE_MS_MAX);
  clearTimeout(timer);
  timer = setTimeout(follow, pause);
}

export function showLive(isShown) {
  isWanted = isShown;
  if (isShown) follow();
  else reading?.abort();
}

// After a new key, or when the server is back: at once.
export function retryLive() {
  pause = 0;
  if (!reading) follow();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) reading?.abort();
  else follow();
});
onServer((state) => {
  if (state !== "away") retryLive();
});
