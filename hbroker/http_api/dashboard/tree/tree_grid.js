// A tree of many rows as a table with the keyboard of the ARIA pattern "treegrid". Only the rows in view are elements.

import { element } from "../dom.js";

const ROW_PX = 40; // As `--row` in style.css.
const AROUND = 6; // Rows above and below the view, so that scrolling shows no gap.
let rows = 0; // That were made.

/**
 * The grid. `columns`: `title`, `class`, and `text(item)`; the first one has the tree. `onOpen(item)`, `onToggle(item)`
 * are called for what the user chooses. `isCollapsed(item)` says whether the rows below are hidden.
 */
export class TreeGrid {
  #columns;
  #rows = [];
  #pool = [];
  #active = null; // The name of the active row.
  #isDrawing = false;

  constructor(label, columns, { onOpen, onToggle, isCollapsed }) {
    this.#columns = columns;
    Object.assign(this, { onOpen, onToggle, isCollapsed });
    this.space = element("div", { class: "space", role: "rowgroup" });
    const heads = columns.map((each) =>
      element("div", { role: "columnheader", class: `cell ${each.class}` }, each.title));
    this.box = element("div", {
      class: "grid", role: "treegrid", tabindex: "0", "aria-label": label, "aria-colcount": columns.length,
      onkeydown: (event) => this.#key(event),
      onscroll: () => this.#drawSoon(),
      onclick: (event) => this.#click(event),
    },
    element("div", { role: "rowgroup", class: "heads" }, element("div", { role: "row", class: "row" }, ...heads)),
    this.space);
    this.observer = new ResizeObserver(() => this.#drawSoon());
    this.observer.observe(this.box);
  }

  /** Shows these items (of forest.js). */
  show(rows) {
    this.#rows = rows;
    this.space.style.height = `${rows.length * ROW_PX}px`;
    this.box.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#draw();
  }

  /** Ends it. */
  close() {
    this.observer.disconnect();
  }

  #drawSoon() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#isDrawing = false;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_PX) - AROUND);
    const end = Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW_PX) + AROUND;
    const last = Math.min(this.#rows.length, end);
    const size = last - first;
    while (this.#pool.length < size) this.#pool.push(this.#newRow());
    while (this.#pool.length > size) this.#pool.pop().row.remove();
    let active = null;
    for (let index = first; index < last; index += 1) {
      // A row keeps its element while it is in view.
      const place = this.#pool[index % size];
      this.#fill(place, this.#rows[index], index);
      if (this.#rows[index].node.name === this.#active) active = place.row.id;
    }
    set(this.box, "aria-activedescendant", active);
  }

  #newRow() {
    const toggle = element("span", { class: "toggle", "aria-hidden": "true" });
    const name = element("span", { class: "name" });
    const cells = this.#columns.map((each, index) =>
      element("div", { role: index ? "gridcell" : "rowheader", class: `cell ${each.class}` }));
    cells[0].append(toggle, name);
    const row = element("div", { role: "row", class: "row", id: `node-row-${++rows}` }, ...cells);
    this.space.append(row);
    return { row, cells, toggle, name };
  }

  #fill({ row, cells, toggle, name }, item, index) {
    row.style.transform = `translateY(${index * ROW_PX}px)`;
    row.dataset.index = index;
    const hasChildren = item.children.length > 0;
    const isCollapsed = hasChildren && this.isCollapsed(item);
    set(row, "aria-rowindex", index + 2);
    set(row, "aria-level", item.level);
    set(row, "aria-posinset", item.position);
    set(row, "aria-setsize", item.siblings);
    set(row, "aria-expanded", hasChildren ? String(!isCollapsed) : null);
    set(row, "aria-selected", String(item.node.name === this.#active));
    row.classList.toggle("silent", item.node.is_silent);
    toggle.textContent = hasChildren ? (isCollapsed ? "▸" : "▾") : "";
    cells[0].style.paddingInlineStart = `${Math.min(item.level - 1, 12) * 18 + 6}px`;
    this.#columns.forEach((column, place) => {
      const cell = place === 0 ? name : cells[place];
      const text = column.text(item, isCollapsed);
      if (cell.textContent !== text) cell.textContent = text;
      if (place === 1) set(cell, "title", text || null);
    });
  }

  #click(event) {
    const row = event.target.closest(".space .row");
    if (row === null) return;
    const item = this.#rows[Number(row.dataset.index)];
    this.#active = item.node.name;
    if (event.target.classList.contains("toggle") && item.children.length) this.onToggle(item);
    else this.onOpen(item);
    this.#draw();
  }

  #key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const at = this.#rows.findIndex((each) => each.node.name === this.#active);
    const item = this.#rows[at];
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_PX) - 2);
    const isOpen = item?.children.length > 0 && !this.isCollapsed(item);
    const moves = {
      ArrowDown: () => at + 1,
      ArrowUp: () => at - 1,
      PageDown: () => at + page,
      PageUp: () => at - page,
      Home: () => 0,
      End: () => this.#rows.length - 1,
      ArrowRight: () => {
        if (item?.children.length && !isOpen) this.onToggle(item);
        return isOpen ? at + 1 : at;
      },
      ArrowLeft: () => {
        if (isOpen) this.onToggle(item);
        return !isOpen && item?.parent ? this.#rows.indexOf(item.parent) : at;
      },
      Enter: () => {
        if (item) this.onOpen(item);
        return at;
      },
    };
    if (!Object.hasOwn(moves, event.key) || this.#rows.length === 0) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(moves[event.key](), this.#rows.length - 1));
    this.#active = this.#rows[to].node.name;
    this.#scrollTo(to);
    this.#draw();
  }

  #scrollTo(index) {
    const top = index * ROW_PX;
    const height = this.box.clientHeight - ROW_PX; // The headers stay in view.
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW_PX > this.box.scrollTop + height) this.box.scrollTop = top + ROW_PX - height;
  }
}

function set(target, name, value) {
  if (value === null) target.removeAttribute(name);
  else if (target.getAttribute(name) !== String(value)) target.setAttribute(name, value);
}
