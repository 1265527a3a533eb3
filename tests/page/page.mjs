// The page, driven in a real browser by pointer and keyboard. Facts about the server come as JSON; see test_page.py.
import assert from "node:assert/strict";
import {execFile} from "node:child_process";
import {readFile} from "node:fs/promises";
import {createRequire} from "node:module";
import {promisify} from "node:util";
import puppeteer from "puppeteer-core";

const facts = JSON.parse(process.argv[2]);
const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PATIENCE_MS = 30000;

const browser = await puppeteer.launch({
  executablePath: facts.chromium, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

// ---------------------------------------------------------------------------------- tools

async function open(hash = "", size = {width: 1280, height: 800}) {
  const page = await browser.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error.stack)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) page.faults.push(message.text());
  });
  page.setDefaultTimeout(PATIENCE_MS);
  await page.setViewport(size);
  await page.goto(facts.url + "/" + hash);
  await until(page, () => document.getElementById("model").textContent !== "…");
  return page;
}

async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.close();
}

function until(page, condition, ...args) {
  return page.waitForFunction(condition, {timeout: PATIENCE_MS, polling: 20}, ...args);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const text = (page, selector) => page.$eval(selector, (e) => e.textContent);
const texts = (page, selector) => page.$$eval(selector, (all) => all.map((e) => e.textContent));
const ended = (page, n = 1) => until(page, (k) => {
  const all = document.querySelectorAll(".answer");
  return all.length === k && !document.querySelector(".answer.busy");
}, n);

const LONG = 300; // tokens: an answer that does not end while it is looked at
const letters = (words) => words.replace(/[\s*_`#>~|-]+/g, ""); // without what Markdown may take for marks

async function setField(page, name, value) {
  await page.$eval("#field-" + name, (e, v) => { e.value = v; }, String(value));
}

async function say(page, words) {
  await page.type("#message", words);
  await page.keyboard.press("Enter");
}

async function typeKey(page) {
  await page.type("#key", facts.key);
}

// The worker runs for a few milliseconds now and then: what the page shows meanwhile can be looked at, however fast the
// model and slow the machine is. Nothing of this process runs while the worker does.
function slowMotion() {
  const pid = facts.pids.worker;
  const signal = (name) => {
    try {
      process.kill(pid, name);
    } catch {
      // it has ended
    }
  };
  signal("SIGSTOP");
  const timer = setInterval(() => {
    signal("SIGCONT");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4);
    signal("SIGSTOP");
  }, 60);
  return async () => {
    clearInterval(timer);
    signal("SIGCONT");
  };
}

async function axe(page, where) {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(({id, impact, help, nodes}) => (
    {id, impact, help, nodes: nodes.slice(0, 3).map((n) => n.html.slice(0, 200))})));
  const grave = found.filter(({impact}) => impact === "serious" || impact === "critical");
  assert.deepEqual(grave, [], `axe: ${where}`);
  for (const {id, impact} of found) console.log(`  axe, ${where}: ${impact} ${id}`);
}

async function colours(page, scheme) {
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: scheme}]);
}

// Streams of the test's own, beside the page's; they end with abort().
function otherStreams(n, path, body) {
  const controller = new AbortController();
  const streams = Array.from({length: n}, (_, i) => fetch(facts.url + path, {
    method: "POST", signal: controller.signal,
    headers: {"Content-Type": "application/json", Authorization: "Bearer " + facts.key},
    body: JSON.stringify({...body, seed: i, stream: true}),
  }).then(async (response) => {
    assert.equal(response.status, 200);
    for await (const _ of response.body);
  }).catch((error) => {
    if (error.name !== "AbortError") throw error;
  }));
  return async () => {
    controller.abort();
    await Promise.all(streams);
  };
}

function events(...chunks) {
  return chunks.map((chunk) => `data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`).join("");
}

// The next answers of /v1/chat/completions are these.
async function pretend(page, body) {
  await page.setRequestInterception(true);
  page.removeAllListeners("request");
  page.on("request", (request) => {
    if (!request.url().endsWith("/v1/chat/completions")) return request.continue();
    return request.respond({status: 200, contentType: "text/event-stream", body});
  });
}

async function pretendNoMore(page) {
  page.removeAllListeners("request");
  await page.setRequestInterception(false);
}

const chunkOf = (content, finish = null) => ({choices: [{index: 0, delta: {content}, logprobs: null, finish_reason: finish}]});

// --------------------------------------------------------------------------------- checks

async function it_says_what_is_wrong(page) {
  await say(page, "Tell me a story.");
  await ended(page);
  assert.match(await text(page, ".ending.refused"), /No API key provided/);
  await typeKey(page);
  assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 1);
  await page.click("#reset");
  await setField(page, "temperature", 1000);
  await say(page, "Tell me a story.");
  await ended(page);
  assert.match(await text(page, ".ending.refused"), /'temperature' must be/);
  await page.click("#reset");
  await page.click("#fields button");
  assert.equal(await page.$eval("#field-temperature", (e) => e.value), "0.8"); // generation_config.json's
  assert.equal(await page.$eval("#field-top_p", (e) => e.value), "0.95");
}

async function it_streams_and_says_how_fast(page) {
  const normal = slowMotion();
  await setField(page, "seed", 3);
  await setField(page, "max_tokens", LONG);
  await setField(page, "min_tokens", LONG);
  await say(page, "Tell me of a king.");
  await until(page, () => document.querySelector(".answer.busy .token"));
  const first = await text(page, ".answer .text");
  await until(page, (n) => document.querySelector(".answer.busy .text")?.textContent.length > n, first.length);
  assert.equal(await page.$eval("#send", (e) => e.ariaDisabled), "true");
  await normal();
  await ended(page);
  assert((await text(page, ".answer .text")).startsWith(first));
  assert.match(await text(page, ".answer .figures"), /^first token [\d.]+ s · [\d.]+ tokens\/s · 300 tokens · ended by its length( · dotted: under 3 %)?$/);
  assert.equal(letters((await texts(page, "#announcer p")).join("")), letters(await text(page, ".answer .text"))); // once
}

async function it_shows_what_a_token_might_have_been(page) {
  const token = await page.$(".answer .token");
  await token.hover();
  await until(page, () => document.querySelectorAll("#tip li").length > 3);
  assert.match(await text(page, "#tip li.chosen"), /^“.+” *(\d|<).* %$/s);
  await page.mouse.move(1, 1);
  await until(page, () => document.getElementById("tip").hidden);
  await page.focus(".answer .text");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  const [current] = await texts(page, ".token.current");
  assert.equal(await page.$eval(".token.current", (e) => e.dataset.index), "1");
  assert((await text(page, "#announcer p:last-child")).includes(current.trim()));
  assert.equal(await page.$eval("#tip", (e) => e.hidden), false);
  await page.keyboard.press("Escape");
  assert.equal(await page.$eval("#tip", (e) => e.hidden), true);
  const placed = (await texts(page, ".answer .token")).join("");
  assert.equal(placed, (await text(page, ".answer .text")).replaceAll("\n", "")); // each character has its token
}

async function it_stops(page) {
  const normal = slowMotion();
  await say(page, "Go on.");
  await until(page, () => document.querySelector(".answer.busy .token"));
  await page.click("#chat-stop");
  await ended(page, 2);
  await normal();
  assert.equal(await text(page, "li:last-child .ending.stopped"), "Stopped.");
  assert.match(await text(page, "li:last-child .figures"), /first token/);
  const busy = async () => Number(/weft_num_requests_running\S* (\d+)/.exec(await (await fetch(facts.url + "/metrics")).text())?.[1] ?? 0);
  while (await busy()) await pause(50);
}

async function the_conversation_can_be_changed_and_begun_again(page) {
  await page.click("#messages > li:first-child button"); // Edit
  await page.keyboard.press("End");
  await page.keyboard.type(" A long one.");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter"); // Ask again
  await ended(page, 1);
  assert.deepEqual(await texts(page, ".said"), ["Tell me of a king. A long one."]);
  const edit = (await page.$$("#messages > li:last-child .head button"))[1];
  await edit.click();
  await page.keyboard.down("Control");
  await page.keyboard.press("a");
  await page.keyboard.up("Control");
  await page.keyboard.type("**No.**");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter"); // Save
  assert.equal(await text(page, "#messages > li:last-child .markdown strong"), "No.");
  await page.click("#reset");
  assert.deepEqual(await texts(page, "#messages > li"), []);
}

async function the_curl_line_asks_the_same(page) {
  const words = `It's "so" \\ $HOME \`id\` !! é\u4f60 'x'`;
  await page.$eval("#system", (e, w) => { e.value = w; }, words);
  await setField(page, "temperature", 0);
  await setField(page, "max_tokens", 12);
  await setField(page, "stop", "zzz\n\\nQ");
  await say(page, words);
  await ended(page);
  const line = await text(page, "#chat .curl pre");
  assert(!line.includes(facts.key) && line.includes('"Authorization: Bearer $WEFT_API_KEY"'));
  const {stdout} = await promisify(execFile)("bash", ["-c", line], {env: {...process.env, WEFT_API_KEY: facts.key}});
  const chunks = stdout.split("\n\n").filter((e) => e.startsWith("data: {")).map((e) => JSON.parse(e.slice(6)));
  const answer = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(letters(answer), letters(await text(page, ".answer .text")));
  await browser.defaultBrowserContext().overridePermissions(facts.url, ["clipboard-read", "clipboard-sanitized-write"]);
  await page.click("#chat .curl button");
  await until(page, () => document.querySelector("#chat .curl button").textContent === "Copied");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), line);
  await page.$eval("#system", (e) => { e.value = ""; });
  await page.click("#fields button");
  await page.click("#reset");
}

