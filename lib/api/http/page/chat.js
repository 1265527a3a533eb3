// The chat: messages, the composer, and the conversation that can be changed and begun again.

import {Answer} from "./answer.js";
import {copyText, showCurl} from "./ask.js";
import {chosenFields, wantedAlternatives} from "./fields.js";

const $ = (id) => document.getElementById(id);

let settings = null;
let messages = []; // {role, content, item: its list item, answer: of the model's}
let running = null; // AbortController of the answer that is coming

function button(label, onClick) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = label;
  element.onclick = () => onClick(element);
  return element;
}

function setRunning(controller) {
  running = controller;
  $("send").setAttribute("aria-disabled", controller || !settings?.has_chat_template ? "true" : "false");
  $("chat-stop").setAttribute("aria-disabled", controller ? "false" : "true");
}

function stop() {
  running?.abort();
}

// ------------------------------------------------------------------------------- messages

function addMessage(role, content) {
  const message = {role, content, item: document.createElement("li"), answer: null};
  message.item.className = role;
  const head = document.createElement("div"), name = document.createElement("h2");
  head.className = "head";
  name.textContent = role === "user" ? "You" : "Model";
  head.append(name);
  if (role === "user") {
    head.append(button("Edit", () => edit(message)));
    const text = document.createElement("p");
    text.className = "said";
    text.textContent = content;
    message.item.append(head, text);
  } else {
    message.answer = new Answer(true);
    head.append(button("Again", () => again(message)), button("Edit", () => edit(message)),
      button("Copy", (element) => copyText(message.content, element)));
    message.item.append(head, message.answer.element);
  }
  messages.push(message);
  $("messages").append(message.item);
  return message;
}

// Drops this message and all after it.
function dropFrom(message) {
  const at = messages.indexOf(message);
  for (const gone of messages.splice(at)) gone.item.remove();
}

function again(message) {
  if (running) return;
  dropFrom(message);
  answer();
}

// A changed question is asked again, and what came after it is gone; a changed answer stays where it is, as if the
// model had said so.
function edit(message) {
  if (running || message.item.querySelector("form")) return;
  const form = document.createElement("form"), text = document.createElement("textarea"), row = document.createElement("p");
  const isQuestion = message.role === "user", shown = message.item.lastChild;
  text.value = message.content;
  text.rows = Math.min(12, message.content.split("\n").length + 1);
  text.setAttribute("aria-label", isQuestion ? "Your message" : "The model’s answer");
  const save = document.createElement("button");
  save.className = "main";
  save.textContent = isQuestion ? "Ask again" : "Save";
  const close = () => {
    form.remove();
    shown.hidden = false;
  };
  row.className = "buttons";
  row.append(save, button("Cancel", () => {
    close();
    message.item.querySelector("button").focus();
  }));
  form.append(text, row);
  form.onsubmit = (event) => {
    event.preventDefault();
    if (running) return;
    close();
    if (isQuestion) {
      dropFrom(message);
      addMessage("user", text.value);
      answer();
      $("message").focus();
      return;
    }
    message.content = text.value;
    message.answer.element.remove();
    message.answer = new Answer(true);
    message.answer.tokens.add(text.value, []);
    message.answer.finish();
    message.item.append(message.answer.element);
  };
  form.onkeydown = (event) => {
    if (event.key === "Escape") close();
  };
  shown.hidden = true;
  message.item.append(form);
  text.focus();
}

// --------------------------------------------------------------------------------- asking

function requestBody() {
  const system = $("system").value.trim();
  const said = messages.filter((m) => m.content !== "").map(({role, content}) => ({role, content}));
  const alternatives = wantedAlternatives();
  return {
    model: settings.model,
    messages: system ? [{role: "system", content: system}, ...said] : said,
    ...chosenFields(),
    ...(alternatives ? {logprobs: true, top_logprobs: alternatives} : {}),
    stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
  };
}

async function answer() {
  const path = "/v1/chat/completions", body = requestBody(), controller = new AbortController();
  showCurl($("chat"), path, body);
  const message = addMessage("assistant", "");
  message.item.scrollIntoView({block: "nearest"});
  setRunning(controller);
  try {
    await message.answer.run(path, body, controller.signal);
  } finally {
    message.content = message.answer.text;
    setRunning(null);
  }
}

function send() {
  const text = $("message").value;
  if (running || !settings?.has_chat_template || !text.trim()) return;
  $("message").value = "";
  addMessage("user", text);
  answer();
}

function reset() {
  stop();
  if (messages.length) dropFrom(messages[0]);
  $("announcer").replaceChildren();
  $("chat").querySelector(".curl").hidden = true;
  $("message").focus();
}

// ---------------------------------------------------------------------------------- set-up

export function setUpChat() {
  $("composer").onsubmit = (event) => {
    event.preventDefault();
    send();
  };
  $("message").onkeydown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  $("chat").addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop();
  });
  $("chat-stop").onclick = stop;
  $("reset").onclick = reset;
}

export function chatKnows(nextSettings) {
  settings = nextSettings;
  $("no-template").hidden = settings.has_chat_template;
  $("message").disabled = !settings.has_chat_template;
  setRunning(running);
}
