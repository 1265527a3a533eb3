// Pictures of a few shapes: SVG that is as wide as there is room, without text of its own. What a picture shows stands
// beside it in words, and in its label for those who do not see it.

const SVG = "http://www.w3.org/2000/svg";

export function add(parent, tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

export class Picture {
  // A figure with a title, an SVG of width x height units, and a line of words below it.
  constructor(parent, title, width, height) {
    this.figure = add(parent, "figure", "picture");
    add(this.figure, "h2", "", title);
    this.title = title;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("height", height);
    this.figure.append(this.svg);
    this.caption = add(this.figure, "figcaption");
    this.shapes = [];
    this.n = 0;
  }

  // Draws anew, with the elements of before: begin, shapes, end.
  begin() {
    this.n = 0;
  }

  shape(tag, className, attributes) {
    let element = this.shapes[this.n];
    if (!element || element.tagName !== tag) {
      const fresh = document.createElementNS(SVG, tag);
      if (element) element.replaceWith(fresh);
      else this.svg.append(fresh);
      element = this.shapes[this.n] = fresh;
    }
    this.n++;
    element.setAttribute("class", className);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  }

  bar(className, x, y, width, height) {
    this.shape("rect", className, {x, y, width: Math.max(0, width), height: Math.max(0, height)});
  }

  line(className, points) {
    this.shape("polyline", className, {points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ")});
  }

  end(label) {
    for (const gone of this.shapes.splice(this.n)) gone.remove();
    this.svg.setAttribute("aria-label", `${this.title}: ${label}`);
  }

  // [[class of its colour, words], ...]
  words(parts) {
    const text = parts.map((part) => part.join(" ")).join("|");
    if (text === this.written) return;
    this.written = text;
    this.caption.replaceChildren();
    for (const [className, words] of parts) {
      const part = add(this.caption, "span", "part");
      if (className) add(part, "i", `swatch ${className}`);
      part.append(words);
    }
  }
}
