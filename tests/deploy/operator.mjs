// Checks documents of the Prometheus operator's kinds, a JSON list on standard input, and prints their kinds.
// The schemas say what known fields look like; which fields there are is read from the types beside them.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const kinds = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
const types = join(dirname(fileURLToPath(import.meta.url)), "node_modules", kinds);

/** The fields of an interface, with those that it extends. */
function fields(name) {
  const text = readFileSync(join(types, `${name}.d.ts`), "utf8");
  const names = [...text.matchAll(/^ {4}"(\w+)"\??:/gm)].map((match) => match[1]);
  const base = text.match(/extends IComGithub\w+MonitoringV1(\w+) \{/);
  return new Set([...names, ...(base ? fields(base[1]) : [])]);
}

function known(type, value) {
  for (const key of Object.keys(value)) {
    if (!fields(type).has(key)) throw new Error(`${type} has no field ${key}`);
  }
}

for (const document of JSON.parse(readFileSync(0, "utf8"))) {
  const { [document.kind]: Kind } = await import(`${kinds}/${document.kind}`);
  new Kind(document).validate();
  known(`${document.kind}Spec`, document.spec);
  for (const endpoint of document.spec.podMetricsEndpoints ?? []) known("PodMetricsEndpoint", endpoint);
  for (const group of document.spec.groups ?? []) {
    known("RuleGroup", group);
    for (const rule of group.rules) known("Rule", rule);
  }
  console.log(document.kind);
}
