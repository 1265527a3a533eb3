// The raw completion: a text goes out as it is, and what the model adds to it comes back.

import {Answer} from "./answer.js";
import {showCurl} from "./ask.js";
import {chosenFields, COMPLETION_TOKENS, wantedAlternatives} from "./fields.js";

const $ = (id) => document.getElementById(id);

let settings = null, running = null, answer = null;

function setRunning(controller) {
  running = controller;
  $("complete").setAttribute("aria-disabled", controller || !settings ? "true" : "false");
  $("completion-stop").setAttribute("aria-disabled", controller ? "false" : "true");
}

async function complete() {
  if (running || !settings) return;
  const path = "/v1/completions", controller = new AbortController(), alternatives = wantedAlternatives();
  const body = {
    model: settings.model,
    prompt: $("prompt").value,
    max_tokens: COMPLETION_TOKENS,
    ...chosenFields(),
    ...(alternatives ? {logprobs: alternatives} : {}),
    stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
  };
  showCurl($("completion"), path, body);
  answer = new Answer(false);
  $("continuation").replaceChildren(answer.element);
  setRunning(controller);
  try {
    await answer.run(path, body, controller.signal);
  } finally {
    setRunning(null);
  }
}

export function setUpCompletion() {
  $("raw").onsubmit = (event) => {
    event.preventDefault();
    complete();
  };
  $("completion").addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) complete();
  });
  $("completion-stop").onclick = () => running?.abort();
  $("append").onclick = () => {
    if (running || !answer) return;
    $("prompt").value += answer.text;
    $("continuation").replaceChildren();
    answer = null;
    $("prompt").focus();
  };
}

export function completionKnows(nextSettings) {
  settings = nextSettings;
  setRunning(running);
}
