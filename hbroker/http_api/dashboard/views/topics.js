// The topics with the most messages, and of each node all others together.

import { element, errorBox, field, table } from "../dom.js";
import { bytes, rate } from "../format.js";

export const title = "Topics";
export const seesNetwork = true;

const PERIOD_MS = 10_000; // A node says them every ten seconds.

const COLUMNS = [
  { title: "Topic", class: "text", cell: (each) => each.topic ?? "(all others of the node)" },
  { title: "Node", cell: (each) => each.node },
  { title: "In/s", number: true, cell: (each) => rate(each.messages_received) },
  { title: "Out/s", number: true, cell: (each) => rate(each.messages_sent) },
  { title: "Bytes in/s", number: true, cell: (each) => bytes(each.bytes_received) },
  { title: "Bytes out/s", number: true, cell: (each) => bytes(each.bytes_sent) },
];

export function open(view, { api }, signal) {
  const most = element("input", { type: "number", min: "1", max: "1000", value: "50" });
  const error = errorBox();
  const { box, fill } = table("Topics", COLUMNS, "None: nodes have no telemetry, or no message has passed.");
  const form = element("form", { class: "bar" }, field("At most", most), element("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  most.addEventListener("change", load);
  view.append(form, error.box, box, element("p", { class: "note" },
    "Of the last ten seconds. A node names at most 20 topics."));

  async function load() {
    if (!form.reportValidity()) return;
    try {
      fill((await api.get("topics", { limit: most.value }, signal)).items);
      error.show(null);
    } catch (problem) {
      if (problem.name !== "AbortError") error.show(problem);
    }
  }

  const timer = setInterval(() => { if (!document.hidden) load(); }, PERIOD_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  load();
}
