// Requests of this page: the key they carry, streams as they come, and the same request for a shell.

let keyNow = null; // where the browser keeps nothing for pages, until the page is left

export const key = {
  get() {
    try {
      keyNow ??= sessionStorage.getItem("weft-key");
    } catch {
      // not allowed
    }
    return keyNow || "";
  },
  set(text) {
    keyNow = text;
    try {
      if (text) sessionStorage.setItem("weft-key", text);
      else sessionStorage.removeItem("weft-key");
    } catch {
      // not allowed
    }
  },
};

export function headers(more) {
  return key.get() ? {Authorization: "Bearer " + key.get(), ...more} : {...more};
}

// Why an answer is not whole. how: "refused" (the server said why), "away" (no answer at all), "cut" (it broke off).
export class AskError extends Error {
  constructor(how, message) {
    super(message);
    this.how = how;
  }
}

// What an answer with an error status says, whoever wrote it: a proxy's HTML is not shown.
async function refusal(response) {
  let message = "";
  try {
    message = (await response.json()).error.message;
  } catch {
    // not ours; the status has to do
  }
  message ||= `The server answered ${response.status} ${response.statusText}.`;
  if (response.status === 401) message += ". The page has a field for it: “API key”.";
  return new AskError("refused", message);
}

// The events of a response's body, parsed, in the order of their coming. Returns true after [DONE].
export async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return false;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      const data = event.slice(6);
      if (data === "[DONE]") return true;
      onEvent(JSON.parse(data));
    }
  }
}

// POSTs `body` and gives its stream's events to `onEvent`. Throws an AskError, or what `signal` was aborted with.
export async function ask(path, body, signal, onEvent) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: headers({"Content-Type": "application/json"}),
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    signal.throwIfAborted();
    throw new AskError("away", "The server does not answer.");
  }
  if (!response.ok) throw await refusal(response);
  let isWhole = false;
  try {
    isWhole = await readEvents(response, (event) => {
      if (event.error) throw new AskError("refused", event.error.message);
      onEvent(event);
    });
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof AskError) throw error;
  }
  if (!isWhole) throw new AskError("cut", "The connection broke off here: this answer is not whole.");
}

// As one word of a POSIX shell, whatever is in it.
export function shellWord(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

// The line that asks the same. The key is a variable of the shell: the line may be shown to others.
export function curlLine(path, body) {
  const lines = ["curl -N " + shellWord(location.origin + path), "-H 'Content-Type: application/json'"];
  if (key.get()) lines.push('-H "Authorization: Bearer $WEFT_API_KEY"');
  lines.push("-d " + shellWord(JSON.stringify(body)));
  return lines.join(" \\\n  ");
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed, or a page that did not come over HTTPS
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  const label = button.textContent;
  if (label === "Copied") return;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1500);
}

export function showCurl(panel, path, body) {
  const box = panel.querySelector(".curl");
  const pre = box.querySelector("pre");
  pre.textContent = curlLine(path, body);
  box.hidden = false;
  box.querySelector("button").onclick = (event) => copyText(pre.textContent, event.currentTarget);
}
