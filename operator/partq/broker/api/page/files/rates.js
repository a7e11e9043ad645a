// Rates, lag and waits of the last ten minutes, as charts and as tables.

import { CallError, call } from "./api.js";
import { drawChart, drawLines, makeChart } from "./charts.js";
import { NUMBER, emptyTable, fillTable } from "./tables.js";
import { age, byId, clock, fill, firstOf, number, say } from "./text.js";

const EVERY_MS = 5000;
const ROW_STEPS = 12; // A row of the table is a minute.

let rates = null;
let readAt = null;
let askedAt = -Infinity;
let isReading = false;
let askedFor = ""; // The group.
let round = 0;
let again = () => {};

export function show(status, name, change) {
  again = change;
  const isDue = askedFor !== name || performance.now() - askedAt >= EVERY_MS;
  if (!isReading && isDue) read(name);
  draw(name);
}

/** Leave nothing of what a token has shown; what is being read counts no more. */
export function forget() {
  round += 1;
  rates = readAt = null;
  askedAt = -Infinity;
  say(byId("rates-summary"), "");
  for (const id of ["charts", "wait-charts"]) byId(id).replaceChildren();
  for (const id of ["rate-table", "wait-table"]) emptyTable(id);
  say(byId("rates-of"), byId("rates-of").dataset.plain);
}

async function read(name) {
  isReading = true;
  askedFor = name;
  const mine = round;
  let told = "";
  try {
    const found = await call("GET", name ? `/rates?group=${encodeURIComponent(name)}` : "/rates");
    if (mine === round) {
      rates = found;
      readAt = new Date();
      const left = Object.entries(found.unavailable).map(([broker, error]) => `${broker}: ${error.message}`);
      told = left.length ? `The counts of these brokers are missing: ${firstOf(left)}` : "";
    }
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    told = error.message + (readAt ? ` The view shows the rates of ${clock(readAt)}.` : "");
  } finally {
    isReading = false;
  }
  if (mine !== round) return;
  askedAt = performance.now();
  say(byId("rates-summary"), told);
  again();
}

const perSecond = (value) => `${number(Math.round(value * 10) / 10)}/s`;
const messages = (value) => number(Math.round(value));
const waitOf = (ms) => (ms === null ? "none" : ms < 10 ? `${ms.toFixed(1)} ms` : age(Math.round(ms)));
const oldest = (value) => age(Math.round(value));

// What a row of the table has of the values of its minute.
const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;
const last = (values) => values.at(-1);
const highest = (values) => Math.max(...values);

function draw(name) {
  if (rates === null) return;
  const perStep = (counts) => counts.map((each) => (each === null ? null : each / (rates.step_ms / 1000)));
  const group = Object.hasOwn(rates.groups, name) ? rates.groups[name] : null;
  const series = [
    { title: "Published", values: perStep(rates.accepted), text: perSecond, ofMinute: mean },
  ];
  if (group) {
    series.push(
      { title: "Delivered", values: perStep(group.delivered), text: perSecond, ofMinute: mean },
      { title: "Lag", values: group.lag, text: messages, ofMinute: last },
      { title: "Oldest unacknowledged", values: group.lag_ms, text: oldest, ofMinute: last },
    );
  }
  say(byId("rates-of"), group ? `Published, and group ${name}` : byId("rates-of").dataset.plain);
  fill(byId("charts"), series, makeChart, (item, { title, values, text }) => drawChart(item, title, values, text));
  const waits = [["from arrival until stored", rates.publish, "Until stored"]];
  if (group) waits.push([`from stored until sent to ${name}`, group.delivery, "Until sent"]);
  fill(byId("wait-charts"), waits, makeChart, (item, [, found, title]) =>
    drawLines(item, title, [["p50", found.step_p50_ms], ["p99", found.step_p99_ms]], waitOf));
  drawMinutes([...series, ...waits.map(([, found, title]) => (
    { title: `p99 ${title}`, values: found.step_p99_ms, text: waitOf, ofMinute: highest }))]);
  fillTable("wait-table", [["wait", ""], ["p50", NUMBER], ["p99", NUMBER]],
    waits.map(([what, { p50_ms: p50, p99_ms: p99 }]) => [what, waitOf(p50), waitOf(p99)]));
}

/** Draw the same as numbers, a row for each minute. */
function drawMinutes(series) {
  const count = rates.accepted.length / ROW_STEPS;
  const rows = Array.from({ length: count }, (_, at) => {
    const from = rates.accepted.length - (at + 1) * ROW_STEPS;
    const cells = series.map(({ values, text, ofMinute }) => {
      const known = values.slice(from, from + ROW_STEPS).filter((value) => value !== null);
      return known.length ? text(ofMinute(known)) : "";
    });
    return [at ? `${at} min ago` : "last minute", ...cells];
  });
  const columns = [["minute", ""], ...series.map(({ title }) => [title.toLowerCase(), NUMBER])];
  const table = byId("rate-table");
  if (table.tHead && table.tHead.rows[0].cells.length !== columns.length) table.replaceChildren();
  fillTable("rate-table", columns, rows);
}
