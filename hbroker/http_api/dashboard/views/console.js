// Publishes messages, and follows those of a filter.

import { announce, checkbox, element, errorBox, field, select, table } from "../dom.js";
import { clock, count, payload } from "../format.js";

export const title = "Console";

const MOST = 500; // Messages that are shown.
const QOS = [["0", "0"], ["1", "1"], ["2", "2"]];

export function open(view, context, signal) {
  view.append(publisher(context), follower(context, signal));
}

function publisher({ api }) {
  const topic = element("input", { required: true, name: "topic", autocomplete: "off" });
  const text = element("textarea", { rows: "3", name: "payload", spellcheck: "false" });
  const qos = select(QOS);
  qos.value = "1";
  const retain = element("input", { type: "checkbox" });
  const error = errorBox();
  const button = element("button", { type: "submit", class: "primary" }, "Publish");
  const form = element("form", { class: "card", "aria-label": "Publish" },
    element("h2", {}, "Publish"), field("Topic", topic), field("Payload", text),
    element("div", { class: "bar" }, field("QoS", qos), checkbox("Retain", retain), button), error.box);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const sent = { topic: topic.value, payload: text.value, qos: Number(qos.value), retain: retain.checked };
      const { subscribers } = await api.post("messages", sent);
      const heard = subscribers === null ? "" : `${subscribers ? "Somebody" : "Nobody"} is subscribed to it.`;
      announce(`Published to ${sent.topic}. ${heard}`);
      error.show(null);
    } catch (problem) {
      error.show(problem);
    }
    button.disabled = false;
  });
  return form;
}

function follower({ api }, signal) {
  const filter = element("input", { required: true, name: "filter", value: "#", autocomplete: "off" });
  const qos = select(QOS);
  qos.value = "1";
  const follow = element("button", { type: "submit", class: "primary" }, "Follow");
  const pause = element("button", { type: "button", "aria-pressed": "false", onclick: togglePause }, "Pause");
  const clear = element("button", { type: "button", onclick: () => { waiting = []; fill([]); } }, "Clear");
  const state = element("p", { class: "note" });
  const error = errorBox();
  const { box, body, row, fill } = table("Messages", [
    { title: "Time", cell: (each) => clock(each.at) },
    { title: "Topic", class: "text topic", cell: (each) => each.topic },
    { title: "Payload", class: "text payload", cell: (each) => each.text },
    { title: "QoS", number: true, cell: (each) => String(each.qos) },
    { title: "Retained", cell: (each) => (each.retain ? "yes" : "") },
  ], "None yet.");
  fill([]);
  let following = null; // Ends the stream.
  let received = 0;
  let waiting = []; // Those that are not drawn yet.
  let isDue = false;
  let isPaused = false;

  function togglePause() {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    drawSoon();
  }

  function take(data) {
    const { payload_base64, ...message } = JSON.parse(data);
    received += 1;
    // Only what is shown is kept.
    waiting.push({ at: new Date(), topic: message.topic, qos: message.qos, retain: message.retain,
      text: payload({ ...message, payload_base64 }) });
    if (waiting.length > MOST) waiting.shift();
    drawSoon();
  }

  function drawSoon() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(draw);
  }

  function draw() {
    isDue = false;
    const running = following === null ? "" : `following ${filter.value}: `;
    const held = isPaused ? `, paused; ${count(waiting.length)} wait` : "";
    state.textContent = `${running}${count(received)} received${held}`;
    if (isPaused || waiting.length === 0) return;
    const rows = waiting.reverse().map(row);
    waiting = [];
    body.querySelector(".none")?.parentElement.remove();
    body.prepend(...rows);
    while (body.rows.length > MOST) body.lastChild.remove();
  }

  async function run() {
    const mine = new AbortController();
    following = mine;
    received = 0;
    follow.textContent = "Stop";
    filter.readOnly = true;
    error.show(null);
    drawSoon();
    try {
      const query = { filter: filter.value, qos: qos.value };
      const onOpen = () => announce(`Following ${filter.value}.`);
      const both = AbortSignal.any([signal, mine.signal]);
      for await (const { name, data } of api.stream("messages", { query, signal: both, onOpen })) {
        if (name === "message") take(data);
        else error.show(new Error(data));
      }
    } catch (problem) {
      if (problem.name !== "AbortError") error.show(problem);
    }
    following = null;
    filter.readOnly = false;
    follow.textContent = "Follow";
    drawSoon();
  }

  const form = element("form", { class: "bar" },
    field("Topic filter", filter), field("QoS", qos), follow, pause, clear, state);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (following === null) run();
    else following.abort();
  });
  return element("section", { class: "card", "aria-label": "Follow" },
    element("h2", {}, "Follow"), form, error.box, box,
    element("p", { class: "note" }, `The newest ${count(MOST)} are shown. Long payloads are cut.`));
}
