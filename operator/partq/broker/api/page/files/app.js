// The page: asks for the token once, then for the status again and again while somebody looks.

import { call, token } from "./api.js";
import * as groups from "./groups.js";
import * as handoffs from "./handoffs.js";
import * as map from "./map.js";
import { forgetMarks } from "./members.js";
import * as messages from "./messages.js";
import * as rates from "./rates.js";
import { byId, clock, fillSelect, say } from "./text.js";

const EVERY_MS = 1000;
const MOVING_MS = 250; // While partitions move, and for some time after: a rollout is a series of moves.
const MOVING_FOR_MS = 10000;
const REST = 4; // A page waits for this many times what an answer took: large queues are asked less.
const MAX_WAIT_MS = 5000;
const REFUSED = [401, 403];
const ELSEWHERE = 404; // What has the address now does not serve this queue: the token is not for it.
const VIEWS = { map, groups, handoffs, messages, rates };
const WITHOUT_GROUP = ["messages", "rates"];

let status = null;
let seenAt = null;
let owners = null;
let movedAt = -Infinity;
let failures = 0;
let timer = 0;
let round = 0;

const notice = byId("notice");
const group = byId("group");

function view() {
  const wanted = location.hash.slice(1);
  return Object.hasOwn(VIEWS, wanted) ? wanted : "map";
}

function show() {
  const isIn = token.get() !== null;
  byId("sign-in").hidden = isIn;
  byId("views").hidden = byId("choice").hidden = !isIn;
  const names = status ? Object.keys(status.groups) : [];
  const isShown = isIn && status !== null && (names.length > 0 || WITHOUT_GROUP.includes(view()));
  for (const name of Object.keys(VIEWS)) {
    byId(`view-${name}`).hidden = !isShown || view() !== name;
  }
  for (const link of byId("views").children) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  fillSelect(group, names.map((name) => [name, name]));
  if (isShown) VIEWS[view()].show(status, group.value, show);
}

function tell(text, isBad = false) {
  notice.classList.toggle("bad", isBad);
  say(notice, text);
}

/** Note whether partitions move: a handoff is under way, or a member or an epoch is another one. */
function noteMoves() {
  const groups = Object.entries(status.groups);
  const now = JSON.stringify(groups.map(([name, group]) => [
    name, Object.entries(group.partitions).map(([partition, row]) => [partition, row.member, row.epoch]),
  ]));
  const isUnderWay = groups.some(([, group]) => group.handoffs.length > 0);
  if (isUnderWay || (owners !== null && owners !== now)) movedAt = performance.now();
  owners = now;
}

const period = () => (performance.now() - movedAt < MOVING_FOR_MS ? MOVING_MS : EVERY_MS);

async function look() {
  clearTimeout(timer);
  const mine = ++round;
  if (token.get() === null || document.hidden) return;
  const began = performance.now();
  try {
    const found = await call("GET", `/status?max_age_ms=${period()}`);
    if (mine !== round) return;
    status = found;
    seenAt = new Date();
    failures = 0;
    noteMoves();
    tell(Object.keys(status.groups).length ? "" : "The queue has no consumer group.");
    show();
  } catch (error) {
    if (mine !== round) return;
    if (error.status === undefined) throw error;
    if (REFUSED.includes(error.status)) return signOut(`The broker refuses the token: ${error.message}`);
    if (error.status === ELSEWHERE) return signOut(error.message);
    failures += 1;
    const since = seenAt ? ` The page shows the state of ${clock(seenAt)}.` : "";
    tell(`${error.message}${since} The page tries again.`, true);
  }
  const took = performance.now() - began;
  const wait = failures ? 500 * 2 ** Math.min(failures, 4) : Math.max(period(), REST * took);
  timer = setTimeout(look, Math.min(wait, MAX_WAIT_MS));
}

function signOut(why) {
  clearTimeout(timer);
  round += 1;
  token.forget();
  for (const each of Object.values(VIEWS)) each.forget(); // The next token may show less.
  forgetMarks();
  status = seenAt = owners = null;
  movedAt = -Infinity;
  failures = 0;
  tell("");
  show();
  byId("token").value = "";
  say(byId("token-error"), why);
  byId("token").focus();
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = byId("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(given)) {
    say(byId("token-error"), "A token has letters, digits and signs, and no spaces.");
    return;
  }
  byId("token").value = "";
  say(byId("token-error"), "");
  token.keep(given);
  tell("Asking the broker ...");
  show();
  byId("main").focus();
  look();
});
byId("sign-out").addEventListener("click", () => signOut(""));
group.addEventListener("change", show);
window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", look);
show();
look();
