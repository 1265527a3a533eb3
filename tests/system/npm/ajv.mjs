// Judges texts by JSON Schemas with the ajv package of npm: node ajv.mjs FILE, a JSON list of {schema, draft, texts};
// prints a JSON list of lists: null for a text that fits, else why it does not; null in place of a list: no verdict.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import Ajv from "ajv";
import Ajv2019 from "ajv/dist/2019.js";
import Ajv2020 from "ajv/dist/2020.js";
import Ajv4 from "ajv-draft-04";
import addFormats from "ajv-formats";

const classes = { "4": Ajv4, "2019-09": Ajv2019, "2020-12": Ajv2020 };
const draft6 = createRequire(import.meta.url)("ajv/dist/refs/json-schema-draft-06.json");
// Multiples are of doubles here: 0.3 is to be one of 0.1. Annotations and what strict mode forbids are no errors.
const options = { strict: false, validateFormats: true, multipleOfPrecision: 9, logger: false };

function complaints({ schema, draft, texts }) {
  const of = classes[draft] ?? Ajv;
  const ajv = addFormats(new (of.default ?? of)(options));
  if (draft === "6") ajv.addMetaSchema(draft6);
  let fits;
  try {
    fits = ajv.compile(schema);
  } catch {
    return null;
  }
  return texts.map((text) => (fits(JSON.parse(text)) ? null : ajv.errorsText(fits.errors)));
}

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2])).map(complaints)));