const MARKUP = [
  "<script>window.harm = 1</script><img src=x onerror=\"window.harm = 1\"><b>not bold</b>", "", "# A <i>title</i>", "",
  "**bold**, *slanted*, `a <b>` and [a link](https://example.org/?a=1&b=2), [no link](javascript:window.harm=1) and",
  "<iframe src=\"javascript:window.harm=1\"></iframe> ![picture](https://example.org/x.png)", "",
  "- one", "- two", "  1. deep", "", "> said <u>so</u>", "", "| a | b |", "|---|---|", "| 1 | <s>2</s> |", "",
  "```html", "<script>window.harm = 1</script>", "```", "", "snake_case_name and 2 * 3 * 4 stay", "", "```", "open",
].join("\n");

async function what_a_model_writes_stays_text(page) {
  const pieces = MARKUP.match(/[^]{1,7}/g);
  await pretend(page, events(...pieces.map((piece) => chunkOf(piece)), chunkOf("", "stop"), "[DONE]"));
  await say(page, "<img src=x onerror=\"window.harm = 1\"><script>window.harm = 1</script>");
  await ended(page);
  assert.deepEqual(await page.$$eval(".messages :is(img, script, iframe, i, b, u)", (all) => all.map((e) => e.outerHTML)), []);
  assert.equal(await page.evaluate(() => window.harm), undefined);
  assert.match(await text(page, ".said"), /^<img src=x onerror=.*<\/script>$/);
  const body = await text(page, ".answer .text");
  for (const shown of ["<script>window.harm = 1</script>", "<img src=x", "<b>not bold</b>", "[no link](javascript:window.harm=1)", "snake_case_name and 2 * 3 * 4 stay"]) {
    assert(body.includes(shown), `${shown} in ${body}`);
  }
  assert.deepEqual(await texts(page, ".markdown h3"), ["A <i>title</i>"]);
  assert.deepEqual(await texts(page, ".markdown strong"), ["bold"]);
  assert.deepEqual(await texts(page, ".markdown em"), ["slanted"]);
  assert.deepEqual(await texts(page, ".markdown p > code"), ["a <b>"]);
  assert.deepEqual(await page.$$eval(".markdown a", (all) => all.map((a) => a.href)), ["https://example.org/?a=1&b=2", "https://example.org/x.png"]);
  assert.deepEqual(await texts(page, ".markdown > ul > li > ol > li"), ["deep"]);
  assert.deepEqual(await texts(page, ".markdown blockquote"), ["said <u>so</u>"]);
  assert.deepEqual(await texts(page, ".markdown td"), ["1", "<s>2</s>"]);
  assert.deepEqual(await texts(page, ".markdown pre code"), ["<script>window.harm = 1</script>", "open"]);
  await pretendNoMore(page);
  await page.click("#reset");
}

