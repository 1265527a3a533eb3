// Markdown as nodes. No text ever becomes markup: texts are text nodes, and the only addresses that are followed are
// http, https and mailto. What is not understood stays as it was written.
//
// Each piece of text is named by its place in the source (start, end), so that whoever draws it can mark the tokens
// it was made of. Lines are such places, too: what is within a list or a quote is its lines without what stands before.

const DEPTH_MAX = 8; // of lists and quotes in each other, and of marks in each other

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+|$)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// No one writes such a line by hand, and what looks for its end again and again would take seconds.
const MARKED_LINE_MAX = 1000;

function marked(mark, text) {
  return text.length <= MARKED_LINE_MAX ? mark.exec(text) : null;
}

function linesOf(source) {
  const lines = [];
  for (let start = 0; start <= source.length;) {
    let end = source.indexOf("\n", start);
    if (end < 0) end = source.length;
    lines.push({start, end});
    start = end + 1;
  }
  return lines;
}

class Renderer {
  constructor(source, emit) {
    this.source = source;
    this.emit = emit; // (parent, start, end): adds this text of the source
  }

  string(line) {
    return this.source.slice(line.start, line.end);
  }

  // ------------------------------------------------------------------------------------ blocks

  // [{lines, draw}], one after another.
  blocks(lines) {
    const found = [];
    let at = 0;
    while (at < lines.length) {
      const text = this.string(lines[at]);
      if (!text.trim()) {
        at++;
        continue;
      }
      const block = this.fence(lines, at) ?? this.heading(lines, at) ?? this.rule(lines, at) ?? this.quote(lines, at) ??
        this.list(lines, at) ?? this.table(lines, at) ?? this.paragraph(lines, at);
      found.push({start: lines[at].start, end: lines[block.next - 1].end, draw: block.draw});
      at = block.next;
    }
    return found;
  }

