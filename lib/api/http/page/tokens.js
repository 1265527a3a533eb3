// A text and the tokens it was made of: which token is where, and what else might have come there. Tokens are bytes,
// and characters may be several of them: the text's bytes are compared with the tokens'.

const encoder = new TextEncoder();

// `name` is a token as it is written in an answer: a text, or bytes:\xe2\x80.
function bytesOfName(name) {
  if (!/^bytes:(\\x[0-9a-f]{2})+$/.test(name)) return encoder.encode(name);
  return Uint8Array.from(name.slice("bytes:".length).split("\\x").slice(1), (hex) => parseInt(hex, 16));
}

// The two forms in which log-probabilities come, as one.
export function tokensOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map((t) => ({
      name: t.token,
      bytes: t.bytes ? Uint8Array.from(t.bytes) : bytesOfName(t.token),
      logprob: t.logprob,
      others: t.top_logprobs.map((o) => ({name: o.token, logprob: o.logprob})),
    }));
  }
  return logprobs.tokens.map((name, i) => ({
    name,
    bytes: bytesOfName(name),
    logprob: logprobs.token_logprobs[i],
    // Objects put keys like "7" first, whatever their rank.
    others: Object.entries(logprobs.top_logprobs?.[i] ?? {}).map(([other, logprob]) => ({name: other, logprob}))
      .sort((a, b) => b.logprob - a.logprob),
  }));
}

export class TokenText {
  constructor() {
    this.text = "";
    this.spans = []; // {start, end, tokens} in the text, in order; several tokens may share one character
    this.bytes = []; // of the text, from the first that has no token yet
    this.ends = []; // where the character of each of these bytes ends in the text
    this.at = 0; // in the text: all before it has its tokens
    this.waiting = []; // tokens whose text has not come: it may become part of a stop string
  }

  add(text, tokens) {
    for (const character of text) {
      this.text += character;
      for (const byte of encoder.encode(character)) {
        this.bytes.push(byte);
        this.ends.push(this.text.length);
      }
    }
    this.waiting.push(...tokens);
    while (this.waiting.length && this.place(this.waiting[0])) this.waiting.shift();
  }

  // False: the text of this token is still to come.
  place(token) {
    const candidates = [token.bytes];
    if (token.bytes[0] === 32) candidates.push(token.bytes.subarray(1)); // a text's first space may be left out
    for (const bytes of candidates) {
      const n = Math.min(bytes.length, this.bytes.length);
      let same = 0;
      while (same < n && bytes[same] === this.bytes[same]) same++;
      if (same === bytes.length) {
        this.take(same, token);
        return true;
      }
      if (same === this.bytes.length) return false;
    }
    const isReplaced = this.bytes[0] === 0xef && this.bytes[1] === 0xbf && this.bytes[2] === 0xbd; // U+FFFD
    this.take(isReplaced ? 3 : 0, token); // else it is left out of the text, as special tokens are
    return true;
  }

  take(nBytes, token) {
    const start = this.at, last = this.spans[this.spans.length - 1];
    if (nBytes) this.at = this.ends[nBytes - 1];
    this.bytes.splice(0, nBytes);
    this.ends.splice(0, nBytes);
    if (this.at > start) this.spans.push({start, end: this.at, tokens: [token]});
    else if (last && nBytes) last.tokens.push(token);
  }

  // Calls emit(start, end, index of the span or -1) for the pieces of start..end.
  pieces(start, end, emit) {
    let low = 0, high = this.spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[middle].end <= start) low = middle + 1;
      else high = middle;
    }
    for (let i = low; start < end && i < this.spans.length && this.spans[i].start < end; i++) {
      const span = this.spans[i];
      if (span.start > start) emit(start, span.start, -1);
      const from = Math.max(start, span.start), to = Math.min(end, span.end);
      emit(from, to, i);
      start = to;
    }
    if (start < end) emit(start, end, -1);
  }
}

// ------------------------------------------------------------------------------ the tooltip

export function percent(logprob) {
  const p = 100 * Math.exp(logprob);
  return (p >= 99.95 ? "100" : p >= 10 ? p.toFixed(0) : p >= 0.1 ? p.toFixed(1) : "< 0.1") + " %";
}

// White space at a token's ends is part of it, and would not be seen.
export function visible(name) {
  return "“" + name.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ +| +$/g, (s) => "·".repeat(s.length)) + "”";
}

export function describe(span) {
  return span.tokens.map((token) => {
    const others = token.others.filter((o) => o.name !== token.name).map((o) => `${visible(o.name)} ${percent(o.logprob)}`);
    return `${visible(token.name)} ${percent(token.logprob)}` + (others.length ? `; instead ${others.join(", ")}` : "");
  }).join(". ");
}

function row(name, logprob, isChosen) {
  const item = document.createElement("li"), text = document.createElement("code"), share = document.createElement("span");
  const meter = document.createElement("i");
  text.textContent = visible(name);
  share.textContent = percent(logprob);
  meter.style.width = `${(100 * Math.exp(logprob)).toFixed(1)}%`;
  if (isChosen) item.className = "chosen";
  item.append(text, share, meter);
  return item;
}

export function showTip(span, rect) {
  const tip = document.getElementById("tip");
  tip.replaceChildren();
  for (const token of span.tokens) {
    const list = document.createElement("ol");
    list.append(row(token.name, token.logprob, true));
    for (const other of token.others) if (other.name !== token.name) list.append(row(other.name, other.logprob, false));
    tip.append(list);
  }
  tip.hidden = false;
  const left = Math.max(8, Math.min(rect.left, innerWidth - tip.offsetWidth - 8));
  const below = rect.bottom + 6, isBelow = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${isBelow ? below : Math.max(8, rect.top - tip.offsetHeight - 6)}px`;
}

export function hideTip() {
  document.getElementById("tip").hidden = true;
}
