// The messages of the queue without consuming them: the newest first, of a key, until a time.

import { CallError, explain, queue } from "./api.js";
import * as letters from "./letters.js";
import { NewestFirst } from "./newest.js";
import { NUMBER, bodyOf } from "./tables.js";
import { byId, counted, fill, fillSelect, firstOf, inOrder, make, moment, number, say } from "./text.js";
import { MAX_SHOWN_BYTES, previewOf, renderValue } from "./values.js";

const PAGE = 50;
const PREVIEW_CHARS = 60;
const MAX_TEXT = 2048; // Of a key, a header, a producer.
const EVERY = "";
const COLUMNS = [["message", ""], ["stored", ""], ["key", ""], ["value", ""], ["bytes", NUMBER],
  ["dead letter because", ""]];

let round = 0;
let isRead = false;
let names = [];
let newest = null;
let found = [];
let chosen = null;
let key = "";

const short = (text, chars = MAX_TEXT) => (text.length > chars ? `${text.slice(0, chars)} ...` : text);
const placeOf = (message) => `${message.partition} @ ${message.offset}`;

export function show(status) {
  names = inOrder(new Set([...Object.keys(status.partitions), ...status.unavailable]));
  fillSelect(byId("of-partition"), [[EVERY, "every partition"], ...names.map((name) => [name, name])]);
  if (!isRead) begin();
}

/** Leave nothing of what a token has shown; what is being read counts no more. */
export function forget() {
  round += 1;
  isRead = false;
  names = [];
  newest = null;
  byId("find").reset();
  fillSelect(byId("of-partition"), []);
  tell("");
  draw([]);
  letters.forget();
}

const tell = (text) => say(byId("messages-summary"), text);

/** Return the partitions that are selected. */
const selected = () => (byId("of-partition").value === EVERY ? names : [byId("of-partition").value]);

async function begin() {
  isRead = true;
  const until = byId("until").value;
  key = byId("of-key").value;
  newest = null;
  draw([]);
  await read((isVoid) =>
    NewestFirst.open(selected(), until ? new Date(until).getTime() : null, isVoid));
}

/** Show the next page; `open` finds where the first one begins. */
async function read(open) {
  const mine = ++round;
  const isVoid = () => mine !== round;
  byId("older").disabled = true;
  tell("Asking the brokers ...");
  try {
    const reader = open ? await open(isVoid) : newest;
    if (isVoid()) return;
    newest = reader;
    const page = await reader.page(PAGE, key === "" ? null : (message) => message.key === key);
    if (isVoid()) return;
    draw(page.messages);
    byId("older").disabled = !page.hasMore;
    tell(summaryOf(page, reader.errors));
  } catch (error) {
    if (isVoid()) return;
    if (!(error instanceof CallError)) throw error;
    byId("older").disabled = newest === null;
    tell(explain(error, "This view", "consume or admin"));
  }
}

function summaryOf({ messages, scanned, hasMore }, errors) {
  const what = counted(messages.length, "message") + (key === "" ? "" : ` of the key, among ${number(scanned)}`);
  const more = hasMore ? "older ones may follow" : "none is older";
  const left = errors.length ? ` Left out: ${firstOf(errors)}` : "";
  return `${what}; ${more}.${left}`;
}

function draw(messages) {
  found = messages;
  letters.show(found, selected, begin, key);
  drawRows();
  choose(null);
}

function drawRows() {
  fill(bodyOf("message-table", COLUMNS), found, makeRow, (row, message) => {
    const [place, ...cells] = row.children;
    const isBroken = message.error !== undefined;
    say(place.firstElementChild, placeOf(message));
    const texts = [moment(message.publish_time_ms), short(message.key ?? "no key", PREVIEW_CHARS),
      isBroken ? short(message.error.message, PREVIEW_CHARS) : previewOf(message, PREVIEW_CHARS),
      isBroken ? "" : number(message.size), letters.describe(message)];
    texts.forEach((text, at) => say(cells[at], text));
  });
}

function makeRow() {
  const row = make("tr");
  const place = Object.assign(make("th"), { scope: "row" });
  const button = make("button");
  button.type = "button";
  button.addEventListener("click", () => {
    choose(found[[...row.parentElement.children].indexOf(row)]);
    byId("message-title").focus();
  });
  place.append(button);
  row.append(place, ...COLUMNS.slice(1).map(([, kind]) => make("td", kind)));
  return row;
}

function choose(message) {
  chosen = message;
  byId("message").hidden = message === null;
  const facts = message === null ? [] : factsOf(message);
  say(byId("message-title"), message === null ? "" : `Message ${placeOf(message)}`);
  byId("message-facts").replaceChildren(
    ...facts.flatMap(([name, text]) => [make("dt", "", name), make("dd", "plain", text)]));
  const headers = Object.entries(message?.headers ?? {});
  byId("message-headers").replaceChildren(
    ...headers.flatMap(([name, text]) => [make("dt", "plain", short(name)), make("dd", "plain", short(text))]));
  byId("headers-title").hidden = !headers.length;
  say(byId("curl"), message === null ? "" : curlOf(message));
  say(byId("copied"), "");
  drawValue();
}

function factsOf(message) {
  const facts = [["stored", moment(message.publish_time_ms)]];
  if (message.event_time_ms) facts.push(["event time", moment(message.event_time_ms)]);
  facts.push(["key", message.key === null || message.key === undefined ? "no key" : short(message.key)]);
  facts.push(["producer", message.producer === undefined ? "without a number" :
    `${short(message.producer)}, number ${message.sequence}`]);
  facts.push(["broker epoch", String(message.append_broker_epoch)]);
  if (letters.describe(message)) facts.push(["dead letter", letters.describe(message)]);
  if (message.error) facts.push(["undecodable", message.error.message]);
  return facts;
}

function drawValue() {
  const isShown = chosen !== null && chosen.error === undefined;
  byId("value-part").hidden = !isShown;
  say(byId("value"), isShown ? renderValue(chosen, byId("format").value) : "");
  if (!isShown) return say(byId("value-size"), "");
  const kind = chosen.isText ? "text" : "binary";
  const cut = chosen.size > MAX_SHOWN_BYTES ? `, the first ${number(MAX_SHOWN_BYTES)} are shown` : "";
  say(byId("value-size"), `${kind}, ${counted(chosen.size, "byte")}${cut}`);
}

/** Return a command that reads a message; nothing of the message but its place is in it. */
function curlOf({ partition, offset }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const body = { partitions: [partition], offsets: { [partition]: offset }, max_messages: 1 };
  const url = `${location.origin}/v1/queues/${encodeURIComponent(queue)}/browse`;
  return `curl -sS -X POST -H "Authorization: Bearer $PARTQ_TOKEN" -H 'Content-Type: application/json' ` +
    `-d ${quoted(JSON.stringify(body))} ${quoted(url)}`;
}

async function copy() {
  try {
    await navigator.clipboard.writeText(byId("curl").textContent);
    say(byId("copied"), "Copied. Set PARTQ_TOKEN in your shell.");
  } catch (error) {
    // Browsers give no clipboard to pages without TLS, but for those of the same machine.
    getSelection().selectAllChildren(byId("curl"));
    say(byId("copied"), "The browser does not let the page copy. The command is selected.");
  }
}

byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  begin();
});
byId("older").addEventListener("click", () => read(null));
byId("format").addEventListener("change", drawValue);
byId("copy").addEventListener("click", copy);
