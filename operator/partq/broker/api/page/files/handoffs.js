// The handoffs of a group: rebalances, a strip of time per partition, and each move with its cause.

import { CallError, call, explain } from "./api.js";
import { nameOf } from "./members.js";
import { NUMBER, fillTable } from "./tables.js";
import { age, byId, clock, counted, inOrder, number, say } from "./text.js";
import { drawTimeline } from "./timeline.js";

const MAX_STRIPS = 100;
const MAX_MOVES = 200;
// Every broker is asked for a snapshot. It is read again at the first age when partitions have
// moved, and at the second in any case.
const MOVED_AGE_MS = 3000;
const MAX_AGE_MS = 30000;
const NOTHING = { now_ms: 0, past: {}, rebalances: [] };
const NOT_AGAIN = "The page does not ask again for this group with this token.";

const words = (text) => (text ?? "").replaceAll("_", " ");

let snapshot = null;
let shownGroup = null;
let readAt = -Infinity;
let seen = "";
let round = 0;
let isReading = false;
let isRefused = false; // The same token would be refused again, for as long as the group is shown.
let again = () => {};

export function show(status, name, change) {
  again = change;
  if (shownGroup !== name) {
    forget();
    shownGroup = name;
    say(byId("handoffs-summary"), "Asking the brokers ...");
  }
  const group = status.groups[name];
  const now = Object.entries(group.partitions).map(([each, row]) => `${each}=${row.member}`);
  const owners = [name, ...now].join();
  const old = performance.now() - readAt;
  if (!isReading && !isRefused && old > (owners === seen ? MAX_AGE_MS : MOVED_AGE_MS)) read(name, owners);
  draw(name, group);
}

/** Leave nothing of what a token or a group has shown; what is being read counts no more. */
export function forget() {
  round += 1;
  snapshot = shownGroup = null;
  readAt = -Infinity;
  seen = "";
  isRefused = false;
  say(byId("handoffs-summary"), "");
  draw("", null);
}

async function read(name, owners) {
  isReading = true;
  const mine = round;
  let found = null;
  let told = "";
  let refused = false;
  try {
    found = await call("GET", `/groups/${encodeURIComponent(name)}/picture`);
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    refused = error.status === 403;
    told = (refused ? `${NOT_AGAIN} ` : "") + explain(error, "This view");
  } finally {
    isReading = false;
  }
  if (mine === round) {
    snapshot = found;
    isRefused = refused;
    if (found !== null) seen = owners;
    readAt = performance.now();
    say(byId("handoffs-summary"), told);
  }
  again();
}

function cause(move) {
  const forced = move.forced && move.forced !== "unassigned" ? `, forced: ${words(move.forced)}` : "";
  return `${words(move.evidence) || words(move.trigger) || "not recorded"}${forced}`;
}

const pauseOf = (move) => (move.pause_ms === null ? "not measured" : `${number(move.pause_ms)} ms`);

function describeMove(partition, move) {
  const at = clock(new Date(move.at_ms));
  return `${at}, partition ${partition}: ${nameOf(move.source)} → ${nameOf(move.target)}, ` +
    `pause ${pauseOf(move)}, ${cause(move)}`;
}

function describeRebalance(each) {
  const began = clock(new Date(each.started_at_ms));
  const took = each.ended_at_ms - each.started_at_ms;
  const late = each.timed_out ? `, ${number(each.timed_out)} not drained in time` : "";
  return `${began}, rebalance: ${words(each.trigger)}, ${counted(each.moved, "move")}, ` +
    `${counted(each.assigned, "first assignment")}, longest pause ${number(each.longest_pause_ms)} ms, ` +
    `took ${age(took)}${late}`;
}

/** Draw the snapshot; without one the strips and tables are empty. */
function draw(name, group) {
  const { now_ms: brokerNow, past, rebalances } = snapshot ?? NOTHING;
  const to = brokerNow + (performance.now() - readAt);
  const from = to - Number(byId("span").value);
  const moves = Object.entries(past)
    .flatMap(([partition, each]) => each.map((move) => ({ partition, move })))
    .filter(({ move }) => move.at_ms >= from)
    .sort((a, b) => b.move.at_ms - a.move.at_ms);
  const moved = inOrder(new Set(moves.map(({ partition }) => partition)));
  const more = moved.length - MAX_STRIPS;
  const rest = more > 0 ? `, the first ${MAX_STRIPS} of them are drawn` : "";
  const told = `${counted(moved.length, "partition")} moved${rest}`;
  say(byId("strips-title"), snapshot ? told : "Partitions that have moved");
  const shown = [...rebalances].reverse().filter((each) => each.ended_at_ms >= from);
  drawTimeline({
    group: name,
    from,
    to,
    strips: moved.slice(0, MAX_STRIPS).map((partition) => ({
      partition,
      moves: past[partition],
      member: group.partitions[partition]?.member ?? "",
      describe: (move) => describeMove(partition, move),
    })),
    columns: [...shown].reverse().map((each) => ({
      from: each.started_at_ms, to: each.ended_at_ms, text: describeRebalance(each),
    })),
  });
  fillTable(
    "rebalance-table",
    [["began", ""], ["trigger", ""], ["moves", NUMBER], ["first assignments", NUMBER],
      ["longest pause", NUMBER], ["took", NUMBER], ["not drained in time", NUMBER]],
    shown.map((each) => [
      clock(new Date(each.started_at_ms)), words(each.trigger), number(each.moved),
      number(each.assigned), `${number(each.longest_pause_ms)} ms`,
      age(each.ended_at_ms - each.started_at_ms), number(each.timed_out),
    ]),
  );
  say(byId("past-title"), moves.length > MAX_MOVES ? `The last ${MAX_MOVES} moves` : "Moves");
  fillTable(
    "move-table",
    [["at", ""], ["partition", ""], ["from", ""], ["to", ""], ["pause", NUMBER], ["cause", ""]],
    moves.slice(0, MAX_MOVES).map(({ partition, move }) => [
      clock(new Date(move.at_ms)), partition, nameOf(move.source), nameOf(move.target), pauseOf(move),
      cause(move),
    ]),
  );
}

byId("span").addEventListener("change", () => again());
