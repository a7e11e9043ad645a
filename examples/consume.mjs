// Consume a queue from Node, with nothing but its standard library (18 or newer).
//
//   PARTQ_URL=http://127.0.0.1:7411 PARTQ_QUEUE=orders PARTQ_GROUP=workers \
//   PARTQ_TOKEN=... node examples/consume.mjs [--stop-after 100]
//
// One broker's URL is enough: it pulls from the others, and passes acks on to them. Several, with
// commas between them, let the member continue when that broker ends. Ctrl-C and SIGTERM: the member
// leaves, and continues until its partitions have been handed over.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({ options: { "stop-after": { type: "string" } } });
const stopAfter = Number(options["stop-after"] ?? Infinity);
const { PARTQ_URL, PARTQ_TOKEN, PARTQ_QUEUE = "orders", PARTQ_GROUP = "workers" } = process.env;
const urls = PARTQ_URL.split(",").map((url) => `${url}/v1/queues/${PARTQ_QUEUE}/groups/${PARTQ_GROUP}`);

const member = process.env.PARTQ_MEMBER ?? `node-${hostname()}-${process.pid}`;
const pull = { member, incarnation: randomUUID(), all_brokers: true, wait_ms: 1000 };

let processed = 0;
let leaveBy = null; // set once the member leaves: then it waits no longer for its relief

const leave = () => (leaveBy ??= Date.now() + 30_000);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Make a call; throws with the broker's code when it is refused. */
async function call(method, path, body) {
  const response = await fetch(urls[0] + path, {
    method,
    headers: { Authorization: `Bearer ${PARTQ_TOKEN}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  const answer = await response.json();
  if (!response.ok) {
    const error = new Error(`${answer.error.code}: ${answer.error.message}`);
    error.isFinal = [400, 401, 404].includes(response.status) || answer.error.code === "forbidden";
    throw error;
  }
  return answer;
}

/** Process one message. Throw, and it is redelivered, with all behind it of its partition. */
async function handle(message) {
  console.log(`${message.key}: ${message.value}, partition ${message.partition}`);
}

/** Acknowledge what was processed; a message that failed is given back, with all behind it. */
async function processAll(messages) {
  const done = [];
  const failed = new Map(); // by partition
  for (const message of messages) {
    if (failed.has(message.partition)) continue;
    try {
      await handle(message);
      done.push(message.receipt);
    } catch (error) {
      console.error(`${message.partition}/${message.offset}: ${error.message}`);
      failed.set(message.partition, message.receipt);
    }
  }
  processed += done.length;
  // A refused receipt (`fenced`): the partition has moved meanwhile; its new owner gets the message.
  if (done.length) await call("POST", "/acks", { receipts: done });
  if (failed.size) await call("POST", "/nacks", { receipts: [...failed.values()] });
}

for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, leave);
while (true) {
  try {
    if (leaveBy) await call("DELETE", `/members/${member}`);
    const { messages, held, failed } = await call("POST", "/pull", pull);
    await processAll(messages);
    if (processed >= stopAfter) leave();
    if (leaveBy && held.length === 0 && Object.keys(failed).length === 0) break;
  } catch (error) {
    // Not listed yet, or the broker is gone: ask again, the next one. A wrong token stays wrong.
    if (error.isFinal) throw error;
    urls.push(urls.shift());
    await pause(200);
  }
  if (leaveBy && Date.now() > leaveBy) break;
}
console.log(`${processed} processed`);
