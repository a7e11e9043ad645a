// Texts and elements: everything shown is set as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** Return a new element with a class and a text. */
export function make(tag, classes = "", text = "") {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== "") element.textContent = text;
  return element;
}

/** Set a text where it differs: a screen reader reads again what is set again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Have as many children as there are items, and fill each one. */
export function fill(parent, items, create, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(create());
  items.forEach((item, at) => update(parent.children[at], item, at));
}

/** Keep the options of a select, and its choice while it is one of them. */
export function fillSelect(select, options) {
  const chosen = select.value;
  const same = select.options.length === options.length &&
    options.every(([value, text], at) => {
      const option = select.options[at];
      return option.value === value && option.textContent === text;
    });
  if (same) return;
  fill(select, options, () => make("option"), (option, [value, text]) => {
    option.value = value;
    say(option, text);
  });
  if (options.some(([value]) => value === chosen)) select.value = chosen;
  else select.selectedIndex = options.length ? 0 : -1;
}

export const number = (value) => value.toLocaleString("en");
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function age(ms) {
  if (ms < 1000) return `${ms} ms`;
  const s = ms / 1000;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** Return the first texts of a list that may be long. */
export function firstOf(texts, count = 3) {
  return texts.slice(0, count).join("; ") + (texts.length > count ? "; ..." : "");
}

/** Say how many messages of a partition wait for their redelivery, and how long the next one does. */
export function delayed({ delayed: count, next_redelivery_ms: nextMs }) {
  if (!count) return "";
  return `${number(count)}, the next ${nextMs ? `in ${age(nextMs)}` : "now"}`;
}

export const clock = (date) => date.toLocaleTimeString("en-GB");

/** Return the day and the time of day of a unix time, with milliseconds. */
export function moment(ms) {
  const date = new Date(ms);
  return `${date.toLocaleDateString("sv")} ${clock(date)}.${String(ms % 1000).padStart(3, "0")}`;
}

/** Return the partitions of an object by generation and number. */
export function inOrder(names) {
  const parts = (name) => name.split(".").map(Number);
  return [...names].sort((a, b) => {
    const [first, second] = [parts(a), parts(b)];
    return first[0] - second[0] || first[1] - second[1];
  });
}
