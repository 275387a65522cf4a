const { stringify, parse } = JSON;
// The worker's side of protocol.py: one call, then the host kills this process.
//
// A lambda shares this isolate, so everything used after its code has been loaded is taken from the globals before. The
// token lives in this module's scope only. What a lambda can do to itself (write to standard output, end the process,
// change prototypes) costs it its result and nobody else anything.
//
// This is no first line, because Deno looks for pragmas in comments before the first statement, and readying the patterns
// for that takes a millisecond of every start.

const { apply } = Reflect;
const { freeze, create } = Object;
const PromiseOf = Promise;
const ProxyOf = Proxy;
const ErrorOf = Error;
const StringOf = String;
const inspect = Deno.inspect;
const encoder = new TextEncoder();
const encodeText = TextEncoder.prototype.encode;
const decoder = new TextDecoder();
const decodeText = TextDecoder.prototype.decode;
const setBytes = Object.getPrototypeOf(Uint8Array.prototype).set;
const lengthOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), "byteLength").get;
const bufferOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), "buffer").get;
const Bytes = Uint8Array;
const toHex = Number.prototype.toString;
const pad = String.prototype.padStart;
const slice = String.prototype.slice;
const wellFormed = String.prototype.toWellFormed;
const execRegex = RegExp.prototype.exec;
const then = Promise.prototype.then;
const stdin = Deno.stdin;
const readInput = Deno.stdin.read;
const waitForInput = Deno.stdin.readSync;
const stdout = Deno.stdout;
const writeOutput = Deno.stdout.writeSync;
const exit = Deno.exit;

const encode = (text) => apply(encodeText, encoder, [text]);
const decode = (bytes) => apply(decodeText, decoder, [bytes]);
const size = (bytes) => apply(lengthOf, bytes, []);
// A piece of bytes that have a buffer to themselves. Not `subarray`: it asks the array for its constructor, which a lambda
// can replace, and would show it the token.
const piece = (bytes, from, to) => new Bytes(apply(bufferOf, bytes, []), from, to - from);

let token = "";
let logLeft = 0;

function send(kind, text) {
  writeAll(frame(kind, text));
}

function frame(kind, text) {
  const body = encode(text);
  const header = encode(token + kind + apply(pad, apply(toHex, size(body), [16]), [8, "0"]));
  const bytes = new Bytes(size(header) + size(body));
  apply(setBytes, bytes, [header]);
  apply(setBytes, bytes, [body, size(header)]);
  return bytes;
}

function writeAll(bytes) {
  const all = size(bytes);
  let done = apply(writeOutput, stdout, [bytes]);
  while (done < all) done += apply(writeOutput, stdout, [piece(bytes, done, all)]);
}

let buffer = new Bytes(65536);
let filled = 0;

// The first message: nothing else is to be done before it, and to wait with the thread is cheaper than with a promise.
function receiveFirst() {
  while (true) {
    const message = received();
    if (message !== undefined) return message;
    if (!took(apply(waitForInput, stdin, [free()]))) return null;
  }
}

async function receive() {
  while (true) {
    const message = received();
    if (message !== undefined) return message;
    if (!took(await apply(readInput, stdin, [free()]))) return null;
  }
}

function took(count) {
  if (count !== null) filled += count;
  return count !== null;
}

function free() {
  return piece(buffer, filled, size(buffer));
}

// The message that the buffer begins with, once all of it is there.
function received() {
  if (filled < 4) return undefined;
  const end = 4 + buffer[0] * 16777216 + buffer[1] * 65536 + buffer[2] * 256 + buffer[3];
  if (filled < end) {
    if (size(buffer) < end) grow(end);
    return undefined;
  }
  const text = decode(piece(buffer, 4, end));
  apply(setBytes, buffer, [piece(buffer, end, filled)]);
  filled -= end;
  return parse(text);
}

function grow(wanted) {
  const larger = new Bytes(wanted);
  apply(setBytes, larger, [piece(buffer, 0, filled)]);
  buffer = larger;
}

// --- the bridge ---

const waiting = create(null);
let calls = 0;

function bridgeMethod(name) {
  return function (argument) {
    const refusal = new ErrorOf(); // made here, so that its stack names the line of the call
    return new PromiseOf((resolve, reject) => {
      let text;
      try {
        // Two texts, so that the host knows whose call it is, whatever it cannot read of the argument.
        text = stringify({ id: ++calls, method: name }) + "\n" + stringify(argument === undefined ? {} : argument);
      } catch (error) {
        reject(error);
        return;
      }
      waiting[calls] = { resolve, reject, refusal };
      send("C", text);
    });
  };
}

// A name that the host did not list is asked for all the same, and refused there with a code like any other. `then` and
// `toJSON` are names that the language itself tries.
function namedMethod(bridge, name) {
  const method = bridge[name];
  return method !== undefined || typeof name !== "string" || name === "then" || name === "toJSON" ? method : bridgeMethod(name);
}