  fence(lines, at) {
    const open = marked(FENCE, this.string(lines[at]));
    if (!open) return null;
    let end = at + 1;
    const isClose = (text) => /^ {0,3}(`{3,}|~{3,})\s*$/.test(text) && text.trim().startsWith(open[1]);
    while (end < lines.length && !isClose(this.string(lines[end]))) end++;
    const body = lines.slice(at + 1, end);
    return {next: Math.min(end + 1, lines.length), draw: (parent) => this.drawCode(parent, open[2], body)};
  }

  drawCode(parent, language, lines) {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    const pre = document.createElement("pre"), code = document.createElement("code"), copy = document.createElement("button");
    figure.className = "code";
    const name = document.createElement("span");
    name.textContent = language || "code";
    copy.type = "button";
    copy.textContent = "Copy";
    copy.dataset.copies = "code";
    caption.append(name, copy);
    pre.tabIndex = 0;
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", language ? `Code in ${language}` : "Code");
    lines.forEach((line, i) => {
      if (i) code.append("\n");
      this.emit(code, line.start, line.end);
    });
    pre.append(code);
    figure.append(caption, pre);
    parent.append(figure);
  }

  heading(lines, at) {
    const text = this.string(lines[at]), mark = HEADING.exec(text);
    if (!mark) return null;
    const end = text.replace(/\s+#*\s*$/, "").length;
    const line = {start: lines[at].start + Math.min(mark[0].length, end), end: lines[at].start + end};
    const tag = "h" + Math.min(6, mark[1].length + 2); // the page has the first two
    return {next: at + 1, draw: (parent) => this.inlineIn(parent, tag, [line])};
  }

  rule(lines, at) {
    if (!marked(RULE, this.string(lines[at]))) return null;
    return {next: at + 1, draw: (parent) => parent.append(document.createElement("hr"))};
  }

  quote(lines, at) {
    if (!QUOTE.test(this.string(lines[at]))) return null;
    const inner = [];
    let end = at;
    for (; end < lines.length; end++) {
      const mark = QUOTE.exec(this.string(lines[end]));
      if (!mark) break;
      inner.push({start: lines[end].start + mark[0].length, end: lines[end].end});
    }
    return {next: end, draw: (parent, depth) => this.drawWithin(parent, "blockquote", inner, depth)};
  }

  list(lines, at) {
    const first = ITEM.exec(this.string(lines[at]));
    if (!first) return null;
    const isOrdered = /\d/.test(first[2]), items = [];
    let end = at, isAfterBlank = false, indent = 0;
    for (; end < lines.length; end++) {
      const text = this.string(lines[end]), mark = marked(RULE, text) ? null : ITEM.exec(text);
      const isDeeper = items.length > 0 && text.search(/\S/) >= indent;
      if (!text.trim()) {
        isAfterBlank = true;
        if (items.length) items[items.length - 1].push({start: lines[end].end, end: lines[end].end});
        continue;
      }
      if (isDeeper) {
        items[items.length - 1].push({start: lines[end].start + indent, end: lines[end].end});
      } else if (mark && /\d/.test(mark[2]) === isOrdered) {
        indent = mark[1].length + mark[2].length + Math.min(mark[3].length || 1, 4);
        items.push([{start: Math.min(lines[end].start + indent, lines[end].end), end: lines[end].end}]);
      } else if (!mark && !isAfterBlank && !this.interrupts(text)) {
        items[items.length - 1].push(lines[end]); // a paragraph of the item goes on
      } else {
        break;
      }
      isAfterBlank = false;
    }
    const draw = (parent, depth) => {
      const list = document.createElement(isOrdered ? "ol" : "ul");
      if (isOrdered) list.start = parseInt(first[2], 10);
      for (const item of items) this.drawWithin(list, "li", item, depth);
      parent.append(list);
    };
    return {next: end, draw};
  }

  interrupts(text) {
    return marked(FENCE, text) || HEADING.test(text) || marked(RULE, text) || QUOTE.test(text);
  }

  cells(line) {
    const cells = [];
    let start = line.start;
    const push = (end) => {
      let from = start, to = end;
      while (from < to && /\s/.test(this.source[from])) from++;
      while (to > from && /\s/.test(this.source[to - 1])) to--;
      cells.push({start: from, end: to});
      start = end + 1;
    };
    for (let i = line.start; i < line.end; i++) {
      if (this.source[i] === "\\") i++;
      else if (this.source[i] === "|") push(i);
    }
    push(line.end);
    if (cells.length && cells[0].start === cells[0].end) cells.shift();
    if (cells.length && cells[cells.length - 1].start === cells[cells.length - 1].end) cells.pop();
    return cells;
  }

  table(lines, at) {
    if (at + 1 >= lines.length || !this.string(lines[at]).includes("|")) return null;
    const rule = this.string(lines[at + 1]);
    if (!rule.includes("-") || !marked(TABLE_RULE, rule)) return null;
    let end = at + 2;
    while (end < lines.length && this.string(lines[end]).includes("|")) end++;
    const draw = (parent) => {
      const box = document.createElement("div"), table = document.createElement("table");
      box.className = "table";
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Table");
      [lines[at], ...lines.slice(at + 2, end)].forEach((line, i) => {
        const row = table.insertRow();
        for (const cell of this.cells(line)) this.inlineIn(row, i ? "td" : "th", [cell]);
      });
      box.append(table);
      parent.append(box);
    };
    return {next: end, draw};
  }

  paragraph(lines, at) {
    let end = at + 1;
    while (end < lines.length) {
      const text = this.string(lines[end]);
      if (!text.trim() || this.interrupts(text) || ITEM.test(text)) break;
      end++;
    }
    return {next: end, draw: (parent) => this.inlineIn(parent, "p", lines.slice(at, end))};
  }

  drawWithin(parent, tag, lines, depth) {
    const element = document.createElement(tag);
    if (depth < DEPTH_MAX) for (const block of this.blocks(lines)) block.draw(element, depth + 1);
    else this.inlineIn(element, "p", lines);
    parent.append(element);
  }

  // ------------------------------------------------------------------------------------ inline

  inlineIn(parent, tag, lines) {
    const element = document.createElement(tag);
    // The lines as one text, and where each of its characters is in the source.
    const places = [];
    let text = "";
    for (const line of lines) {
      if (text) {
        text += "\n";
        places.push(line.start);
      }
      for (let i = line.start; i < line.end; i++) places.push(i);
      text += this.string(line);
    }
    this.inline(element, text, places, 0, text.length, 0);
    parent.append(element);
  }

  // Adds text[from..to]; a line's end is no piece of a token.
  plain(parent, text, places, from, to) {
    while (from < to) {
      let end = text.indexOf("\n", from);
      if (end < 0 || end > to) end = to;
      if (end > from) this.emit(parent, places[from], places[end - 1] + 1);
      if (end < to) parent.append("\n");
      from = end + 1;
    }
  }

  inline(parent, text, places, from, to, depth) {
    const hopeless = new Set(); // marks that nothing closes from here on: they are looked for once
    let at = from, done = from;
    const flush = () => this.plain(parent, text, places, done, at);
    while (at < to) {
      const piece = this.mark(text, at, to, hopeless, depth);
      if (!piece) {
        at++;
        continue;
      }
      flush();
      piece.draw(parent, places);
      at = done = piece.end;
    }
    flush();
  }

  // What begins at text[at], if it is more than a character: {end, draw}.
  mark(text, at, to, hopeless, depth) {
    const c = text[at];
    if (c === "\\" && at + 1 < to && /[!-/:-@[-`{-~]/.test(text[at + 1])) {
      return {end: at + 2, draw: (parent, places) => this.plain(parent, text, places, at + 1, at + 2)};
    }
    if (c === "`") return this.code(text, at, to, hopeless);
    if (c === "!" && text[at + 1] === "[") return this.link(text, at + 1, to, depth); // pictures are not fetched
    if (c === "[") return this.link(text, at, to, depth);
    if (c === "h" || c === "<") return this.address(text, at, to);
    if ((c === "*" || c === "_" || c === "~") && depth < DEPTH_MAX) return this.emphasis(text, at, to, hopeless, depth);
    return null;
  }

