// The time line of handoffs: a strip per partition, and a column for each rebalance across them.
//
// Pauses and columns say what they are where the pointer is, and to who reaches them by the keyboard:
// Tab goes to one of them, the arrow keys from there to the others.

import { fillLegend, markOf, nameOf } from "./members.js";
import { piecesOf } from "./strips.js";
import { byId, clock, fill, make, say } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 100; // Places are percentages, so that letters keep their shape.
const MIN_WIDTH = 0.8; // Some milliseconds are still seen.
const MAX_MEMBERS = 100; // In the list of letters.
const LETTER_WIDTH = 3; // A piece that is narrower has no letter.

const timeline = byId("timeline");
let toldRect = null; // What was last pointed at or focused: drawing again tells it again.

/**
 * Draw the strips of [from, to] in milliseconds, and the columns across them.
 *
 * `strips`: each with its partition, past moves, present member, and `describe` of a move.
 * `columns`: each with from, to and text. Without strips there is no time line.
 */
export function drawTimeline({ group, from, to, strips, columns }) {
  const x = (ms) => Math.min(WIDTH, Math.max(0, ((ms - from) / (to - from)) * WIDTH));
  timeline.hidden = !strips.length && !columns.length;
  if (timeline.hidden) say(byId("time-told"), "");
  say(byId("time-from"), timeline.hidden ? "" : clock(new Date(from)));
  say(byId("time-to"), timeline.hidden ? "" : clock(new Date(to)));
  const seen = strips.flatMap(({ moves, member }) => [...moves.flatMap((move) => [move.source, move.target]), member]);
  const members = [...new Set(seen.filter(Boolean))].sort();
  fillLegend("time-legend", group, members.slice(0, MAX_MEMBERS), (letter, member) => `${letter}: ${member}`);
  const bands = columns.map((each) => boxOf(x(each.from), x(each.to)));
  const named = columns.map((each, at) => ({ ...bands[at], text: each.text, kind: "column" }));
  fill(byId("columns"), columns.length ? [named] : [], makeStrip, (item, boxes) => {
    drawStrip(item, "rebalances", "rebalances", [], boxes);
  });
  fill(byId("strips"), strips, makeStrip, (item, { partition, moves, member, describe }) => {
    const pieces = piecesOf(moves, member, from, to);
    const boxes = pieces.map((piece) => piece.move
      ? { ...boxOf(x(piece.from), x(piece.to)), text: describe(piece.move), kind: "pause" }
      : { x: x(piece.from), width: x(piece.to) - x(piece.from), mark: markOf(group, piece.member),
        title: `partition ${partition}: ${nameOf(piece.member)}` });
    const owners = pieces.filter((piece) => !piece.move).map((piece) => nameOf(piece.member));
    const across = bands.map((band) => ({ ...band, kind: "band" }));
    const rest = boxes.filter((box) => !box.text);
    drawStrip(item, partition, `partition ${partition}: ${owners.join(", then ")}`,
      [...rest, ...across], boxes.filter((box) => box.text));
  });
  keepOneStop();
  const rect = [toldRect, document.activeElement].find((each) => timeline.contains(each));
  if (rect) tell(rect);
}

/** A box ends where its time ends, and is wide enough to be seen. */
function boxOf(from, to) {
  const width = Math.max(MIN_WIDTH, to - from);
  return { x: Math.max(0, to - width), width };
}

function makeStrip() {
  const item = make("li");
  const strip = document.createElementNS(SVG, "svg");
  strip.setAttribute("role", "group");
  const letters = document.createElementNS(SVG, "g");
  letters.setAttribute("aria-hidden", "true");
  strip.append(document.createElementNS(SVG, "g"), document.createElementNS(SVG, "g"), letters);
  item.append(make("span"), strip);
  return item;
}

/** Draw boxes, and above them those that are reached by the keyboard, the oldest first. */
function drawStrip(item, label, name, boxes, told) {
  const [title, strip] = item.children;
  say(title, label);
  strip.setAttribute("aria-label", name);
  const [rects, stopping, letters] = strip.children;
  fill(rects, boxes, makeBox, placeBox);
  fill(stopping, told, makeStop, (rect, box) => {
    placeBox(rect, box);
    rect.setAttribute("aria-label", box.text);
  });
  const wide = boxes.filter((box) => box.mark && box.width >= LETTER_WIDTH);
  fill(letters, wide, () => document.createElementNS(SVG, "text"), (text, box) => {
    text.setAttribute("x", `${box.x + MIN_WIDTH}%`);
    text.setAttribute("y", "55%");
    say(text, box.mark.letter);
  });
}

function placeBox(rect, box) {
  rect.setAttribute("class", box.kind ?? box.mark.colour);
  rect.setAttribute("x", `${box.x}%`);
  rect.setAttribute("width", `${box.width}%`);
  say(rect.firstElementChild, box.text ?? box.title ?? "");
}

function makeStop() {
  const rect = makeBox();
  rect.setAttribute("role", "img");
  rect.setAttribute("tabindex", "-1");
  return rect;
}

function makeBox() {
  const rect = document.createElementNS(SVG, "rect");
  rect.setAttribute("height", "100%");
  rect.append(document.createElementNS(SVG, "title"));
  return rect;
}

const stops = (within = timeline) => [...within.querySelectorAll("rect[tabindex]")];

/** Have the Tab key reach one of the pauses and columns: the arrow keys go on from there. */
function keepOneStop() {
  const all = stops();
  if (all.length && !all.some((each) => each.getAttribute("tabindex") === "0")) {
    all[0].setAttribute("tabindex", "0");
  }
}

function tell(rect) {
  toldRect = rect;
  say(byId("time-told"), rect.getAttribute("aria-label") ?? "");
}

function goTo(rect) {
  for (const each of stops()) each.setAttribute("tabindex", each === rect ? "0" : "-1");
  rect.focus();
}

const byPlace = (a, b) => parseFloat(a.getAttribute("x")) - parseFloat(b.getAttribute("x"));

timeline.addEventListener("keydown", (event) => {
  const rect = event.target.closest("rect[tabindex]");
  if (rect === null) return;
  const strip = rect.closest("svg");
  const along = stops(strip).sort(byPlace);
  const at = along.indexOf(rect);
  const strips = [...timeline.querySelectorAll("svg")].filter((each) => stops(each).length);
  const line = strips.indexOf(strip);
  const nearest = (other) => other && stops(other).reduce((best, each) =>
    Math.abs(byPlace(each, rect)) < Math.abs(byPlace(best, rect)) ? each : best);
  const next = {
    ArrowRight: () => along[at + 1],
    ArrowLeft: () => along[at - 1],
    ArrowDown: () => nearest(strips[line + 1]),
    ArrowUp: () => nearest(strips[line - 1]),
    Home: () => along[0],
    End: () => along.at(-1),
  }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const found = next();
  if (found) goTo(found);
});
for (const kind of ["focusin", "pointerover"]) {
  timeline.addEventListener(kind, (event) => {
    const rect = event.target.closest("rect[tabindex]");
    if (rect !== null) tell(rect);
  });
}
