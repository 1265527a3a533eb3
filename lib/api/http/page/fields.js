// The settings of a request, with the server's own numbers as they come in settings.json. Only what differs from them
// is sent.

const ALTERNATIVES = 5;
export const COMPLETION_TOKENS = 200; // the API's 16 is too short to be read

let maxTokens = {}; // view: what an empty field means in it
let fields = []; // {name, input, usual: number, or null where an empty field means the server's choice}

// 0.8 is 0.800000011920929 in the server's arithmetic.
function short(number) {
  return Number(number.toPrecision(6));
}

function title(name) {
  return (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ");
}

function addField(form, name, label, input) {
  const box = document.createElement("div");
  const text = document.createElement("label");
  input.id = "field-" + name;
  text.htmlFor = input.id;
  text.textContent = label;
  box.append(text, input);
  form.append(box);
  return input;
}

function numberInput({least, most, step, value, help, placeholder}) {
  const input = document.createElement("input");
  input.type = "number";
  if (least !== undefined) input.min = least;
  if (most !== undefined) input.max = most;
  input.step = step;
  input.value = value ?? "";
  if (help) input.title = help;
  if (placeholder) input.placeholder = placeholder;
  return input;
}

export function buildFields(form, settings) {
  form.replaceChildren();
  fields = [];
  maxTokens = {chat: settings.max_new_tokens ? String(settings.max_new_tokens) : "no limit", completion: String(COMPLETION_TOKENS)};
  const most = numberInput({least: 1, step: 1, help: "most tokens of the answer, as far as the context has room"});
  addField(form, "max_tokens", "Max tokens", most);
  fields.push({name: "max_tokens", input: most, usual: null});
  for (const knob of settings.sampling) {
    const usual = short(knob.default);
    const input = numberInput({
      least: knob.least, most: knob.most, step: knob.is_whole ? 1 : "any", value: usual, help: knob.help,
    });
    addField(form, knob.name, title(knob.name), input);
    fields.push({name: knob.name, input, usual});
  }
  const seed = numberInput({most: Number.MAX_SAFE_INTEGER, step: 1, placeholder: "drawn", help: "the same seed gives the same answer"});
  addField(form, "seed", "Seed", seed);
  fields.push({name: "seed", input: seed, usual: null});

  const alternatives = numberInput({
    least: 0, most: settings.max_logprobs, step: 1, value: Math.min(ALTERNATIVES, settings.max_logprobs),
    help: "tokens that might have come instead, for each token of the answer; 0: no probabilities",
  });
  addField(form, "alternatives", "Alternatives", alternatives);

  const stop = document.createElement("textarea");
  stop.rows = 2;
  stop.title = `up to ${settings.max_stops} texts that end the answer; \\n is a line's end`;
  addField(form, "stop", "Stop, one per line", stop).parentElement.className = "wide";

  const reset = document.createElement("button");
  reset.type = "button";
  reset.textContent = "The server’s defaults";
  reset.onclick = () => form.reset();
  for (const input of form.querySelectorAll("input")) input.defaultValue = input.value;
  form.append(reset);
  form.onsubmit = (event) => event.preventDefault();
}

// The two views share the fields, and an empty one may mean something else in each.
export function fieldsAreFor(view) {
  const input = document.getElementById("field-max_tokens");
  if (input && maxTokens[view]) input.placeholder = maxTokens[view];
}

// Text that is no number stays text: the server says what is wrong with it.
function valueOf(input) {
  return input.value.trim() === "" ? null : Number(input.value);
}

// The fields that differ, ready for a request's body.
export function chosenFields() {
  const chosen = {};
  for (const {name, input, usual} of fields) {
    const value = valueOf(input);
    if (value !== null && value !== usual) chosen[name] = value;
  }
  const stops = document.getElementById("field-stop").value.split("\n").filter((line) => line !== "");
  if (stops.length) chosen.stop = stops.map((line) => line.replaceAll("\\n", "\n"));
  return chosen;
}

// How many alternatives are wanted for each token; 0: none, and no probabilities.
export function wantedAlternatives() {
  return valueOf(document.getElementById("field-alternatives")) || 0;
}
