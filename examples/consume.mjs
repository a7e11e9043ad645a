// Consume a queue from Node, with nothing but its standard library (18 or newer).
//
//   PARTQ_URL=http://127.0.0.1:7411 PARTQ_QUEUE=orders PARTQ_GROUP=workers \
//   PARTQ_TOKEN=... node examples/consume.mjs [--stop-after 100]
//
// One broker's URL is enough: each pull names the others. Every broker delivers the partitions that
// it owns, so there is one loop per broker. Ctrl-C and SIGTERM: the member leaves, and continues until
// its partitions have been handed over.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({ options: { "stop-after": { type: "string" } } });
const stopAfter = Number(options["stop-after"] ?? Infinity);
const { PARTQ_URL, PARTQ_TOKEN, PARTQ_QUEUE = "orders", PARTQ_GROUP = "workers" } = process.env;
const path = `/v1/queues/${PARTQ_QUEUE}/groups/${PARTQ_GROUP}`;

const member = process.env.PARTQ_MEMBER ?? `node-${hostname()}-${process.pid}`;
const incarnation = randomUUID();
const waitMs = 1000;

let processed = 0;
let leaveBy = null; // set once the member leaves: then it waits no longer for its relief
const loops = new Map(); // by URL

const leave = () => (leaveBy ??= Date.now() + 30_000);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Make a call; throws with the broker's code when it is refused. */
async function call(method, url, body) {
  const response = await fetch(url, {
    method,
    headers: { Authorization: `Bearer ${PARTQ_TOKEN}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(waitMs + 30_000),
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
async function processAll(url, { flow, messages }) {
  const acks = new Map(); // by partition: everything below `upto`
  const nacks = new Map();
  for (const message of messages) {
    const { partition, broker_epoch, epoch, delivery, offset } = message;
    if (nacks.has(partition)) continue;
    try {
      await handle(message);
      acks.set(partition, { partition, broker_epoch, epoch, delivery, upto: offset + 1 });
      processed += 1;
    } catch (error) {
      console.error(`${partition}/${offset}: ${error.message}`);
      nacks.set(partition, { partition, broker_epoch, epoch, delivery, offsets: [offset] });
    }
  }
  // A refused ack (`fenced`): the partition has moved meanwhile; its new owner gets the messages.
  if (acks.size) await call("POST", `${url}${path}/acks`, { member, flow, acks: [...acks.values()] });
  if (nacks.size) await call("POST", `${url}${path}/nacks`, { member, flow, nacks: [...nacks.values()] });
}

/** Pull from one broker until the member has left. */
async function consume(url) {
  let last = null;
  let left = null; // the flow that was told
  while (true) {
    try {
      if (leaveBy && last !== null && left !== last.flow) {
        await call("DELETE", `${url}${path}/members/${member}?flow=${last.flow}`);
        left = last.flow;
      }
      const pulled = await call("POST", `${url}${path}/pull`, {
        member, incarnation, wait_ms: waitMs, last_answer: last?.answer ?? null,
      });
      for (const other of pulled.others) start(other);
      await processAll(url, pulled);
      last = pulled;
      if (processed >= stopAfter) leave();
      if (left === pulled.flow && (pulled.held.length === 0 || Date.now() > leaveBy)) return;
    } catch (error) {
      // Not listed yet, the broker is gone, the flow is over: ask again. A wrong token stays wrong.
      if (error.isFinal) throw error;
      if (leaveBy) return;
      last = null;
      await pause(200);
    }
  }
}

function start(url) {
  if (!loops.has(url)) loops.set(url, consume(url));
}

for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, leave);
start(PARTQ_URL.split(",")[0]);
for (const loop of loops.values()) await loop; // a loop may start others meanwhile
console.log(`${processed} processed at ${loops.size} brokers`);
