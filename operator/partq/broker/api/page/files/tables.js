// Tables: rows are filled in place, so that a reader keeps the place.

import { byId, fill, make, say } from "./text.js";

export const NUMBER = "number"; // The class of a column of numbers.

/** Take the rows away. */
export function emptyTable(id) {
  for (const body of byId(id).tBodies) body.replaceChildren();
}

/** Return the body of a table, which has a head with a title for each column. */
export function bodyOf(id, columns) {
  const element = byId(id);
  const titles = [...(element.tHead?.rows[0].cells ?? [])].map((cell) => cell.textContent);
  if (titles.join() !== columns.map(([title]) => title).join()) {
    element.replaceChildren();
    const head = element.createTHead().insertRow();
    for (const [title, kind] of columns) {
      const cell = make("th", kind === NUMBER ? NUMBER : "", title);
      cell.scope = "col";
      head.append(cell);
    }
    element.createTBody();
  }
  return element.tBodies[0];
}

/** Fill a table. A column has a title and a class; a cell is a text, the first of a row its header. */
export function fillTable(id, columns, rows) {
  const create = () => {
    const row = make("tr");
    columns.forEach(([, kind], at) => {
      const cell = make(at ? "td" : "th", kind);
      if (!at) cell.scope = "row";
      row.append(cell);
    });
    return row;
  };
  fill(bodyOf(id, columns), rows, create, (row, cells) => {
    cells.forEach((text, at) => say(row.children[at], text));
  });
}
