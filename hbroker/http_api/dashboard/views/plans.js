// Plans: what a topology file would move, and the load that it predicts for each node beside that of now.

import { confirm } from "../dialogs.js";
import { badge, element, errorBox, field, table } from "../dom.js";
import { duration, percent } from "../format.js";

export const title = "Plans";
export const seesNetwork = true;

const PERIOD_MS = 1_000;
const KINDS = { waiting: "none", running: "warn", done: "good", failed: "bad" };

const MOVES = [
  { title: "Subtree", class: "text", cell: (each) => each.subtree },
  { title: "From", cell: (each) => each.source ?? "" },
  { title: "To", cell: (each) => each.target ?? "(the node around it)" },
  { title: "State", cell: (each) => badge(each.state, KINDS[each.state]) },
  { title: "Took", number: true, cell: (each) => (each.seconds === null ? "" : duration(each.seconds)) },
  { title: "Why it failed", class: "text", cell: (each) => each.error ?? "" },
];
const LOADS = [
  { title: "Node", cell: (each) => each.node },
  { title: "Predicted", number: true, cell: (each) => (each.predicted === null ? "" : percent(each.predicted)) },
  { title: "Now", number: true, cell: (each) => percent(each.load) },
  { title: "CPU", number: true, cell: (each) => percent(each.cpu_seconds) },
];

export function open(view, { api, caller }, signal) {
  const topology = element("textarea", { rows: "8", spellcheck: "false", required: true });
  const file = element("input", { type: "file", accept: ".yaml,.yml" });
  const error = errorBox();
  const result = element("div", { class: "result" });
  const form = element("form", { class: "card", "aria-label": "Try a plan" },
    element("p", { class: "note" },
      "A topology file, as `hbroker analyze` writes it. Its subtrees are compared with those that nodes own now."),
    field("File", file), field("Topology", topology),
    element("div", { class: "actions" }, element("button", { type: "submit", class: "primary" }, "Try")), error.box);
  file.addEventListener("change", async () => {
    if (file.files.length) topology.value = await file.files[0].text();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => shown(await api.post("plans", { topology: topology.value, dry_run: true })));
  });
  view.append(...(caller.changes_network ? [form] : [element("p", {}, "Your token does not allow to move subtrees.")]),
    result);

  async function attempt(work) {
    try {
      await work();
      error.show(null);
    } catch (problem) {
      if (problem.name !== "AbortError") error.show(problem);
    }
  }

  function shown(plan) {
    const moves = table("Moves", MOVES, "Nothing: nodes own what the file says.");
    const loads = table("Loads", LOADS);
    moves.fill(plan.moves);
    loads.fill(plan.loads);
    const says = { dry_run: "This would be moved", running: "Moving", done: "Done", failed: "Failed" }[plan.state];
    result.replaceChildren(
      element("h2", {}, says),
      element("p", { role: "status" }, plan.error ?? (plan.state === "running" ? plan.step : "")),
      moves.box,
      ...(plan.loads.length ? [element("h2", {}, "Load of the nodes, predicted and now"), loads.box] : []),
      ...(plan.state === "dry_run" && plan.moves.length ? [element("div", { class: "actions" }, carryOut(plan))] : []));
  }

  function carryOut(plan) {
    const ask = () => confirm(`Move ${plan.moves.length} subtrees?`, [
      element("p", {}, "One after the other, while they are in use. Publishers of a subtree wait for less than a second."),
    ], "Move", async () => {
      const begun = await api.post("plans", { topology: topology.value });
      follow(begun);
      return "The plan is being carried out.";
    });
    return element("button", { type: "button", class: "primary", onclick: ask }, "Carry out…");
  }

  function follow(plan) {
    shown(plan);
    if (plan.state !== "running" || signal.aborted) return;
    setTimeout(() => attempt(async () => follow(await api.get(`plans/${plan.id}`, {}, signal))), PERIOD_MS);
  }

  attempt(async () => {
    const { items } = await api.get("plans", { limit: 100 }, signal);
    const running = items.find((each) => each.state === "running");
    if (running !== undefined) follow(running);
  });
}
