// The gateways that are present.

import { element } from "../dom.js";
import { dateTime } from "../format.js";
import { pagedTable } from "../paged_table.js";

export const title = "Gateways";
export const seesNetwork = true;

export function open(view, { api }, signal) {
  const { whole, load } = pagedTable("Gateways", [
    { title: "Name", cell: (each) => each.name },
    { title: "Listens at", class: "text", cell: (each) => each.listeners.join(", ") },
    { title: "Started", cell: (each) => dateTime(new Date(each.since_us / 1_000)) },
  ], (cursor, limit) => api.get("gateways", { cursor, limit }, signal), "No gateway is present.");
  view.append(
    element("div", { class: "bar" }, element("button", { type: "button", onclick: load }, "Ask again")), whole);
  load();
}
