// Begins: signs in if the network requires tokens, and shows the view that the address names (`#/tree`).

import { Api, Problem } from "./api.js";
import { element } from "./dom.js";
import { Live } from "./live.js";
import { signIn } from "./sign_in.js";
import * as clients from "./views/clients.js";
import * as console from "./views/console.js";
import * as events from "./views/events.js";
import * as gateways from "./views/gateways.js";
import * as overview from "./views/overview.js";
import * as plans from "./views/plans.js";
import * as retained from "./views/retained.js";
import * as sessions from "./views/sessions.js";
import * as tokens from "./views/tokens.js";
import * as topics from "./views/topics.js";
import * as tree from "./views/tree.js";

const VIEWS = { overview, tree, topics, sessions, clients, gateways, retained, console, plans, events, tokens };

const main = document.getElementById("main");
const navigation = document.getElementById("views");
const connection = document.getElementById("connection");
const signOut = document.getElementById("sign-out");

const api = new Api((detail) => showSignIn(detail));
let session = null; // Ends with the sign-out.
let view = null; // Ends when another view is shown.
let context = null;

async function begin() {
  try {
    run(await api.get("caller"));
  } catch (error) {
    if (error.status !== 401) {
      main.replaceChildren(element("h1", {}, "hbroker"), element("p", { class: "error", role: "alert" }, error.message),
        element("button", { type: "button", onclick: begin }, "Try again"));
    }
  }
}

function showSignIn(reason) {
  const isFirst = api.token === null && session === null;
  end();
  api.token = null;
  document.title = "Sign in – hbroker";
  signIn(main, isFirst ? null : reason, async (token) => {
    const before = api.onUnauthorized;
    api.onUnauthorized = () => {};
    if (!/^[\x21-\x7e]+$/.test(token)) throw new Problem(0, "This is not a token.");
    api.token = token;
    try {
      run(await api.get("caller"));
    } catch (error) {
      api.token = null;
      throw error;
    } finally {
      api.onUnauthorized = before;
    }
  });
}

function run(caller) {
  session = new AbortController();
  context = { api, caller, live: new Live(api, session.signal) };
  signOut.hidden = !caller.has_token;
  navigation.hidden = false;
  navigation.replaceChildren(element("ul", {}, ...Object.entries(VIEWS).map(([name, each]) =>
    element("li", {}, element("a", { href: `#/${name}`, "data-view": name }, each.title)))));
  if (caller.sees_network) {
    context.live.on(["connection", "network"], session.signal, showConnection);
    context.live.start();
  }
  show(false);
}

function end() {
  view?.abort();
  session?.abort();
  session = view = context = null;
  signOut.hidden = navigation.hidden = connection.hidden = true;
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
}

function showConnection() {
  const { network, problem } = context.live;
  connection.hidden = network === null && problem === null;
  connection.classList.toggle("broken", problem !== null);
  const text = problem === null ? `live, root ${network?.root ?? ""}` : `not live: ${problem}`;
  if (connection.textContent !== text) connection.textContent = text;
}

function show(isNavigation) {
  if (context === null) return;
  const [, name] = /^#\/(\w+)$/.exec(location.hash) ?? [];
  const chosen = Object.hasOwn(VIEWS, name ?? "") ? name : "overview";
  view?.abort();
  view = new AbortController();
  for (const link of navigation.querySelectorAll("a")) {
    if (link.dataset.view === chosen) {
      link.setAttribute("aria-current", "page");
      link.parentElement.parentElement.scrollLeft = link.offsetLeft - 60; // On a phone they are in one line.
    } else link.removeAttribute("aria-current");
  }
  const { title, open, seesNetwork } = VIEWS[chosen];
  document.title = `${title} – hbroker`;
  const heading = element("h1", { tabindex: "-1" }, title);
  const content = element("div", { class: `view ${chosen}` });
  main.replaceChildren(heading, content);
  if (seesNetwork && !context.caller.sees_network) {
    content.append(element("p", { class: "error" },
      "Your token does not let you see the network: it cannot read $SYS/#. ",
      "Console, Retained and Tokens work with what it allows."));
  } else {
    open(content, context, view.signal);
  }
  if (isNavigation) {
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

addEventListener("hashchange", () => show(true));
navigation.addEventListener("click", (event) => {
  if (event.target.hash === location.hash) show(true); // Again, with what is there now.
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
signOut.addEventListener("click", () => {
  api.token = null;
  showSignIn(null);
});
begin();
