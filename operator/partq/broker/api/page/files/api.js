// Calls the broker: the token goes into a header, and is kept by this tab alone.

const KEY = "partq-token";
const WAIT_MS = 10000;

const meta = (name) => document.querySelector(`meta[name="partq-${name}"]`).content;
export const queue = meta("queue");
export const namespace = meta("namespace");

export const token = {
  get: () => sessionStorage.getItem(KEY),
  keep: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** A refusal of the broker; `status` 0: it has not answered. */
export class CallError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Say why a call has failed, and which role `what` needs if the token has another one. */
export function explain(error, what, role = "admin") {
  return error.status === 403 ? `${what} needs a token of the role ${role}. ${error.message}` : error.message;
}

/** Make a call below the queue's path and return its JSON. */
export async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${token.get()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`/v1/queues/${encodeURIComponent(queue)}${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(WAIT_MS),
    });
    if (response.ok) return await response.json();
  } catch (error) {
    throw new CallError(0, `The broker at ${location.host} does not answer.`);
  }
  let said = `${location.host} answered with status ${response.status}.`;
  try {
    said = (await response.json()).error.message;
  } catch (error) {
    // What stands between page and broker has answered; its status has to do.
  }
  throw new CallError(response.status, said);
}
