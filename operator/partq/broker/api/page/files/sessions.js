// The sessions of a group that members have locked: read while the view of groups is shown.

import { CallError, call, explain } from "./api.js";
import { NUMBER, emptyTable, fillTable } from "./tables.js";
import { age, byId, clock, counted, number, say } from "./text.js";

const EVERY_MS = 2000;
const MAX_PARTITIONS = 16; // Asked at a time: those with the most locks.
const MAX_ROWS = 100;

const nothing = () => ({ group: "", locked: 0, rows: null, partitions: [] });

let known = nothing();
let round = 0;
let isAsking = false;
let isRefused = false;
let askedAt = -Infinity;

export function show(name, group) {
  const isShown = group.type === "Session";
  byId("sessions").hidden = !isShown;
  if (!isShown || known.group !== name) forget();
  if (!isShown) return;
  const counts = Object.entries(group.partitions)
    .map(([partition, row]) => ({ partition, with_messages: 0, locked: 0, waiting: 0, ...row.sessions }));
  const sum = (field) => counts.reduce((total, each) => total + each[field], 0);
  known.group = name;
  known.locked = sum("locked");
  // A consumer that waits does so at every broker: those of the brokers are not added.
  const waiting = Math.max(0, ...counts.map((each) => each.waiting));
  say(byId("sessions-summary"),
    `${counted(sum("with_messages"), "session has messages", "sessions have messages")}, ` +
    `${number(known.locked)} locked; ${counted(waiting, "accept waits", "accepts wait")} for one.`);
  known.partitions = counts.filter((each) => each.locked)
    .sort((one, other) => other.locked - one.locked)
    .map((each) => each.partition);
  if (!isRefused && performance.now() - askedAt >= EVERY_MS) ask();
}

/** Leave nothing of what a token or a group has shown; what is being read counts no more. */
export function forget() {
  round += 1;
  known = nothing();
  isAsking = isRefused = false;
  askedAt = -Infinity;
  emptyTable("session-table");
  say(byId("sessions-summary"), "");
  say(byId("sessions-told"), "");
}

async function ask() {
  if (isAsking) return;
  isAsking = true;
  const mine = round;
  const path = `/groups/${encodeURIComponent(known.group)}/sessions?is_locked=true&partition=`;
  const rows = [];
  try {
    for (const partition of known.partitions.slice(0, MAX_PARTITIONS)) {
      const found = await call("GET", path + partition);
      if (mine !== round) return;
      rows.push(...found.sessions.map((each) => ({ partition, ...each })));
      if (rows.length >= MAX_ROWS) break;
    }
    known.rows = rows;
    isRefused = false;
    draw();
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    if (mine !== round) return;
    isRefused = error.status === 403;
    say(byId("sessions-told"), explain(error, "The list of sessions"));
  } finally {
    if (mine === round) {
      isAsking = false;
      askedAt = performance.now();
    }
  }
}

function draw() {
  const rows = known.rows.slice(0, MAX_ROWS);
  const isCut = rows.length < known.locked;
  say(byId("sessions-told"), isCut && rows.length
    ? `${number(rows.length)} of ${number(known.locked)} are shown: \`partq sessions list\` has all.` : "");
  fillTable(
    "session-table",
    [["session", "plain"], ["member", ""], ["connected", ""], ["lock ends at", ""], ["in", NUMBER],
      ["partition", ""], ["open messages", NUMBER]],
    rows.map((each) => [
      each.session, each.holder ?? "", each.is_connected ? "yes" : "no",
      clock(new Date(Date.now() + (each.locked_ms ?? 0))), age(each.locked_ms ?? 0), each.partition,
      number(each.open_messages ?? 0),
    ]),
  );
}

byId("sessions-again").addEventListener("click", () => {
  askedAt = -Infinity;
  ask();
});
