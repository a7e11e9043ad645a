// Reads logs backwards: the newest message of several partitions first, by the time of storing.

import { call } from "./api.js";
import { keepValue } from "./values.js";

const CALL_PARTITIONS = 64;
const CALL_BYTES = 2 * 1024 * 1024; // Of one answer, over its partitions.
const MIN_BYTES = 16 * 1024;
const MAX_CALLS = 64;
const MAX_SCANNED = 10000;
const MAX_CHUNK = 500;
const AHEAD = 2; // Partitions are never equally full: this many times an equal share is read.

/** Return what was found per partition by calls with a part of the names each. */
export async function inParts(names, size, ask) {
  const found = {};
  for (let at = 0; at < names.length; at += size) {
    Object.assign(found, (await ask(names.slice(at, at + size))).partitions);
  }
  return found;
}

/** The messages of some partitions that were stored until a time, read page by page. */
export class NewestFirst {
  #parts;
  #isVoid;

  /** Find where to begin; `isVoid` says whether nobody waits for the messages any more. */
  static async open(names, untilMs, isVoid) {
    const from = untilMs === null ? { to: "latest" } : { at_ms: untilMs + 1 };
    const found = await inParts(names, 1024, (partitions) =>
      call("POST", "/positions", { ...from, partitions }));
    return new NewestFirst(found, isVoid);
  }

  constructor(positions, isVoid) {
    this.#isVoid = isVoid;
    this.#parts = Object.entries(positions).map(([name, each]) => ({
      name,
      first: each.first ?? 0,
      low: each.offset ?? 0, // All messages from here on were read, or are not asked for.
      chunk: MAX_CHUNK,
      read: [], // Messages from `low` on that were not returned yet; the newest is the last.
      error: each.error?.message ?? "",
    }));
  }

  /** Why partitions are left out. */
  get errors() {
    return this.#parts.filter((part) => part.error).map((part) => `${part.name}: ${part.error}`);
  }

  /** Return the next messages that `accepts` takes, and whether older ones may follow. */
  async page(count, accepts) {
    const messages = [];
    let calls = 0;
    let scanned = 0;
    while (messages.length < count) {
      const empty = this.#parts.filter((part) => !part.error && !part.read.length && part.low > part.first);
      if (empty.length) {
        if (calls >= MAX_CALLS || scanned >= MAX_SCANNED) break;
        calls += 1;
        await this.#fill(empty.slice(0, CALL_PARTITIONS), accepts ? MAX_CHUNK : count);
        if (this.#isVoid()) break;
        continue;
      }
      const newest = this.#newest();
      if (newest === null) return { messages, scanned, hasMore: false };
      const message = newest.read.pop();
      scanned += 1;
      if (!accepts || accepts(message)) messages.push(message);
    }
    return { messages, scanned, hasMore: true };
  }

  #newest() {
    let newest = null;
    for (const part of this.#parts) {
      if (!part.read.length) continue;
      if (newest === null || part.read.at(-1).publish_time_ms > newest.read.at(-1).publish_time_ms) newest = part;
    }
    return newest;
  }

  /** Read the next older piece of some partitions; a piece that is too large is read smaller next. */
  async #fill(parts, count) {
    const share = Math.ceil((AHEAD * count) / this.#parts.length);
    const starts = new Map();
    for (const part of parts) {
      const size = Math.min(part.chunk, MAX_CHUNK, Math.max(share, 4));
      starts.set(part.name, Math.max(part.first, part.low - size));
    }
    const { partitions } = await call("POST", "/browse", {
      partitions: parts.map((part) => part.name),
      offsets: Object.fromEntries(starts),
      max_messages: Math.max(...parts.map((part) => part.low - starts.get(part.name))),
      max_bytes: Math.max(MIN_BYTES, Math.floor(CALL_BYTES / parts.length)),
      is_merged: false,
    });
    for (const part of parts) {
      const page = partitions[part.name];
      if (page.error) {
        part.error = page.error.message;
      } else if (page.next < part.low && page.why !== "end" && page.rows.length) {
        part.chunk = Math.min(page.rows.length, Math.floor((part.low - starts.get(part.name)) / 2)) || 1;
      } else {
        const found = page.rows.map((row) => row.message).filter((each) => each.offset < part.low);
        part.read = found.map(keepValue);
        part.first = Math.max(part.first, page.first);
        part.low = starts.get(part.name);
        part.chunk = Math.min(MAX_CHUNK, 2 * part.chunk);
      }
    }
  }
}
