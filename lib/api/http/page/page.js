// The page: views, colours, key, and what the server says of itself. Everything it shows is text of text nodes.

import {headers, key} from "./ask.js";
import {chatKnows, setUpChat} from "./chat.js";
import {completionKnows, setUpCompletion} from "./completion.js";
import {buildFields, fieldsAreFor} from "./fields.js";
import {retryLive, showLive} from "./live.js";
import {checkServer, onServer} from "./server.js";

const $ = (id) => document.getElementById(id);
const VIEWS = ["chat", "completion", "live"];
const SETTINGS_PAUSE_MS = 2000;

let settingsText = ""; // as they came last
let shown = VIEWS[0];

// ------------------------------------------------------------------------------------- views

function show(view) {
  shown = view;
  for (const name of VIEWS) {
    const tab = $("tab-" + name), isShown = name === view;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    $(name).hidden = !isShown;
  }
  $("settings").hidden = view === "live";
  fieldsAreFor(view);
  showLive(view === "live");
}

// By its tab. A navigation to the address would take the focus from the tab.
function choose(view) {
  history.replaceState(null, "", "#" + view);
  show(view);
}

function setUpViews() {
  for (const name of VIEWS) $("tab-" + name).onclick = () => choose(name);
  document.querySelector("[role=tablist]").onkeydown = (event) => {
    const at = VIEWS.findIndex((name) => $("tab-" + name) === document.activeElement);
    const next = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1}[event.key];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    const name = VIEWS[(next + VIEWS.length) % VIEWS.length];
    $("tab-" + name).focus();
    choose(name);
  };
  addEventListener("hashchange", showNamed);
}

function showNamed() {
  const named = location.hash.slice(1);
  if (VIEWS.includes(named)) show(named);
}

// ----------------------------------------------------------------------------------- colours

function setUpColours() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("weft-colours");
  } catch {
    // not allowed: the choice lasts until the page is left
  }
  const apply = () => {
    if (chosen) document.documentElement.dataset.colours = chosen;
    $("theme").setAttribute("aria-pressed", String(chosen ? chosen === "dark" : system.matches));
  };
  $("theme").onclick = () => {
    chosen = $("theme").getAttribute("aria-pressed") === "true" ? "light" : "dark";
    apply();
    try {
      localStorage.setItem("weft-colours", chosen);
    } catch {
      // as above
    }
  };
  system.addEventListener("change", apply);
  apply();
}

// --------------------------------------------------------------------- the server, and its words

async function loadSettings() {
  const text = await (await fetch("/page/settings.json", {cache: "no-store"})).text();
  if (text === settingsText) return;
  const settings = JSON.parse(text), isFirst = !settingsText;
  settingsText = text;
  $("model").textContent = settings.model;
  $("version").textContent = settings.version;
  $("key-note").textContent = settings.needs_key ? "needed here; kept until this tab is closed" : "not needed here";
  if (settings.needs_key) document.querySelector("header").append(document.querySelector(".key"));
  document.title = `${settings.model} – weft`;
  buildFields($("fields"), settings);
  fieldsAreFor(shown);
  chatKnows(settings);
  completionKnows(settings);
  if (isFirst && !location.hash && !settings.has_chat_template) show("completion");
}

function keepLoading() {
  loadSettings().catch(() => setTimeout(keepLoading, SETTINGS_PAUSE_MS));
}

function showServer(state, reason, was) {
  const words = {
    well: was && was !== "well" ? "serving again" : "serving",
    ill: `not serving: ${reason}`,
    away: "the server does not answer; this page goes on trying",
  };
  $("server").className = `server ${state}`;
  $("server").textContent = words[state];
  if (state !== "away") keepLoading();
}

// A link cannot carry the key.
async function showReply(path) {
  const pre = $("reply").querySelector("pre");
  $("reply-title").textContent = path;
  pre.textContent = "…";
  $("reply").showModal();
  try {
    const response = await fetch(path, {headers: headers(), cache: "no-store"});
    const text = await response.text();
    const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
    pre.textContent = isJson ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    pre.textContent = "The server does not answer.";
    checkServer();
  }
}

function setUpWords() {
  for (const link of document.querySelectorAll("footer nav a")) {
    link.onclick = (event) => {
      event.preventDefault();
      showReply(link.getAttribute("href"));
    };
  }
  document.querySelector(".key").onsubmit = (event) => event.preventDefault();
  $("key").value = key.get();
  $("key").oninput = () => {
    key.set($("key").value);
    retryLive();
  };
}

setUpColours();
setUpViews();
setUpWords();
setUpChat();
setUpCompletion();
if (innerWidth < 900) document.querySelector("#settings details").open = false; // it would stand in the way
show("chat");
showNamed();
onServer(showServer);
checkServer();
