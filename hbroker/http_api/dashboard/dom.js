// Makes elements. A string becomes a text node, so nothing that comes from the network is read as HTML.

const PROPERTIES = new Set(["checked", "disabled", "hidden", "value"]);

/**
 * An element with attributes and children. `onclick: f` adds a listener. An attribute that is null or false is
 * left out. A child is a node or a text; null is left out.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) made[name] = value;
    else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * A table. `columns`: of each its `title`, its `cell(item)` (a text or a node), and whether it is a `number`.
 * The first column has the headers of the rows. Returns the element, and `fill(items)`.
 */
export function table(caption, columns, empty = "None.") {
  const body = element("tbody");
  const head = columns.map((each) =>
    element("th", { scope: "col", class: each.number ? "number" : null }, each.title));
  const box = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, ...head)), body));
  const row = (item) => element("tr", {}, ...columns.map((column, index) => {
    const attributes = { class: [column.number ? "number" : "", column.class ?? ""].join(" ").trim() || null };
    return index === 0
      ? element("th", { scope: "row", ...attributes }, column.cell(item))
      : element("td", attributes, column.cell(item));
  }));
  const fill = (items) => {
    const none = element("tr", {}, element("td", { colspan: columns.length, class: "none" }, empty));
    body.replaceChildren(...(items.length ? items.map(row) : [none]));
  };
  return { box, body, row, fill };
}

let fields = 0;

/** A control with its label above it. `hint`: what it means. */
export function field(label, control, hint = null) {
  const id = `field-${++fields}`;
  control.id = id;
  if (hint !== null) control.setAttribute("aria-describedby", `${id}-hint`);
  return element("div", { class: "field" },
    element("label", { for: id }, label), control,
    hint === null ? null : element("small", { id: `${id}-hint` }, hint));
}

/** A box to check, with its label behind it. */
export function checkbox(label, control) {
  control.type = "checkbox";
  return element("label", { class: "check" }, control, label);
}

/** A menu of values: [value, text] each. */
export function select(choices) {
  return element("select", {}, ...choices.map(([value, text]) => element("option", { value }, text)));
}

/** A short word on a coloured ground. `kind`: good, warn, bad or none. */
export function badge(text, kind = "none") {
  return element("span", { class: `badge ${kind}` }, text);
}

/** Says something to the user, and to screen readers. */
export function announce(text) {
  const status = document.getElementById("status");
  status.textContent = text;
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => { status.textContent = ""; }, 6_000);
}

/** Where an error is shown. `show(error)`; null removes it. */
export function errorBox() {
  const box = element("p", { class: "error", role: "alert", hidden: true });
  return { box, show: (error) => { box.hidden = error === null; box.textContent = error?.message ?? ""; } };
}
