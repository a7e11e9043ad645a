// The partition map: a square per partition, and what has moved since the page was opened.

import {
  fillLegend, having, holders, isEveryones, isOpen, markOf, membersOf, nameOf, whose,
} from "./members.js";
import * as plan from "./plan.js";
import * as rescale from "./rescale.js";
import { age, byId, clock, counted, delayed, fill, inOrder, make, number, say } from "./text.js";

const MANY = 64;
const MAX_LETTERS = 3;
const MAX_MOVES = 30;
const MOVES_AT_ONCE = 5;
const MOVED_MS = 4000;

const nothingOf = (group) => ({ group, members: new Map() });

let known = nothingOf("");
let names = [];
let chosen = "";
let shown = null;

const squares = byId("squares");
const moves = byId("moves");

function stateOf(status, group, name) {
  const row = group.partitions[name];
  const words = [];
  const classes = [];
  if (status.partitions[name]?.is_retired) {
    words.push("takes no messages any more");
    classes.push("retired");
  }
  if (row !== undefined) {
    words.push(...row.problems.map((each) => each.text));
    classes.push(...row.problems.map((each) => each.code));
  } else if (status.unavailable.includes(name)) {
    words.push("nothing of it can be read");
    classes.push("unserved");
  } else words.push("not part of the group yet");
  return { words, classes };
}

export function show(status, name, change) {
  const group = status.groups[name];
  shown = { status, name };
  names = inOrder(new Set([...Object.keys(status.partitions), ...status.unavailable]));
  if (known.group !== name) {
    known = nothingOf(name);
    moves.replaceChildren();
  }
  if (!names.includes(chosen)) chosen = names[0] ?? "";
  for (const each of group.members) markOf(name, each.member);
  plan.show(status, name, change);
  rescale.show(status);
  const moved = noteMoves(group);
  const handedOver = new Map(group.handoffs.map((each) => [each.partition, each]));
  squares.classList.toggle("many", names.length > MANY);
  fill(squares, names, makeSquare, (item, partition) => {
    updateSquare(item.firstElementChild, partition, status, group, name, handedOver);
    if (moved.has(partition)) flash(item.firstElementChild);
  });
  byId("everyones-key").hidden = !isOpen(group);
  byId("held-key").hidden = byId("retired-key").hidden = status.rescale === undefined;
  summarize(status, group);
  showLegend(group, name);
  showDetail();
}

/** Leave nothing of what a token has shown. */
export function forget() {
  plan.forget();
  rescale.forget();
  known = nothingOf("");
  names = [];
  chosen = "";
  shown = null;
  for (const element of [squares, moves, byId("legend"), byId("detail")]) element.replaceChildren();
  say(byId("map-summary"), "");
}

function makeSquare() {
  const item = make("li");
  const button = make("button", "square");
  button.type = "button";
  button.append(make("span"), make("small"));
  item.append(button);
  return item;
}

function updateSquare(button, partition, status, group, name, handedOver) {
  const row = group.partitions[partition];
  const isAll = row !== undefined && isEveryones(row);
  const marks = isAll
    ? [{ letter: "*", colour: "everyones" }]
    : (row ? membersOf(row) : [""]).map((member) => markOf(name, member));
  const letter = marks.slice(0, MAX_LETTERS).map((each) => each.letter).join("") +
    (marks.length > MAX_LETTERS ? "+" : "");
  const { colour } = marks[0];
  const { words, classes } = stateOf(status, group, partition);
  if (isAll) words.unshift("any member gets its messages");
  const handoff = handedOver.get(partition);
  if (handoff) words.push(`is handed over to ${handoff.target || "nobody"}`);
  const target = plan.targetOf(partition);
  if (target) {
    classes.push("planned", ...(target.member ? [target.colour.replace("m", "to")] : []));
    words.push(`would move to ${nameOf(target.member)}`);
  }
  const isMoved = button.classList.contains("moved") ? " moved" : "";
  const wanted = ["square", colour, ...classes].join(" ") + isMoved;
  if (button.className !== wanted) button.className = wanted;
  const isMany = names.length > MANY;
  const mark = letter + (row && row.blocked ? "!" : row && row.is_withheld ? "‖" : "");
  say(button.firstElementChild, target ? changeOf(mark, target.letter, isMany) : mark);
  say(button.lastElementChild, partition);
  const member = row && holders(row) ? `member ${letter} ${holders(row)}` : "";
  const lag = row ? `lag ${number(row.lag)}` : "";
  const label = [`partition ${partition}`, member, ...words, lag].filter(Boolean).join(", ");
  if (button.getAttribute("aria-label") !== label) {
    button.setAttribute("aria-label", label);
    button.title = label;
  }
  button.dataset.partition = partition;
  button.tabIndex = partition === chosen ? 0 : -1;
}

/** Say in letters where a partition would go; small squares have room for two. */
function changeOf(mark, letter, isSmall) {
  if (!isSmall) return `${mark}→${letter}`;
  return letter.startsWith("+") ? letter : `→${letter}`;
}

