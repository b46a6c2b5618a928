// A worker that holds the lease of /reports/may and writes a line to it every second, through the gateway.
//
//     node worker.mjs OWNER LINES
//
// Exit codes: 0 all lines are written, 75 another worker has the lease, 76 the lease is lost or the gateway
// refused the token for good, 1 anything else. Node 18 or later, no packages; Linux, for /proc/uptime.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const LEASES = process.env.LEASES ?? "http://127.0.0.1:8081";
const GATEWAY = process.env.GATEWAY ?? "http://127.0.0.1:8080";
const TTL_MS = Number(process.env.TTL_MS ?? 10_000);
const PAUSE_MS = Number(process.env.PAUSE_MS ?? 1000);
const RESOURCE = "/reports/may";
const TRIES = 5;

/** The work is over, with this exit code. */
class Ended extends Error {
  constructor(code, why) {
    super(why);
    this.code = code;
  }
}

/**
 * Milliseconds on a clock that goes on while the machine is suspended. Node has none: performance.now() and
 * process.hrtime() stop then. The kernel shows one (CLOCK_BOOTTIME) in this file, to a hundredth of a second.
 */
function now() {
  return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 1000;
}

/** Taken, and renewed every third of its time until it is released or lost. */
class Lease {
  static async take(owner) {
    // One segment: the slashes of the resource are encoded as well.
    const url = `${LEASES}/v1/leases/${encodeURIComponent(RESOURCE)}`;
    const asked = now();
    const answer = await fetch(url, { method: "POST", body: JSON.stringify({ owner, ttl_ms: TTL_MS }) });
    if (answer.status === 409) throw new Ended(75, `another worker has the lease of ${RESOURCE}`);
    if (answer.status !== 201) throw new Ended(1, `no lease: ${answer.status} ${await answer.text()}`);
    return new Lease(owner, url, asked, await answer.json());
  }

  constructor(owner, url, asked, lease) {
    this.owner = owner;
    this.url = url;
    // A string, and it stays one: a number of JavaScript loses digits above 2^53.
    this.token = lease.token;
    this.over = false;
    this.confirmed(asked, lease);
    this.renewal = setTimeout(() => this.renew(), TTL_MS / 3);
  }

  confirmed(asked, lease) {
    // From before the request was sent: the gateway's own deadline is never earlier than this one.
    this.deadline = asked + lease.ttl_ms;
  }

  /** Whether there is time left to write. Keeps work from being in vain; the gateway is the fence. */
  isLive() {
    return !this.over && now() < this.deadline - TTL_MS / 5;
  }

  async renew() {
    const asked = now();
    const body = JSON.stringify({ owner: this.owner, token: this.token, ttl_ms: TTL_MS });
    const signal = AbortSignal.timeout(Math.floor(TTL_MS / 3));
    let pause = TTL_MS / 20;
    try {
      const answer = await fetch(`${this.url}/renew`, { method: "POST", body, signal });
      if (answer.status === 200) {
        this.confirmed(asked, await answer.json());
        pause = TTL_MS / 3;
      } else if (answer.status < 500) {
        this.over = true;
      }
    } catch {
      // Not answered: again, for as long as the lease may still be there.
    }
    if (now() > this.deadline) this.over = true;
    if (!this.over) this.renewal = setTimeout(() => this.renew(), pause);
  }

  async release() {
    this.over = true;
    clearTimeout(this.renewal);
    const query = new URLSearchParams({ owner: this.owner, token: this.token });
    // If it does not arrive, the lease ends by itself when its time is over.
    await fetch(`${this.url}?${query}`, { method: "DELETE" }).catch(() => {});
  }
}

/** The gateway's own answer, or null if it is the API's. */
async function refusal(answer) {
  if (answer.status < 400 || answer.headers.get("content-type") !== "application/problem+json") return null;
  const problem = await answer.json();
  return "outcome" in problem ? problem : null;
}

/** Writes once; sends again only what certainly did not happen. */
async function write(lease, line) {
  let why;
  for (let attempt = 0; attempt < TRIES; attempt++) {
    if (!lease.isLive()) throw new Ended(76, "the lease is lost");
    const headers = { "Fencing-Token": lease.token, "Content-Type": "text/plain" };
    let answer;
    try {
      answer = await fetch(GATEWAY + RESOURCE, { method: "PUT", headers, body: line, redirect: "manual" });
    } catch (error) {
      throw new Ended(1, `no answer, it may have happened: ${error.cause ?? error}`);
    }
    const problem = await refusal(answer);
    if (problem === null) {
      if (!answer.ok) throw new Ended(1, `the API answered ${answer.status}`);
      await answer.arrayBuffer();
      return;
    }
    why = `${problem.code}: ${problem.detail}`;
    // Another worker has taken over: final, whatever is tried.
    if (answer.status === 403 || answer.status === 412) throw new Ended(76, why);
    if (problem.outcome !== "not_forwarded") throw new Ended(1, `it may have happened, look at the API first: ${why}`);
    if (answer.headers.get("x-should-retry") === "false") throw new Ended(1, why);
    await sleep(Number(answer.headers.get("retry-after") ?? 1) * 1000);
  }
  throw new Ended(1, `gave up after ${TRIES} tries: ${why}`);
}

async function main(owner, lines) {
  const lease = await Lease.take(owner);
  console.log(`${owner} has the lease, with token ${lease.token}`);
  try {
    for (let line = 1; line <= lines; line++) {
      await write(lease, `line ${line} of ${owner}\n`);
      console.log(`wrote line ${line}`);
      await sleep(PAUSE_MS);
    }
  } finally {
    await lease.release();
  }
}

try {
  await main(process.argv[2], Number(process.argv[3]));
} catch (error) {
  if (!(error instanceof Ended)) throw error;
  console.error(`stopped: ${error.message}`);
  process.exitCode = error.code;
}
