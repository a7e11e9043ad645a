// What if: the moves that another number of members would cause, on the map and as tables.

import { CallError, call, explain } from "./api.js";
import { isOpen, markOf, markOfNew, nameOf } from "./members.js";
import { NUMBER, emptyTable, fillTable } from "./tables.js";
import { age, byId, clock, counted, number, say } from "./text.js";

const MAX_MEMBERS = 1000;
const MAX_ROWS = 200;

let plan = null; // With the group, the time of the answer, and what the group was like then.
let shownGroup = "";
let round = 0;
let now = ""; // The members and owners of the selected group.
let again = () => {};

const count = byId("plan-count");

const stateOf = (group) => JSON.stringify([
  group.members.map((each) => each.member),
  Object.entries(group.partitions).map(([partition, row]) => [partition, row.member]),
]);

export function show(status, name, change) {
  again = change;
  if (shownGroup !== name) {
    forget();
    shownGroup = name;
  }
  const group = status.groups[name];
  byId("what-if").hidden = isOpen(group); // Nothing of it is assigned, so nothing would move.
  now = stateOf(group);
  if (count.value === "") count.placeholder = `${group.members.length} now`;
  draw();
}

/** Return where a partition would be: the member, its letter and its class; null: where it is. */
export function targetOf(partition) {
  const target = plan?.targets.get(partition);
  return target === undefined ? null : { member: target, ...mark(target) };
}

const mark = (member) => {
  const added = plan.added.indexOf(member);
  return added < 0 ? markOf(shownGroup, member) : markOfNew(shownGroup, added);
};

/** Leave nothing of what a token or a group has shown; what is being read counts no more. */
export function forget() {
  round += 1;
  plan = null;
  shownGroup = now = "";
  count.value = "";
  refuse("");
  draw();
}

function refuse(why) {
  say(byId("plan-error"), why);
  count.setAttribute("aria-invalid", String(why !== ""));
}

async function ask() {
  const text = count.value.trim();
  if (!/^\d{1,4}$/.test(text) || Number(text) > MAX_MEMBERS) {
    refuse(`Members: got ${text ? `"${text}"` : "nothing"}, expected a whole number from 0 to ` +
      `${number(MAX_MEMBERS)}.`);
    count.focus();
    return;
  }
  refuse("");
  round += 1;
  const mine = round;
  const [name, before] = [shownGroup, now];
  say(byId("plan-summary"), "Asking the planner ...");
  try {
    const found = await call("GET", `/groups/${encodeURIComponent(name)}/plan?members=${Number(text)}`);
    if (mine !== round) return;
    const known = new Set(JSON.parse(before)[0]);
    plan = {
      found,
      before,
      at: new Date(),
      wanted: Number(text),
      targets: new Map(found.moves.map((move) => [move.partition, move.to ?? ""])),
      added: Object.keys(found.members).filter((member) => !known.has(member)),
    };
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    if (mine !== round) return;
    plan = null;
    refuse(explain(error, "A plan"));
  }
  again();
}

function summary() {
  const { found, before, at, wanted } = plan;
  const parts = [
    `With ${counted(wanted, "member")} ${counted(found.moved, found.parts ? "part" : "partition")} would move`,
    `${number(found.assigned)} would get ${found.assigned === 1 ? "its" : "their"} first member`,
    `at most ${number(found.paused_at_once)} handed over at once`,
  ];
  const told = [`${parts.join(", ")}.`];
  if (found.moves.length && found.estimate_ms !== null) {
    told.push(`That takes about ${age(found.estimate_ms)}, by the pauses of ` +
      `${counted(found.estimated_from, "earlier move")}.`);
  }
  if (found.is_paused) told.push("Rebalancing is paused: moves for balance are not shown.");
  else if (!found.is_settled) {
    told.push("The group is in motion: until that is over nothing moves for balance, and that is not shown.");
  }
  told.push(`Planned at ${clock(at)}; nothing has been changed.`);
  if (before !== now) told.push("Members or partitions have changed since: show the plan again.");
  return told.join(" ");
}

function draw() {
  byId("plan-result").hidden = byId("plan-end").hidden = plan === null;
  byId("planned-key").hidden = plan === null;
  if (plan === null) {
    say(byId("plan-summary"), "");
    for (const id of ["plan-moves", "plan-members"]) emptyTable(id);
    return;
  }
  say(byId("plan-summary"), summary());
  const { members, moves } = plan.found;
  const rows = Object.entries(members);
  const isCut = rows.length > MAX_ROWS;
  say(byId("plan-members-title"),
    isCut ? `The first ${MAX_ROWS} of ${number(rows.length)} members` : "Partitions of each member");
  fillTable(
    "plan-members",
    [["member", ""], ["now", NUMBER], ["then", NUMBER]],
    rows.slice(0, MAX_ROWS).map(([member, each]) => [
      `${mark(member).letter}: ${member}`, number(each.before), number(each.after),
    ]),
  );
  const more = moves.length - MAX_ROWS;
  say(byId("plan-moves-title"), more > 0 ? `The first ${MAX_ROWS} of ${number(moves.length)} moves` : "Moves of the plan");
  fillTable(
    "plan-moves",
    [["partition", ""], ["from", ""], ["to", ""], ["why", ""]],
    moves.slice(0, MAX_ROWS).map((move) => [
      move.partition, nameOf(move.from), nameOf(move.to),
      move.may_wait ? "balance" : move.from ? "its member leaves" : "it has no member",
    ]),
  );
}

byId("plan").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
byId("plan-end").addEventListener("click", () => {
  round += 1;
  plan = null;
  refuse("");
  again();
  count.focus();
});
