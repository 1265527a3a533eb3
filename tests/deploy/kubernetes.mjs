// Reads YAML and judges it. kubernetes.mjs MODE FILE...
//
//   manifests   each document is a Kubernetes object: valid by the schemas that Kubernetes publishes (the packages
//               kubernetes-models have them as functions), and without a field that these do not know. Prints them as
//               JSON.
//   yaml        each file is YAML, of one document or several. Prints them as JSON.

import {readFileSync} from "node:fs";
import {parseAllDocuments} from "yaml";

const [mode, ...files] = process.argv.slice(2);
const CUSTOM = "@kubernetes-models/prometheus-operator";

function documents(file) {
  return parseAllDocuments(readFileSync(file, "utf8")).map((document) => {
    if (document.errors.length || document.warnings.length)
      throw new Error(`${file}: ${[...document.errors, ...document.warnings].join("; ")}`);
    return document.toJS();
  });
}

// An object that notes which of its fields have been looked at. A schema forbids no unknown field, but does not look at
// it either.
function watched(value, path, seen) {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, key) {
      if (typeof key === "symbol" || !Object.hasOwn(target, key)) return target[key];
      seen.add(`${path}/${key}`);
      return watched(target[key], `${path}/${key}`, seen);
    },
  });
}

function unseen(value, path, seen) {
  if (value === null || typeof value !== "object") return [];
  return Object.keys(value).flatMap((key) =>
    seen.has(`${path}/${key}`) ? unseen(value[key], `${path}/${key}`, seen) : [`${path}/${key}`]);
}

async function check(object, file) {
  const what = `${file}: ${object.apiVersion} ${object.kind}`;
  const source = object.apiVersion.startsWith("monitoring.coreos.com/") ? CUSTOM : "kubernetes-models";
  const module = await import(`${source}/${object.apiVersion}/${object.kind}`).catch((error) => {
    throw new Error(`${what}: there is no such kind: ${error.message}`);
  });
  const seen = new Set();
  try {
    module[object.kind].prototype.validate.call(watched(object, "", seen));
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  const unknown = unseen(object, "", seen);
  if (unknown.length) throw new Error(`${what}: unknown fields: ${unknown.join(" ")}`);
}

const all = [];
for (const file of files) {
  for (const document of documents(file)) {
    if (mode === "manifests") await check(document, file);
    all.push(document);
  }
}
console.log(JSON.stringify(all));