// Texts that make a careless reader of Markdown slow: each is drawn in the time that a long answer may take.
async function no_text_makes_it_slow(page) {
  const slow = await page.evaluate(async () => {
    const {drawMarkdown} = await import("/page/markdown.js");
    const emit = (parent, start, end) => parent.append(document.createTextNode(String(end - start)));
    const times = {};
    for (const piece of ["*a ", "_a ", "**a", "`", "[", "](", "> ", "- ", "<", "|", "~~a", "***", "\\", "http://", "a\n", "1. a\n", "![", "* _ ` ["]) {
      const begun = performance.now();
      drawMarkdown(document.createElement("div"), piece.repeat(20000 / piece.length), emit);
      times[piece] = performance.now() - begun;
    }
    return Object.entries(times).filter(([, ms]) => ms > 3000);
  });
  assert.deepEqual(slow, []);
}

// Piece by piece as in a stream, and at once: the same nodes, of the kinds that the page makes, with all of the text.
async function a_stream_draws_what_the_whole_text_draws(page) {
  const wrong = await page.evaluate(async () => {
    const {drawMarkdown} = await import("/page/markdown.js");
    const words = ["a", "b c", "*", "**", "_", "`", "```", "~~", "\n", "\n\n", "- ", "  - ", "1. ", "> ", "# ", "|", "|-|-|", "[x](", "https://a.b/", ")", "<b>",
      "\\", "    ", "---", "!["];
    let random = 1;
    const next = (n) => (random = (random * 48271) % 2147483647) % n;
    for (let round = 0; round < 300; round++) {
      const streamed = document.createElement("div"), whole = document.createElement("div");
      let source = "", drawn = [], seen = new Set();
      const emit = (parent, start, end) => {
        for (let i = start; i < end; i++) seen.add(i);
        parent.append(document.createTextNode(source.slice(start, end)));
      };
      for (let i = 0; i < 40; i++) {
        source += words[next(words.length)];
        drawn = drawMarkdown(streamed, source, emit, drawn);
      }
      seen = new Set();
      drawMarkdown(whole, source, emit);
      if (streamed.innerHTML !== whole.innerHTML) return `streamed differently: ${source}`;
      const letters = [...source].findIndex((c, i) => /[abc]/.test(c) && !seen.has(i) && !source.includes("](") && !source.includes("```"));
      if (letters >= 0) return `lost a letter at ${letters}: ${source}`;
      const kinds = new Set([...whole.querySelectorAll("*")].map((e) => e.localName));
      for (const kind of ["b", "script", "img", "iframe"]) if (kinds.has(kind)) return `made <${kind}> of: ${source}`;
    }
    return null;
  });
  assert.equal(wrong, null);
}

