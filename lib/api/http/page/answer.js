// One answer as it comes: its text, the tokens under pointer and arrow keys, how fast it was, and how it ended.

import {ask, AskError, copyText} from "./ask.js";
import {drawMarkdown} from "./markdown.js";
import {checkServer} from "./server.js";
import {describe, hideTip, showTip, TokenText, tokensOf} from "./tokens.js";

const UNLIKELY = Math.log(0.03);
const DRAW_PAUSE_MS = 40; // and never more than a fifth of the time

// What a screen reader says while an answer streams: sentence by sentence, since a text that is drawn again and again
// would be read again and again.
function announce(text) {
  const log = document.getElementById("announcer"), line = document.createElement("p");
  line.textContent = text;
  log.append(line);
  while (log.children.length > 50) log.firstChild.remove();
}

export class Answer {
  // isMarkdown: false shows the text as it is.
  constructor(isMarkdown) {
    this.isMarkdown = isMarkdown;
    this.tokens = new TokenText();
    this.drawn = [];
    this.said = 0; // of the text, to screen readers
    this.current = -1; // the token that arrow keys have reached
    this.nTokens = 0;
    this.begunAt = performance.now();

    this.element = document.createElement("div");
    this.element.className = "answer busy";
    this.body = document.createElement("div");
    this.body.className = isMarkdown ? "text markdown" : "text";
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "group");
    this.body.setAttribute("aria-label", "Answer; left and right arrow walk through its tokens");
    this.ending = document.createElement("p");
    this.ending.className = "ending";
    this.ending.hidden = true;
    this.figures = document.createElement("p");
    this.figures.className = "figures";
    this.figures.textContent = "waiting for the first token …";
    this.thoughts = document.createElement("details");
    this.thoughts.className = "thoughts";
    this.thoughts.hidden = true;
    this.thoughts.append(document.createElement("summary"), document.createElement("p"));
    this.thoughts.firstChild.textContent = "Thoughts";
    this.thoughts.lastChild.className = "thought";
    this.element.append(this.thoughts, this.body, this.ending, this.figures);

