// Tables: rows are filled in place, so that a reader keeps the place.

import { byId, fill, make, say } from "./text.js";

/** Take the rows away. */
export function emptyTable(id) {
  for (const body of byId(id).tBodies) body.replaceChildren();
}

/** Fill a table; a cell is a text, the first of each row is its header; kind true: numbers. */
export function fillTable(id, columns, rows) {
  const element = byId(id);
  if (!element.tHead) {
    const head = element.createTHead().insertRow();
    for (const [title, kind] of columns) {
      const cell = make("th", kind === true ? "number" : "", title);
      cell.scope = "col";
      head.append(cell);
    }
    element.createTBody();
  }
  const create = () => {
    const row = make("tr");
    columns.forEach(([, kind], at) => {
      const cell = make(at ? "td" : "th", kind === true ? "number" : kind || "");
      if (!at) cell.scope = "row";
      row.append(cell);
    });
    return row;
  };
  fill(element.tBodies[0], rows, create, (row, cells) => {
    cells.forEach((text, at) => say(row.children[at], text));
  });
}
