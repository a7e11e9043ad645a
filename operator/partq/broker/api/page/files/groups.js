// Groups, their members and their partitions, as tables.

import { isOpen, markOf, membersOf, nameOf, whose } from "./members.js";
import * as sessions from "./sessions.js";
import { NUMBER, emptyTable, fillTable } from "./tables.js";
import { age, byId, counted, delayed, fillSelect, inOrder, number, say } from "./text.js";

const EVERY = "";
const MAX_MEMBERS = 200;
const only = (member) => `=${member}`; // a member without a name is nobody, and a choice, too
let again = () => {};

const oldest = (rows) => Math.max(0, ...rows.map((row) => (row.lag ? row.lag_ms : 0)));
const sum = (rows, field) => rows.reduce((total, row) => total + (row[field] ?? 0), 0);
const ageOf = (rows) => (sum(rows, "lag") ? age(oldest(rows)) : "");
const isTrouble = (row) => row.lag || row.problems.length || row.dead_letters || row.state !== "Ready";
const reason = (row) => row.problems.map((each) => each.text).join("; ");

export function show(status, name, change) {
  again = change;
  const group = status.groups[name];
  fillTable(
    "group-table",
    [["group", ""], ["type", ""], ["members", NUMBER], ["lag", NUMBER],
      ["oldest unacknowledged", NUMBER], ["redeliveries", NUMBER], ["handoffs", NUMBER],
      ["paused by application", NUMBER], ["blocked", NUMBER]],
    Object.entries(status.groups).map(([each, found]) => {
      const rows = Object.values(found.partitions);
      return [each, found.type, number(found.members.length), number(found.lag), ageOf(rows),
        number(sum(rows, "redeliveries")), number(found.handoffs.length),
        number(rows.filter((row) => row.is_withheld).length),
        number(rows.filter((row) => row.blocked).length)];
    }),
  );
  const held = new Map(group.members.map((each) => [each.member, []]));
  for (const [partition, row] of Object.entries(group.partitions)) {
    const isRetired = status.partitions[partition]?.is_retired;
    for (const member of membersOf(row)) {
      if (!held.has(member)) held.set(member, []);
      held.get(member).push({ ...row, isRetired });
    }
  }
  const states = new Map(group.members.map((each) => [each.member, each.state]));
  say(byId("group-members"), `Members of ${name}`);
  sessions.show(name, group);
  if (isOpen(group)) showOpenMembers(name, group);
  else fillTable(
    "member-table",
    [["member", ""], ["is", ""], ["partitions", NUMBER], ["lag", NUMBER],
      ["oldest unacknowledged", NUMBER], ["redeliveries", NUMBER],
      ["paused by application", NUMBER], ["blocked", NUMBER]],
    [...held].map(([member, rows]) => [
      member ? `${markOf(name, member).letter}: ${member}` : nameOf(member),
      states.get(member) ?? "",
      number(rows.filter((row) => !row.isRetired).length), number(sum(rows, "lag")), ageOf(rows),
      number(sum(rows, "redeliveries")), number(rows.filter((row) => row.is_withheld).length),
      number(rows.filter((row) => row.blocked).length),
    ]),
  );
  fillSelect(byId("member"), [[EVERY, "every member"],
    ...(isOpen(group) ? [] : [...held.keys()].map((member) => [only(member), nameOf(member)]))]);
  showPartitions(status, name, group);
}

/** Fill the members of a group whose partitions have no member, those with the most in hand first. */
function showOpenMembers(name, group) {
  const members = group.members.filter((each) => each.state !== "Left");
  members.sort((one, other) => (other.unacked ?? 0) - (one.unacked ?? 0));
  const isSession = group.type === "Session";
  const told = (count) => (count === undefined ? "" : number(count)); // No broker that was asked knows it.
  const more = members.length - MAX_MEMBERS;
  if (more > 0) say(byId("group-members"), `The first ${MAX_MEMBERS} of ${counted(members.length, "member")} of ${name}`);
  fillTable(
    "member-table",
    [["member", ""], ["is", ""],
      ...(isSession ? [["sessions", NUMBER]] : [["priority", NUMBER], ["credit", NUMBER], ["waits for its turn in", NUMBER]]),
      ["not acknowledged", NUMBER]],
    members.slice(0, MAX_MEMBERS).map((each) => [
      `${markOf(name, each.member).letter}: ${each.member}`, each.state,
      ...(isSession ? [each.sessions] : [each.priority, each.credit, each.turns]).map(told),
      told(each.unacked),
    ]),
  );
}

/** Leave nothing of what a token has shown. */
export function forget() {
  sessions.forget();
  for (const id of ["group-table", "member-table", "partition-table"]) emptyTable(id);
  fillSelect(byId("member"), []);
  say(byId("group-members"), "Members");
  say(byId("group-partitions"), "Partitions");
}

function showPartitions(status, name, group) {
  const member = byId("member").value;
  const isOnly = byId("only-trouble").checked;
  const every = inOrder(Object.keys(group.partitions));
  const wanted = every.filter((partition) => {
    const row = group.partitions[partition];
    return (member === EVERY || membersOf(row).some((each) => only(each) === member)) && (!isOnly || isTrouble(row));
  });
  say(byId("group-partitions"), `${counted(wanted.length, "partition")} of ${name}`);
  fillTable(
    "partition-table",
    [["partition", ""], ["member", ""], ["state", ""], ["broker", ""], ["lag", NUMBER],
      ["oldest unacknowledged", NUMBER], ["redeliveries", NUMBER], ["wait for redelivery", NUMBER],
      ["dead letters waiting", NUMBER], ["problem", "reason"]],
    wanted.map((partition) => {
      const row = group.partitions[partition];
      const record = status.partitions[partition];
      return [partition, whose(row), row.state, record ? record.broker : "",
        number(row.lag), row.lag ? age(row.lag_ms) : "", number(row.redeliveries ?? 0),
        delayed(row), number(row.dead_letters), reason(row)];
    }),
  );
}

byId("member").addEventListener("change", () => again());
byId("only-trouble").addEventListener("change", () => again());