// Tokens end within characters, some are not shown, and a first space may be left out.
async function every_token_finds_its_place_in_the_text(page) {
  const spans = await page.evaluate(async () => {
    const {TokenText, tokensOf} = await import("/page/tokens.js");
    const token = (bytes) => ({token: "?", bytes, logprob: -1, top_logprobs: []});
    const text = new TokenText(), utf8 = (t) => [...new TextEncoder().encode(t)];
    const add = (words, ...tokens) => text.add(words, tokensOf({content: tokens.map((t) => token(typeof t === "string" ? utf8(t) : t))}));
    add("Hi", " Hi");
    add("", [0xf0, 0x9f]); // the first half of a character
    add("\u{1f600}!", [0x98, 0x80], "!");
    add("", "</s>"); // not part of the text
    add("", " wor"); // kept back: it may be a stop string
    add(" word", "d");
    add("\ufffd.", [0xff], ".");
    return text.spans.map(({start, end, tokens}) => [text.text.slice(start, end), tokens.length]);
  });
  assert.deepEqual(spans, [["Hi", 1], ["\u{1f600}", 2], ["!", 1], [" wor", 1], ["d", 1], ["\ufffd", 1], [".", 1]]);
}

async function a_stream_that_ends_too_early_is_marked(page) {
  await pretend(page, events(chunkOf("Half of")));
  await say(page, "Tell me.");
  await ended(page);
  assert.match(await text(page, ".ending.cut"), /not whole/);
  assert.equal(await text(page, ".answer .text"), "Half of");
  await page.click("#reset");
  await pretend(page, events(chunkOf("Half"), {error: {message: "the worker was lost", code: 500}}));
  await say(page, "Tell me.");
  await ended(page);
  assert.equal(await text(page, ".ending.refused"), "the worker was lost");
  await pretendNoMore(page);
  await page.click("#reset");
}

