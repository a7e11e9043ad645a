// Small charts of numbers over time: a line with gaps where nothing is known, as SVG.

import { fill, say } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 90;
const EDGE = 4;

/** Return the next 1, 2 or 5 times a power of ten: charts of similar numbers have the same scale. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((each) => each * power >= value) * power;
}

/** Return the lines of a chart, each as "x,y x,y ...", where null is a gap. */
export function linesOf(values, top) {
  const x = (at) => ((at / Math.max(1, values.length - 1)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - EDGE - (value / top) * (HEIGHT - 2 * EDGE)).toFixed(1);
  const lines = [];
  let line = [];
  values.forEach((value, at) => {
    if (value !== null) line.push(`${x(at)},${y(value)}`);
    if (line.length && (value === null || at === values.length - 1)) {
      // A single point is a line of no length, which round ends make visible.
      lines.push((line.length === 1 ? [line[0], line[0]] : line).join(" "));
      line = [];
    }
  });
  return lines;
}

/** Draw values, the oldest first, into an item with a title, an `svg` and the end of its scale. */
export function drawChart(item, title, values, text) {
  drawLines(item, title, [["", values]], text);
}

/** Draw several lines of one scale, each with its name; all but the first are dashed. */
export function drawLines(item, title, lines, text) {
  const known = lines.flatMap(([, values]) => values.filter((value) => value !== null));
  const top = roundUp(Math.max(0, ...known) || 1);
  const [label, scale, svg] = item.children;
  say(label, `${title}: ${inWords(lines, (values, last) => text(last))}`);
  say(scale, text(top));
  const range = (values, last) =>
    `${text(last)}; at least ${text(Math.min(...values))}, at most ${text(Math.max(...values))}`;
  svg.setAttribute("aria-label", `${title}: ${inWords(lines, range)}`);
  const drawn = lines.flatMap(([, values], at) => linesOf(values, top).map((points) => [at, points]));
  fill(svg, drawn, () => document.createElementNS(SVG, "polyline"), (line, [at, points]) => {
    line.setAttribute("points", points);
    line.setAttribute("class", at ? "dashed" : "");
  });
}

function inWords(lines, tell) {
  const told = lines.map(([name, values]) => {
    const known = values.filter((value) => value !== null);
    if (!known.length) return null;
    return `${name} ${tell(known, values.at(-1) ?? known.at(-1))}`.trim();
  });
  return told.filter((each) => each !== null).join(", ") || "not known yet";
}

export function makeChart() {
  const item = document.createElement("li");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const scale = Object.assign(document.createElement("span"), { className: "scale" });
  scale.setAttribute("aria-hidden", "true");
  item.append(document.createElement("span"), scale, svg);
  return item;
}
