// The retained messages of a filter.

import { confirm } from "../dialogs.js";
import { element, field } from "../dom.js";
import { payload } from "../format.js";
import { pagedTable } from "../paged_table.js";

export const title = "Retained";

export function open(view, { api }, signal) {
  const filter = element("input", { type: "search", name: "filter", required: true, value: "#" });
  const { whole, load } = pagedTable("Retained messages", [
    { title: "Topic", class: "text topic", cell: (each) => each.topic },
    { title: "Payload", class: "text payload", cell: payload },
    { title: "QoS", number: true, cell: (each) => String(each.qos) },
    { title: "Action", cell: clear },
  ], (cursor, limit) => api.get("retained", { filter: filter.value.trim(), cursor, limit }, signal), "None matches.");

  function clear({ topic }) {
    const ask = () => confirm("Delete the retained message?", [
      element("p", {}, "New subscribers of this topic get none any more:"), element("p", { class: "text" }, topic),
    ], "Delete", async () => {
      await api.post("retained/clear", { topic });
      load();
      return `The retained message of ${topic} is deleted.`;
    }, { isDangerous: true });
    const name = `Delete the message of ${topic}`;
    return element("button", { type: "button", "aria-label": name, onclick: ask }, "Delete…");
  }

  const form = element("form", { class: "bar" },
    field("Topic filter", filter, "as home/+/oven/#"), element("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  view.append(form, whole);
  load();
}
