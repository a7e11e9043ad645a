// Each member has a letter and a colour, which it keeps until the token is forgotten.

import { byId, counted, fill, make, number, say } from "./text.js";

const COLOURS = 12;
const seen = new Map();

export const forgetMarks = () => seen.clear();

function letters(at) {
  const rest = Math.floor(at / 26);
  return (rest ? letters(rest - 1) : "") + String.fromCharCode(65 + (at % 26));
}

/** Return the name of a member for a text; a partition may have none. */
export const nameOf = (member) => member || "no member";

/** Return whether no partition of a group has a member, as any member may have its messages. */
export const isOpen = (group) => group.type === "Shared" || group.type === "Session";

/** Return whether any connected member may have messages of a partition. */
export const isEveryones = (row) => !row.parts && !row.member && row.state === "Ready";

/** Return who has a partition, for a text. */
export const whose = (row) => (isEveryones(row) ? "any member" : nameOf(holders(row)));

/** Say what a member of an open group has. */
export function having({ sessions, turns, priority, unacked }) {
  if (unacked === undefined) return "not connected to a broker that was asked";
  const has = sessions === undefined
    ? `priority ${number(priority)}, ${turns ? `waits for its turn in ${counted(turns, "partition")}` : "waits for no turn"}`
    : counted(sessions, "session");
  return `${has}, ${counted(unacked, "message")} not acknowledged`;
}

/** Return the members of a partition: several, where they share its keys. */
export function membersOf(row) {
  if (isEveryones(row)) return [];
  return row.parts ? [...new Set(row.parts.map((each) => each.member))] : [row.member];
}

/** Return the members of a partition for a text, with their parts where they share its keys. */
export function holders(row) {
  if (!row.parts) return row.member;
  return row.parts.map((each) => `${nameOf(each.member)} (${ranges(each.parts)})`).join(", ");
}

function ranges(numbers) {
  const runs = [];
  for (const each of numbers) {
    const last = runs.at(-1);
    if (last && each === last[1] + 1) last[1] = each;
    else runs.push([each, each]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** Return the letter and the class of a member of a group; those of a new one are the next. */
export function markOf(group, member) {
  if (!member) return { letter: "-", colour: "nobody" };
  if (!seen.has(group)) seen.set(group, new Map());
  const marks = seen.get(group);
  if (!marks.has(member)) marks.set(member, marks.size);
  const at = marks.get(member);
  return { letter: letters(at), colour: `m${at % COLOURS}` };
}

/** Return the letter and the class of a member that a plan adds; it takes nobody's letter. */
export function markOfNew(group, at) {
  const taken = seen.get(group)?.size ?? 0;
  return { letter: `+${at + 1}`, colour: `m${(taken + at) % COLOURS}` };
}

/** Fill a list with members, each with its letter and colour, and what `tell` says of it. */
export function fillLegend(id, group, members, tell) {
  const create = () => {
    const item = make("li");
    const mark = make("span", "square");
    mark.setAttribute("aria-hidden", "true");
    item.append(mark, make("span"));
    return item;
  };
  fill(byId(id), members, create, (item, member, at) => {
    const { letter, colour } = markOf(group, member);
    item.firstElementChild.className = `square ${colour}`;
    say(item.firstElementChild, letter);
    say(item.lastElementChild, tell(letter, member, at));
  });
}