function noteMoves(group) {
  const moved = new Set();
  if (isOpen(group)) return moved;
  const lines = [];
  const isFirst = known.members.size === 0;
  for (const partition of names) {
    const row = group.partitions[partition];
    if (row === undefined) continue;
    const before = known.members.get(partition);
    // Behind a Service another broker answers each time; one of them may have an older status.
    if (before !== undefined && row.epoch < before.epoch) continue;
    if (!isFirst && before !== undefined && (before.member !== holders(row) || before.epoch !== row.epoch)) {
      moved.add(partition);
      // The same member under another epoch: it has connected again, or a move and the one back were
      // between two answers.
      lines.push(before.member === holders(row)
        ? `${partition}: ${nameOf(before.member)} again`
        : `${partition}: ${nameOf(before.member)} → ${nameOf(holders(row))}`);
    }
    known.members.set(partition, { member: holders(row), epoch: row.epoch });
  }
  if (lines.length) {
    const at = clock(new Date());
    const more = lines.length - MOVES_AT_ONCE;
    const told = lines.slice(0, MOVES_AT_ONCE);
    if (more > 0) told.push(`and ${counted(more, "more partition")}`);
    moves.prepend(...told.map((line) => make("li", "", `${at} ${line}`)));
    while (moves.children.length > MAX_MOVES) moves.lastElementChild.remove();
  }
  return moved;
}

function flash(button) {
  button.classList.add("moved");
  setTimeout(() => button.classList.remove("moved"), MOVED_MS);
}

function summarize(status, group) {
  const rows = Object.values(group.partitions);
  const count = (test) => rows.filter(test).length;
  const retired = names.filter((each) => status.partitions[each]?.is_retired).length;
  const parts = [counted(names.length - retired, "partition")];
  const states = [
    ["without slots", retired],
    ["paused", count((row) => row.state === "Paused")],
    ["paused by their application", count((row) => row.is_withheld)],
    ["blocked", count((row) => row.blocked)],
    ["without a member", count((row) => (row.parts ? row.state === "Unassigned" : !row.member && !isEveryones(row)))],
    ["whose member is not connected", count((row) => holders(row) && row.state === "Unbound")],
    ["without a broker", status.unavailable.length],
  ];
  for (const [word, found] of states) if (found) parts.push(`${number(found)} ${word}`);
  parts.push(`lag ${counted(group.lag, "message")}`);
  parts.push(`oldest unacknowledged message ${group.lag ? age(group.lag_ms) : "none"}`);
  parts.push(counted(group.handoffs.length, "handoff"));
  say(byId("map-summary"), `${parts.join(", ")}.`);
}

function showLegend(group, name) {
  fillLegend("legend", name, group.members.map((each) => each.member), (letter, member, at) => {
    const { state, partitions } = group.members[at];
    const has = isOpen(group) ? having(group.members[at]) : counted(partitions, "partition");
    return `${letter}: ${member}, ${state}, ${has}`;
  });
}

function showDetail() {
  if (shown === null || !chosen) return;
  const { status, name } = shown;
  const group = status.groups[name];
  const row = group.partitions[chosen];
  const record = status.partitions[chosen];
  const handoff = group.handoffs.find((each) => each.partition === chosen);
  const facts = [["partition", chosen], ["broker", record ? record.broker || "none" : "unknown"]];
  if (row) {
    facts.push(["member", isEveryones(row) ? whose(row) : holders(row) || "none"], ["state", row.state]);
    if (row.sessions) {
      const { with_messages: open = 0, locked = 0, waiting = 0 } = row.sessions;
      facts.push(["sessions", `${number(open)} with messages, ${number(locked)} locked`]);
      facts.push(["waiting accepts", `${number(waiting)} at its broker`]);
    }
    facts.push(["lag", counted(row.lag, "message")]);
    facts.push(["oldest unacknowledged", row.lag ? age(row.lag_ms) : "none"]);
    facts.push(["redeliveries", number(row.redeliveries ?? 0)], ["epoch", String(row.epoch)]);
    if (record?.is_retired) facts.push(["slots", "none: it is read to its end"]);
    if (row.delayed) facts.push(["wait for redelivery", delayed(row)]);
    for (const { text } of row.problems) facts.push(["problem", text]);
  }
  if (handoff) facts.push(["handoff", `${handoff.phase}, to ${handoff.target || "nobody"}`]);
  const flat = facts.flatMap(([term, value]) => [["dt", term], ["dd", value]]);
  const list = byId("detail");
  while (list.children.length > flat.length) list.lastElementChild.remove();
  flat.forEach(([tag, text], at) => {
    if (at === list.children.length) list.append(make(tag));
    say(list.children[at], text);
  });
}

function choose(partition, { focus }) {
  chosen = partition;
  for (const button of squares.querySelectorAll("button")) {
    button.tabIndex = button.dataset.partition === chosen ? 0 : -1;
    if (focus && button.tabIndex === 0) button.focus();
  }
  showDetail();
}

/** Return how many squares stand in a row. */
function width() {
  const items = [...squares.children];
  const first = items.length ? items[0].offsetTop : 0;
  const below = items.findIndex((item) => item.offsetTop !== first);
  return below < 0 ? items.length : below;
}

squares.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) choose(button.dataset.partition, { focus: false });
});
squares.addEventListener("keydown", (event) => {
  const at = names.indexOf(chosen);
  const to = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowDown: at + width(),
    ArrowUp: at - width(),
    Home: 0,
    End: names.length - 1,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  if (to >= 0 && to < names.length) choose(names[to], { focus: true });
});
