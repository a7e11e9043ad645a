// Dead letters among the messages: why they are here; replaying and dropping them, after a question.

import { CallError, call, explain } from "./api.js";
import { inParts } from "./newest.js";
import { byId, counted, fill, firstOf, make, number, say } from "./text.js";

const PREFIX = "partq-dead-letter-";
const AT_ONCE = 8; // A broker works on so many partitions side by side, within the time of a call.
const DRY_AT_ONCE = 64;
const MAX_LISTED = 100;
const MAX_WHY = 300;

let round = 0;
let isBusy = false;
let hasLetters = false;
let selected = () => [];
let key = "";
let again = () => {};

/** Return why a message is a dead letter and where it came from; empty: it is none. */
export function describe({ headers, is_replayed: isReplayed }) {
  const told = (name) => String(headers[PREFIX + name] ?? "?").slice(0, MAX_WHY);
  if (headers === undefined || !Object.hasOwn(headers, `${PREFIX}reason`)) return "";
  const said = Object.hasOwn(headers, `${PREFIX}application-reason`) ? ` (${told("application-reason")})` : "";
  return `${isReplayed ? "replayed; " : ""}${told("reason")}${said}, failures: ${told("redeliveries")}, from ${told("queue")}/${told("group")} ` +
    `${told("partition")} @ ${told("offset")}`;
}

/**
 * Note what is shown: of a key, if it is not empty. `names` returns the selected partitions,
 * `change` reads the messages again.
 */
export function show(messages, names, change, ofKey) {
  selected = names;
  key = ofKey;
  again = change;
  hasLetters = messages.some((message) => describe(message) !== "");
  say(byId("letters-about"), hasLetters
    ? "Replay sends dead letters back to the queues that they came from, without the added headers. " +
      `Both need a token of the role admin. ${key === "" ? "They act" : "Replay acts on the key that is shown, Drop"} ` +
      `${key === "" ? "" : "acts "}on the selected partitions.`
    : "No message on this page is a dead letter. The dead letters of a group are in the group's " +
      "dead-letter queue, whose brokers serve a page as this one.");
  enable();
}

export function forget() {
  round += 1;
  isBusy = hasLetters = false;
  key = "";
  if (byId("question").open) byId("question").close("");
  ask.clear();
  say(byId("letters-told"), "");
  enable();
}

function enable() {
  for (const button of [byId("replay"), byId("drop")]) {
    // Not while an action runs: a dialog gives the focus back to the button that has opened it.
    if (!hasLetters && button === document.activeElement) byId("letters-title").focus();
    button.disabled = !hasLetters;
  }
}

const tell = (text) => say(byId("letters-told"), text);