  code(text, at, to, hopeless) {
    let n = 1;
    while (at + n < to && text[at + n] === "`") n++;
    const fence = "`".repeat(n);
    const literal = {end: at + n, draw: (parent, places) => this.plain(parent, text, places, at, at + n)};
    if (hopeless.has(fence)) return literal;
    let end = at + n;
    for (;;) {
      end = text.indexOf(fence, end);
      if (end < 0 || end + n > to) {
        hopeless.add(fence);
        return literal;
      }
      let run = n;
      while (text[end + run] === "`") run++;
      if (run === n) break;
      end += run;
    }
    const draw = (parent, places) => {
      const code = document.createElement("code");
      this.plain(code, text, places, at + n, end);
      parent.append(code);
    };
    return {end: end + n, draw};
  }

  link(text, at, to, depth) {
    const found = /^\[([^\][\n]{0,500})\]\(([^\s()]{1,2000})(?:\s+"[^"\n]{0,500}")?\)/.exec(text.slice(at, Math.min(to, at + 3100)));
    const href = found && safeAddress(found[2]);
    if (!href) return null;
    const draw = (parent, places) => {
      const a = anchor(href);
      this.inline(a, text, places, at + 1, at + 1 + found[1].length, Math.max(depth + 1, DEPTH_MAX - 1));
      if (!a.textContent) a.textContent = found[2];
      parent.append(a);
    };
    return {end: at + found[0].length, draw};
  }

  address(text, at, to) {
    if (at > 0 && /[\w]/.test(text[at - 1])) return null;
    const found = /^<?(https?:\/\/[^\s<>"'`]{1,2000})/.exec(text.slice(at, Math.min(to, at + 2010)));
    if (!found || (text[at] === "<" && text[at + found[0].length] !== ">")) return null;
    const isQuoted = text[at] === "<", from = at + (isQuoted ? 1 : 0);
    const length = isQuoted ? found[1].length : found[1].replace(/[.,;:!?)\]*_~]+$/, "").length;
    const href = safeAddress(text.slice(from, from + length));
    if (!href) return null;
    const draw = (parent, places) => {
      const a = anchor(href);
      this.plain(a, text, places, from, from + length);
      parent.append(a);
    };
    return {end: from + length + (isQuoted ? 1 : 0), draw};
  }

  emphasis(text, at, to, hopeless, depth) {
    const c = text[at];
    const isDouble = text[at + 1] === c;
    if (c === "~" && !isDouble) return null;
    const marks = isDouble ? [c + c, ...(c === "~" ? [] : [c])] : [c];
    if (text.startsWith(c.repeat(3), at) && c !== "~") marks.unshift(c.repeat(3));
    for (const mark of marks) {
      const end = this.closing(text, at, to, mark, hopeless);
      if (end < 0) continue;
      const draw = (parent, places) => {
        const outer = document.createElement(c === "~" ? "s" : mark.length > 1 ? "strong" : "em");
        const inner = mark.length === 3 ? outer.appendChild(document.createElement("em")) : outer;
        this.inline(inner, text, places, at + mark.length, end, depth + 1);
        parent.append(outer);
      };
      return {end: end + mark.length, draw};
    }
    let run = 1;
    while (at + run < to && text[at + run] === c) run++;
    return {end: at + run, draw: (parent, places) => this.plain(parent, text, places, at, at + run)};
  }

  closing(text, at, to, mark, hopeless) {
    const isSpace = (i) => i < 0 || i >= text.length || /\s/.test(text[i]);
    const isWord = (i) => i >= 0 && i < text.length && /[\p{L}\p{N}]/u.test(text[i]);
    const from = at + mark.length;
    if (hopeless.has(mark) || from >= to || isSpace(from) || (mark[0] === "_" && isWord(at - 1))) return -1;
    for (let i = text.indexOf(mark, from + 1); i >= 0 && i + mark.length <= to; i = text.indexOf(mark, i + 1)) {
      let run = mark.length;
      while (text[i + run] === mark[0]) run++;
      const isClose = !isSpace(i - 1) && text[i - 1] !== "\\" && !(mark[0] === "_" && isWord(i + run));
      if (isClose && (run === mark.length || (run === 3 && mark.length < 3))) return run === 3 ? i + run - mark.length : i;
      i += run - 1;
    }
    hopeless.add(mark);
    return -1;
  }
}

function safeAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function anchor(href) {
  const a = document.createElement("a");
  a.href = href;
  a.rel = "noopener noreferrer nofollow";
  a.target = "_blank";
  return a;
}

// Draws `source` into `parent`. What `drawn`, of the call before, has of it already stays as it is: in a stream only
// the last block changes. Returns what the next call wants as `drawn`.
export function drawMarkdown(parent, source, emit, drawn = []) {
  const renderer = new Renderer(source, emit);
  const blocks = renderer.blocks(linesOf(source));
  let n = 0;
  while (n < drawn.length - 1 && n < blocks.length && drawn[n].start === blocks[n].start && drawn[n].end === blocks[n].end) n++;
  for (const old of drawn.slice(n)) old.node.remove();
  const kept = drawn.slice(0, n);
  for (const block of blocks.slice(n)) {
    const holder = document.createDocumentFragment();
    block.draw(holder, 0);
    const node = holder.firstChild;
    parent.append(node);
    kept.push({start: block.start, end: block.end, node});
  }
  return kept;
}
