// A table of a list that comes in pages: the first page, and a button for the next one.

import { element, errorBox, table } from "./dom.js";

const PAGE = 200;

/**
 * A list of the API as a table. `read(cursor, limit)` requests a page. Returns the element, and `load()`, which reads
 * the list from its beginning.
 */
export function pagedTable(caption, columns, read, empty) {
  const { box, body, row, fill } = table(caption, columns, empty);
  const error = errorBox();
  const more = element("button", { type: "button", hidden: true, onclick: () => request(next) }, "Show more");
  const whole = element("div", {}, error.box, box, more);
  body.append(element("tr", {}, element("td", { class: "none", colspan: columns.length }, "Reading…")));
  let next = null;
  let runs = 0;

  async function request(cursor) {
    runs += 1;
    const run = runs;
    whole.setAttribute("aria-busy", "true");
    try {
      const page = await read(cursor, PAGE);
      if (run !== runs) return;
      error.show(null);
      if (cursor === null) fill(page.items);
      else body.append(...page.items.map(row));
      next = page.next;
      more.hidden = next === null;
    } catch (problem) {
      if (run !== runs || problem.name === "AbortError") return;
      error.show(problem);
      if (cursor === null) body.replaceChildren();
    }
    whole.removeAttribute("aria-busy");
  }

  return { whole, load: () => request(null) };
}
