// Values of messages as text, JSON, hex or base64; all are cut, and none is ever HTML.

export const MAX_SHOWN_BYTES = 16 * 1024;
const ROW_BYTES = 16;
const INDENT = 2;
const MAX_DEPTH = 40; // Deeper levels are indented no further: a text of brackets would grow a thousandfold.
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

const decodeText = (bytes) =>
  // As a stream, which leaves out a character that is cut in its middle.
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: true });

/** Return a message with its value as `bytes`, cut, with `size` and `isText`: pages are kept. */
export function keepValue(message) {
  const { value, value_base64: base64, ...rest } = message;
  if (base64 !== undefined) {
    const bytes = Uint8Array.from(atob(base64.slice(0, 4 * Math.ceil(MAX_SHOWN_BYTES / 3))), (c) => c.charCodeAt(0));
    const size = (base64.length / 4) * 3 - (base64.match(/=*$/)[0].length);
    return { ...rest, bytes: bytes.slice(0, MAX_SHOWN_BYTES), size, isText: false };
  }
  const all = new TextEncoder().encode(value ?? "");
  return { ...rest, bytes: all.slice(0, MAX_SHOWN_BYTES), size: all.length, isText: true };
}

/**
 * Return JSON with a line per field; null: it is not an object or array in JSON.
 *
 * The tokens stay as they are: numbers beyond 2^53 would change on their way through a value.
 */
export function prettyJson(text) {
  try {
    const found = JSON.parse(text);
    if (found === null || typeof found !== "object") return null;
  } catch (error) {
    return null;
  }
  const tokens = text.match(TOKENS);
  const line = (depth) => `\n${" ".repeat(INDENT * Math.min(depth, MAX_DEPTH))}`;
  const parts = [];
  let depth = 0;
  tokens.forEach((token, at) => {
    const before = tokens[at - 1];
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") parts.push(line(depth));
    } else if (before === "{" || before === "[" || before === ",") {
      parts.push(line(depth));
    }
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
  });
  return parts.join("");
}

const hexOf = (byte) => byte.toString(16).padStart(2, "0");

function hexRows(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += ROW_BYTES) {
    const row = [...bytes.slice(at, at + ROW_BYTES)];
    const letters = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${row.map(hexOf).join(" ").padEnd(3 * ROW_BYTES)} ${letters}`);
  }
  return rows.join("\n");
}

/** Return the text of a value in a format: auto, text, hex or base64. */
export function renderValue({ bytes, size, isText }, format) {
  if (format === "hex" || (format === "auto" && !isText)) return hexRows(bytes);
  if (format === "base64") return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const text = decodeText(bytes);
  return (format === "auto" && size === bytes.length && prettyJson(text)) || text;
}

/** Return the beginning of a value for one line of a table. */
export function previewOf({ bytes, size, isText }, chars) {
  if (!isText) return `binary: ${[...bytes.slice(0, ROW_BYTES)].map(hexOf).join(" ")}`;
  const text = decodeText(bytes.slice(0, 4 * chars)).replace(/\s+/g, " ");
  return text.length > chars || size > 4 * chars ? `${text.slice(0, chars)} ...` : text;
}