async function links_use_the_key(page) {
  for (const [name, shown] of [["models", /"id": "fable-6m"/], ["health", /"status"/], ["metrics", /# TYPE/], ["stats", /"num_requests_running"/]]) {
    const link = await page.waitForSelector(`::-p-xpath(//nav/a[text()="${name}"])`);
    await link.click();
    await until(page, (pattern) => new RegExp(pattern).test(document.querySelector("#reply pre").textContent), shown.source);
    if (name === "models") await axe(page, "reply");
    await page.keyboard.press("Escape");
    await until(page, () => !document.getElementById("reply").open);
  }
}

async function an_empty_field_says_what_is_meant(page) {
  const placeholder = () => page.$eval("#field-max_tokens", (e) => e.placeholder);
  const settings = await (await fetch(`${facts.url}/page/settings.json`)).json();
  assert.equal(await placeholder(), settings.max_new_tokens ? String(settings.max_new_tokens) : "no limit");
  await page.click("#tab-completion");
  assert.equal(await placeholder(), "200");
  await page.click("#complete");
  await until(page, () => document.querySelector("#continuation .answer:not(.busy)"));
  assert.match(await text(page, "#completion .curl pre"), /"max_tokens":200,/);
  await page.click("#tab-chat");
  assert.notEqual(await placeholder(), "200");
}

async function a_completion_goes_on_from_its_text(page) {
  await page.click("#tab-completion");
  await setField(page, "max_tokens", 20);
  await setField(page, "min_tokens", 20);
  await page.focus("#prompt");
  await page.keyboard.down("Control");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Control");
  await until(page, () => document.querySelector("#continuation .answer:not(.busy) .token"));
  const added = await text(page, "#continuation .text");
  assert.equal((await texts(page, "#continuation .token")).join(""), added);
  await page.click("#append");
  assert.equal(await page.$eval("#prompt", (e) => e.value), "Once upon a time" + added);
  await page.click("#fields button");
}

async function the_batch_is_seen(page, n = 8) {
  let later = async () => {};
  await page.click("#tab-live");
  const normal = slowMotion();
  // Each has a place for each of its choices.
  const end = otherStreams(n / 2, "/v1/completions", {prompt: "Once upon a time", max_tokens: 900, ignore_eos: true, n: 2});
  try {
    await until(page, (k) => document.querySelectorAll(".sequences tbody tr").length === k &&
      [...document.querySelectorAll(".sequences .phase")].slice(0, k).every((e) => e.textContent !== "waiting"), n);
    await until(page, () => document.querySelectorAll(".picture rect.decode").length > 4);
    const labels = await page.$$eval(".picture svg", (all) => all.map((e) => e.getAttribute("aria-label")));
    assert(labels.some((label) => new RegExp(`^Batch and queue: ${n} of 64 places in the batch, 0 of`).test(label)), labels.join("\n"));
    assert(labels.some((label) => /^KV blocks: [1-9]\d* used/.test(label)), labels.join("\n"));
    assert(labels.some((label) => /^The last steps: .* [1-9]\d* decoded tokens?/.test(label)), labels.join("\n"));
    if (facts.forDocs) { // a picture worth looking at: a batch that has gone on for a while, and prompts that come
      await pause(4000);
      later = otherStreams(4, "/v1/completions", {prompt: "There was a ship that sailed the sea. ".repeat(9), max_tokens: 300});
      await pause(1200);
    }
    await page.setViewport({width: 1280, height: facts.forDocs ? 1220 : 800});
    await colours(page, "dark");
    await page.screenshot({path: `${facts.shots}/page-live-1280-dark.png`});
    await page.setViewport({width: 1280, height: 800});
    await colours(page, "light");
  } finally {
    await normal();
    await Promise.all([end(), later()]);
  }
  await until(page, () => document.querySelectorAll(".sequences tbody tr").length === 0);
  const labels = await page.$$eval(".picture svg", (all) => all.map((e) => e.getAttribute("aria-label")));
  assert(labels.some((label) => /^Time to first token: p50 [\d.]+ m?s/.test(label)), labels.join("\n"));
}

// kill -9 of the router in the middle of an answer; nobody starts it again until the page has said so.
async function it_outlives_the_router(page) {
  await page.click("#tab-chat");
  await setField(page, "min_tokens", LONG);
  const normal = slowMotion();
  await say(page, "Tell me a long story.");
  await until(page, () => document.querySelector(".answer.busy .token"));
  process.kill(facts.supervisor, "SIGSTOP");
  process.kill(facts.pids.router, "SIGKILL");
  await ended(page);
  assert.match(await text(page, ".ending.cut"), /The connection broke off here: this answer is not whole./);
  await until(page, () => /does not answer/.test(document.querySelector("#server.away")?.textContent));
  await say(page, "Are you there?");
  await ended(page, 2);
  assert.match(await text(page, ".ending.away"), /does not answer/);
  await page.click("#tab-live");
  await until(page, () => /does not answer/.test(document.getElementById("live-note").textContent));
  await axe(page, "away");
  await normal();
  process.kill(facts.supervisor, "SIGCONT");
  await until(page, () => document.querySelector("#server.well")?.textContent === "serving again");
  await until(page, () => document.getElementById("live-note").hidden);
  await page.click("#tab-chat");
  await page.click("#reset");
  await page.click("#fields button");
  await setField(page, "max_tokens", 5);
  await say(page, "And now?");
  await ended(page);
  assert.equal(await page.$(".ending:not([hidden])"), null);
  await page.click("#fields button");
}

// kill -9 of the worker: the page says that nothing is served, and the answer it waits for comes all the same.
async function an_answer_outlives_the_worker(page) {
  await setField(page, "min_tokens", 20);
  await setField(page, "max_tokens", 20);
  await page.click("#reset");
  process.kill(facts.pids.worker, "SIGSTOP");
  await say(page, "Are you still there?");
  process.kill(facts.supervisor, "SIGSTOP");
  process.kill(facts.pids.worker, "SIGKILL");
  await until(page, () => {
    document.dispatchEvent(new Event("visibilitychange")); // who comes back to the page hears at once
    return /^not serving: ./.test(document.querySelector("#server.ill")?.textContent);
  });
  process.kill(facts.supervisor, "SIGCONT");
  await ended(page);
  assert.equal(await page.$(".ending:not([hidden])"), null);
  assert.match(await text(page, ".answer .figures"), /20 tokens/);
  await until(page, () => document.querySelector("#server.well")?.textContent === "serving again");
}

// From the top of the page by Tab: each stop is seen and has a name, and everything can be done from there.
async function it_works_by_keyboard_alone() {
  const page = await open();
  await page.evaluate((key) => sessionStorage.setItem("weft-key", key), facts.key);
  const stops = [];
  const at = () => page.evaluate(() => {
    const e = document.activeElement, style = getComputedStyle(e);
    return {id: e.id, name: e.computedName ?? e.ariaLabel ?? e.labels?.[0]?.textContent ?? e.textContent, isSeen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2};
  });
  const tabTo = async (id) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      const stop = await at();
      stops.push(stop);
      assert(stop.isSeen || !stop.id, `focus is not seen on ${stop.id}`);
      if (stop.id === id) return;
    }
    assert.fail(`Tab does not reach ${id}: ${stops.map((s) => s.id).join(" ")}`);
  };
  await tabTo("theme");
  await page.keyboard.press("Space");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.colours), "dark");
  await page.keyboard.press("Space");
  await tabTo("tab-chat");
  await page.keyboard.press("ArrowRight");
  await until(page, () => !document.getElementById("completion").hidden);
  await page.keyboard.press("End");
  await until(page, () => !document.getElementById("live").hidden);
  await page.keyboard.press("Home");
  await until(page, () => !document.getElementById("chat").hidden);
  await tabTo("message");
  await page.keyboard.type("Tell me of the sea.");
  await page.keyboard.press("Enter");
  await ended(page);
  await tabTo("reset");
  await tabTo("field-temperature");
  await page.keyboard.press("ArrowUp");
  assert.notEqual(await page.$eval("#field-temperature", (e) => e.value), "0.8");
  await tabTo("field-stop");
  for (const id of ["field-top_p", "field-max_tokens", "field-seed"]) assert(stops.some((stop) => stop.id === id), id);
  await page.evaluate(() => localStorage.clear());
  await close(page);
}