/** Ask before what cannot be undone; Escape and Cancel are no. */
function ask(title, text, items, word) {
  const dialog = byId("question");
  say(byId("question-title"), title);
  say(byId("question-text"), text);
  fill(byId("question-list"), items.slice(0, MAX_LISTED), () => make("li"), say);
  say(byId("question-yes"), word);
  dialog.returnValue = "";
  dialog.showModal();
  byId("question-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
ask.clear = () => {
  for (const id of ["question-title", "question-text", "question-yes"]) say(byId(id), "");
  byId("question-list").replaceChildren();
};

/** Run an action, one at a time; what it throws is told. */
async function alone(act) {
  if (isBusy) return;
  const mine = ++round;
  const isVoid = () => mine !== round;
  isBusy = true;
  tell("Asking the brokers ...");
  try {
    const told = await act(isVoid);
    if (isVoid()) return;
    tell(told);
    if (told) again();
  } catch (error) {
    if (isVoid()) return;
    if (!(error instanceof CallError)) throw error;
    tell(explain(error, "This"));
  } finally {
    if (!isVoid()) isBusy = false;
  }
}

const whereOf = (names) => (names.length === 1 ? `partition ${names[0]}` : `${number(names.length)} partitions`);
const reasons = (failed) => (failed.length ? ` Not done: ${firstOf(failed)}` : "");

/** Return the result of each partition; a call that fails leaves what others did to be told. */
async function tryCall(act, body) {
  try {
    return (await call("POST", `/dead-letters/${act}`, body)).partitions;
  } catch (error) {
    if (!(error instanceof CallError) || error.status === 403) throw error;
    return Object.fromEntries(body.partitions.map((name) => [name, { error }]));
  }
}

async function replay(isVoid) {
  const names = selected();
  const chosen = key === "" ? {} : { key };
  const isWanted = await ask("Replay dead letters?", key === ""
    ? `The dead letters of ${whereOf(names)} go back to the queues that they came from, and are removed ` +
      "here. The order of each partition is kept."
    : `The dead letters with the key that is shown, in ${whereOf(names)}, go back to the queues that they ` +
      "came from, in their order. The others stay.", [], "Replay");
  if (!isWanted || isVoid()) return "";
  const sum = { replayed: 0, repeated: 0, skipped: 0 };
  const failed = [];
  for (let at = 0; at < names.length; at += AT_ONCE) {
    let offsets = {};
    let left = names.slice(at, at + AT_ONCE);
    while (left.length) {
      const partitions = await tryCall("replay", { partitions: left, offsets, ...chosen });
      if (isVoid()) return "";
      offsets = {};
      for (const [name, result] of Object.entries(partitions)) {
        for (const each of Object.keys(sum)) sum[each] += result[each] ?? 0;
        const why = result.error ?? result.stopped ?? (result.next >= result.end ? result.skipped_because : undefined);
        if (why) failed.push(why.message);
        if (!result.error && !result.stopped && result.next < result.end) offsets[name] = result.next;
      }
      left = Object.keys(offsets);
      tell(`${number(sum.replayed)} replayed ...`);
    }
  }
  const repeated = sum.repeated ? `, ${number(sum.repeated)} had been before` : "";
  const skipped = sum.skipped ? `, ${number(sum.skipped)} skipped` : "";
  return `${number(sum.replayed)} replayed${repeated}${skipped}.${reasons(failed)}`;
}

async function drop(isVoid) {
  const names = selected();
  const found = await inParts(names, DRY_AT_ONCE, (partitions) =>
    call("POST", "/dead-letters/drop", { partitions, is_dry_run: true }));
  if (isVoid()) return "";
  const failed = Object.values(found).map((each) => each.error ?? each.stopped).filter(Boolean).map((each) => each.message);
  const full = Object.entries(found).filter(([, row]) => !row.error && row.stop > row.start);
  const count = full.reduce((total, [, each]) => total + each.stop - each.start, 0);
  if (!count) return `Nothing can be dropped.${reasons(failed)}`;
  const isWanted = await ask(`Drop ${counted(count, "dead letter")}?`,
    `They are removed for good from ${whereOf(full.map(([name]) => name))}.${reasons(failed)}`,
    full.map(([name, each]) => `${name}: offsets ${each.start} to ${each.stop - 1}`), "Drop");
  if (!isWanted || isVoid()) return "";
  let dropped = 0;
  failed.length = 0;
  for (const [name, { stop }] of full) {
    // By its offset: a dead letter that arrives while the page asks stays.
    const partitions = await tryCall("drop", { partitions: [name], before: stop });
    if (isVoid()) return "";
    const result = partitions[name];
    dropped += (result.stop ?? 0) - (result.start ?? 0);
    const why = result.error ?? result.stopped;
    if (why) failed.push(why.message);
    tell(`${number(dropped)} dropped ...`);
  }
  return `${number(dropped)} dropped.${reasons(failed)}`;
}

byId("replay").addEventListener("click", () => alone(replay));
byId("drop").addEventListener("click", () => alone(drop));
byId("question-yes").addEventListener("click", () => byId("question").close("yes"));
byId("question-no").addEventListener("click", () => byId("question").close(""));