    this.body.addEventListener("pointerover", (event) => this.point(event.target));
    this.body.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.walk(-1); // a finger that is lifted wants to read on
    });
    this.body.addEventListener("blur", () => this.walk(-1));
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("click", (event) => {
      const button = event.target.closest("[data-copies]");
      if (button) copyText(button.closest("figure").querySelector("code").textContent, button);
    });
  }

  get text() {
    return this.tokens.text;
  }

  // Asks and shows what comes. Resolves when the answer has ended in whatever way; true: as it should.
  async run(path, body, signal) {
    let wasWhole = false;
    try {
      await ask(path, body, signal, (event) => this.take(event));
      wasWhole = true;
    } catch (error) {
      if (signal.aborted) this.end("stopped", "Stopped.");
      else if (error instanceof AskError) this.end(error.how, error.message);
      else throw error;
      if (error.how === "away" || error.how === "cut") checkServer();
    }
    this.finish();
    return wasWhole;
  }

  take(event) {
    const choice = event.choices?.[0];
    if (event.usage) this.nTokens = event.usage.completion_tokens;
    if (!choice) return;
    const text = choice.delta ? choice.delta.content : choice.text;
    const thought = choice.delta?.reasoning_content;
    if (thought) {
      this.thoughts.hidden = false;
      this.thoughts.lastChild.append(thought);
    }
    if (text || thought) {
      this.lastAt = performance.now();
      this.firstAt ??= this.lastAt;
    }
    this.tokens.add(text ?? "", thought ? [] : tokensOf(choice.logprobs));
    if (choice.finish_reason) this.reason = choice.finish_reason;
    this.drawSoon();
  }

  drawSoon() {
    if (this.timer) return;
    this.timer = setTimeout(() => this.draw(), Math.max(DRAW_PAUSE_MS, 4 * (this.drawMs ?? 0)));
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = 0;
    const begun = performance.now(), emit = (parent, start, end) => this.emit(parent, start, end);
    const wasInView = this.figures.getBoundingClientRect().top < innerHeight;
    if (this.isMarkdown) {
      this.drawn = drawMarkdown(this.body, this.text, emit, this.drawn);
    } else {
      this.body.replaceChildren();
      emit(this.body, 0, this.text.length);
    }
    this.showFigures();
    this.say(false);
    if (wasInView) this.figures.scrollIntoView({block: "nearest"});
    this.drawMs = performance.now() - begun;
  }

  emit(parent, start, end) {
    this.tokens.pieces(start, end, (from, to, index) => {
      const text = this.text.slice(from, to);
      if (index < 0) {
        parent.append(text);
        return;
      }
      const piece = document.createElement("span");
      piece.className = this.tokens.spans[index].tokens[0].logprob < UNLIKELY ? "token unlikely" : "token";
      piece.dataset.index = index;
      piece.textContent = text;
      parent.append(piece);
    });
  }

  say(isOver) {
    const rest = this.text.slice(this.said);
    const end = isOver ? rest.length : Math.max(rest.lastIndexOf(". "), rest.lastIndexOf("\n"), rest.lastIndexOf("? "), rest.lastIndexOf("! ")) + 1;
    if (end > 0 && rest.slice(0, end).trim()) announce(rest.slice(0, end).trim());
    this.said += end;
  }

  showFigures() {
    const parts = [];
    if (this.firstAt) parts.push(`first token ${((this.firstAt - this.begunAt) / 1000).toFixed(2)} s`);
    const seconds = (this.lastAt - this.firstAt) / 1000;
    const rate = (this.nTokens - 1) / seconds;
    if (this.nTokens > 1 && seconds > 0) parts.push(`${rate.toFixed(rate < 100 ? 1 : 0)} tokens/s`);
    if (this.nTokens) parts.push(`${this.nTokens} ${this.nTokens === 1 ? "token" : "tokens"}`);
    if (this.reason === "length") parts.push("ended by its length");
    if (this.body.querySelector(".unlikely")) parts.push("dotted: under 3 %");
    if (parts.length) this.figures.textContent = parts.join(" · ");
  }

  end(how, message) {
    this.ending.hidden = false;
    this.ending.className = `ending ${how}`;
    this.ending.textContent = message;
    announce(message);
  }

  finish() {
    this.draw();
    this.say(true);
    this.element.classList.remove("busy");
    this.figures.hidden = !this.firstAt;
  }

  // ---------------------------------------------------------------------------- the tooltip

  piecesOf(index) {
    return this.body.querySelectorAll(`[data-index="${index}"]`);
  }

  walk(index) {
    for (const piece of this.body.querySelectorAll(".current")) piece.classList.remove("current");
    this.current = index;
    const pieces = index < 0 ? [] : this.piecesOf(index);
    for (const piece of pieces) piece.classList.add("current");
    if (!pieces.length) hideTip();
    else showTip(this.tokens.spans[index], pieces[0].getClientRects()[0] ?? pieces[0].getBoundingClientRect());
  }

  point(target) {
    if (target.dataset.index !== undefined) this.walk(Number(target.dataset.index));
  }

  onKey(event) {
    if (event.key === "Escape" && this.current >= 0) {
      this.walk(-1);
      event.stopPropagation();
      return;
    }
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (event.target !== this.body || !step || !this.tokens.spans.length) return;
    event.preventDefault();
    let next = this.current + step;
    while (next >= 0 && next < this.tokens.spans.length && !this.piecesOf(next).length) next += step; // a mark's token
    if (next < 0 || next >= this.tokens.spans.length) return;
    this.walk(next);
    this.piecesOf(next)[0].scrollIntoView({block: "nearest"});
    announce(describe(this.tokens.spans[next]));
  }
}