async function answer() {
  while (true) {
    const reply = await receive();
    if (reply === null) exit(1); // the host is gone, and nobody waits for this call any more
    const call = waiting[reply.id];
    delete waiting[reply.id];
    if (call === undefined) continue;
    if (reply.code === undefined) {
      call.resolve(reply.value);
    } else {
      call.refusal.message = reply.code + ": " + reply.message;
      call.refusal.code = reply.code;
      call.reject(call.refusal);
    }
  }
}

// --- the console ---

function writer(prefix) {
  return function (...values) {
    let line = prefix;
    for (let i = 0; i < values.length; i++) {
      const value = values[i];
      line += (i ? " " : "") + (typeof value === "string" ? value : inspect(value, { depth: 4, colors: false }));
    }
    log(line + "\n");
  };
}

function log(text) {
  if (text.length > logLeft) text = apply(slice, text, [0, logLeft + 1]);
  if (logLeft < 0) return;
  logLeft -= text.length;
  send("L", text);
}

const quiet = {
  log: writer(""), info: writer(""), debug: writer(""), trace: writer(""), dir: writer(""), table: writer(""),
  warn: writer("[warn] "), error: writer("[error] "),
};

// --- the call ---

const blobs = /blob:null\/[0-9a-f-]+/g;
const missing = /[Ee]xport '.*' is not defined|Undefined export|does not provide an export/;

async function load(source, name, type) {
  const options = { type };
  if (!source.startsWith("#!")) source = ";" + source; // so that no comment comes first, see above
  if (name === "default") return (await import(URL.createObjectURL(new Blob([source], options)))).default; // no name to export
  const marked = URL.createObjectURL(new Blob([source + "\nexport { " + name + " as __lambda };\n"], options));
  try {
    return (await import(marked)).__lambda;
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError) || !missing.test(error.message)) throw error;
  }
  return (await import(URL.createObjectURL(new Blob([source], options))))[name];
}

function report(error) {
  let name = "Error", message = "", stack = "";
  try {
    if (typeof error === "object" && error !== null && error.message !== undefined) {
      name = StringOf(error.name ?? "Error");
      message = StringOf(error.message);
      stack = StringOf(error.stack);
    } else {
      name = "";
      message = inspect(error);
    }
  } catch { /* an exception that cannot be shown */ }
  const place = apply(execRegex, /blob:null\/[0-9a-f-]+:(\d+):\d+/, [stack]) ?? apply(execRegex, /blob:null\/[0-9a-f-]+:(\d+):\d+/, [message]);
  send("E", stringify({ name: cut(name), message: cut(message), line: place === null ? null : +place[1], phase }));
}

// At most so many characters, none of them cut in half.
function cut(text) {
  return apply(wellFormed, apply(slice, text, [0, 2000]), []);
}

let phase = "load";

// What is slow the first time that a process does it: a spare gets it over with, then waits for its call. Deno has a thread for
// reading with promises, which is started by the first of them.
async function warmUp() {
  await load("export const ready: number = 1;", "ready", "application/typescript");
  frame("", "");
  took(await apply(readInput, stdin, [free()]));
}

async function main() {
  const fail = (error) => report(error);
  // What fails beside the function is text for the console: the function's result is what counts.
  const stray = (event) => { event.preventDefault(); log("[error] " + inspect(event.reason ?? event.error) + "\n"); };
  globalThis.addEventListener("unhandledrejection", stray);
  globalThis.addEventListener("error", stray);
  if (Deno.args[0] === "spare") await warmUp();
  const job = receiveFirst();
  if (job === null) return;
  token = job.token;
  grow(size(buffer)); // a buffer without the token: Deno reads the length of what it reads into where a lambda can listen
  logLeft = job.console;
  const bridge = create(null);
  for (const name of job.methods) bridge[name] = bridgeMethod(name);
  Object.defineProperty(globalThis, "adf", { value: new ProxyOf(freeze(bridge), { get: namedMethod }), enumerable: true });
  for (const name of Object.keys(quiet)) console[name] = quiet[name];
  for (const name of job.hidden) delete globalThis[name];
  apply(then, answer(), [undefined, fail]);
  try {
    const fn = await load(job.source, job.function, job.type);
    if (typeof fn !== "function") {
      send("E", stringify({ name: "", message: typeof fn, line: null, phase: "missing" }));
      return;
    }
    phase = "run";
    const value = await fn(job.argument);
    phase = "result";
    const text = stringify(value);
    if (text === undefined && value !== undefined) throw new TypeError("a " + typeof value);
    send("R", text === undefined ? "null" : text);
  } catch (error) {
    report(error);
  }
}

await main();