async function pictures_for_readers(page) {
  for (const width of [390, 1280]) {
    for (const scheme of ["light", "dark"]) {
      await page.setViewport({width, height: 760});
      await colours(page, scheme);
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({path: `${facts.shots}/page-${width}-${scheme}.png`});
    }
  }
}

async function everybody_can_read_it() {
  const page = await open();
  await page.evaluate((key) => sessionStorage.setItem("weft-key", key), facts.key);
  await page.reload();
  await until(page, () => document.getElementById("field-seed"));
  await setField(page, "seed", 12);
  await setField(page, "max_tokens", 90);
  await say(page, "Tell me of a ship in a storm.");
  await ended(page);
  await pictures_for_readers(page);
  await page.focus(".answer .text");
  await page.keyboard.press("ArrowRight");
  for (const width of [390, 1280]) {
    await page.setViewport({width, height: 844});
    for (const scheme of ["light", "dark"]) {
      await colours(page, scheme);
      // Each view in both colours and both widths; all four together for the one that has most in it.
      const isMixed = (width === 390) === (scheme === "dark");
      for (const view of ["chat", isMixed ? "completion" : "live"]) {
        await page.click("#tab-" + view);
        if (view === "live") await until(page, () => document.querySelectorAll(".picture svg").length > 5);
        await axe(page, `${view}, ${width}, ${scheme}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert(wide <= width, `${view} is ${wide} pixels wide at ${width}`);
      }
    }
  }
  await close(page);
}

// ----------------------------------------------------------------------------------- parts

async function the_page() {
  const page = await open();
  const checks = [it_says_what_is_wrong, it_streams_and_says_how_fast, it_shows_what_a_token_might_have_been, it_stops,
    the_conversation_can_be_changed_and_begun_again, the_curl_line_asks_the_same, what_a_model_writes_stays_text,
    no_text_makes_it_slow, a_stream_draws_what_the_whole_text_draws, every_token_finds_its_place_in_the_text, a_stream_that_ends_too_early_is_marked, links_use_the_key, an_empty_field_says_what_is_meant,
    a_completion_goes_on_from_its_text, the_batch_is_seen, it_outlives_the_router, an_answer_outlives_the_worker];
  for (const check of checks) await run(check, page);
  await close(page);
  await run(it_works_by_keyboard_alone);
  await run(everybody_can_read_it);
}

async function it_opens_on_the_completion_and_says_why(page) {
  assert.equal(await page.$eval("#completion", (e) => e.hidden), false);
  assert.equal(await page.$eval("#field-max_tokens", (e) => e.placeholder), "200");
  await page.click("#tab-chat");
  assert.match(await text(page, "#no-template"), /has no chat template/);
  assert.equal(await page.$eval("#message", (e) => e.disabled), true);
  await axe(page, "no template");
}

async function the_load_of_experts_is_seen(page) {
  await page.click("#tab-completion");
  await page.click("#complete");
  await until(page, () => document.querySelector("#continuation .answer:not(.busy)"));
  await page.click("#tab-live");
  await until(page, () => document.querySelectorAll(".picture rect.expert").length > 1);
  const labels = await page.$$eval(".picture svg", (all) => all.map((e) => e.getAttribute("aria-label")));
  assert(labels.some((label) => /^Batch and queue: \d+ of 128 places in the batch/.test(label)), labels.join("\n")); // of two workers
}

async function experts() {
  const page = await open();
  await run(it_opens_on_the_completion_and_says_why, page);
  await run(the_load_of_experts_is_seen, page);
  await close(page);
}

async function run(check, page) {
  const begun = performance.now();
  try {
    await check(page);
  } catch (error) {
    if (page) {
      await page.screenshot({path: `${facts.shots}/failed.png`}).catch(() => {});
      console.log(`not ok ${check.name}; its last moment is in ${facts.shots}/failed.png; faults: ${page.faults}`);
    }
    throw error;
  }
  console.log(`ok ${check.name.replaceAll("_", " ")} (${((performance.now() - begun) / 1000).toFixed(1)} s)`);
}

try {
  await {page: the_page, experts}[facts.what]();
  console.log("all checks");
} finally {
  for (const pid of [facts.supervisor, facts.pids.worker]) {
    try {
      process.kill(pid, "SIGCONT");
    } catch {
      // ended
    }
  }
  await browser.close();
}
