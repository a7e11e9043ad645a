// A change of the number of partitions: how far it has come, who holds it up, and those before it.

import { byId, clock, counted, fill, firstOf, make, number, say } from "./text.js";

const part = byId("rescale");
const phases = byId("rescale-phases");
const PHASES = ["Preparing", "Opening", "Draining", "Settled"];

const countOf = ({ from_count: from, to_count: to }) => `${from} → ${counted(to, "partition")}`;

export function show({ rescale }) {
  part.hidden = rescale === undefined;
  if (part.hidden) return;
  say(byId("rescale-summary"), `${sentence(rescale)}.`);
  const reached = PHASES.indexOf(rescale.phase);
  const isAborted = reached < 0;
  const names = isAborted ? ["Preparing", "Aborted"] : PHASES;
  fill(phases, names, () => make("li"), (item, name, at) => {
    const isNow = name === rescale.phase;
    const classes = isNow ? "now" : isAborted || at < reached ? "done" : "";
    if (item.className !== classes) item.className = classes;
    if (isNow) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
    say(item, name);
  });
  const earlier = [...rescale.earlier].reverse();
  byId("rescale-earlier").hidden = !earlier.length;
  say(byId("rescale-earlier"), `Before: ${earlier.map(past).join("; ")}.`);
}

/** Leave nothing of what a token has shown. */
export function forget() {
  part.hidden = true;
  phases.replaceChildren();
  for (const name of ["rescale-summary", "rescale-earlier"]) say(byId(name), "");
}

function sentence(rescale) {
  const parts = [`${countOf(rescale)}, generation ${rescale.generation}`];
  if (rescale.started_at_ms) parts.push(`begun at ${clock(new Date(rescale.started_at_ms))}`);
  parts.push(`${number(rescale.moved_percent)} % of the keys move`);
  if (rescale.phase === "Opening") {
    parts.push(`${rescale.sealed} of ${rescale.to_seal} sealed, ${rescale.opened} of ${rescale.to_open} opened`);
  }
  for (const { group, partitions, messages } of rescale.held) {
    parts.push(`group ${group} has ${counted(messages, "older message")} to acknowledge before ` +
      `${counted(partitions, "new partition")}`);
  }
  if (rescale.retiring) parts.push(`${counted(rescale.retiring, "partition")} without slots`);
  if (rescale.waits_for.length) parts.push(`waits for ${firstOf(rescale.waits_for)}`);
  return parts.join("; ");
}

function past(change) {
  const at = change.committed_at_ms || change.started_at_ms;
  return `${countOf(change)}, ${change.phase}${at ? `, ${clock(new Date(at))}` : ""}`;
}
