// loopsup's half inside Pi: the tool `loop_control` and the few things only an extension can see.
//
// It decides nothing. Every call is asked of the supervisor over a Unix socket (one JSON object a line,
// see link.py); no answer in time is a tool error. Rules: an unhandled rejection or a throw in a timer or
// socket callback would kill Pi, so each is guarded; nothing is ever written to stdout; marks for the
// adapter that must stay in order with Pi's own events go out as a status of the key "loopsup".
import { connect, type Socket } from "node:net";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { StringEnum } from "@earendil-works/pi-ai";
import { Type } from "typebox";

const TOOL = "loop_control";
const MARKER = "loopsup"; // type of the marker entries in the session file
const ANSWER_MS = 5000; // the supervisor answers in milliseconds; after this the call has failed

type Json = Record<string, any>;
type Setup = { socket: string; token: string; permissions: { mode: string; allow: string[]; deny: string[] } };

// Taken out of the environment at once, so that no tool of the agent inherits the token; kept for the new
// instance of this extension that Pi makes when it reloads or changes the session.
function takeSetup(): Setup {
  const kept = globalThis as Json;
  if (process.env.LOOPSUP_PI_SETUP) kept.__loopsupSetup = process.env.LOOPSUP_PI_SETUP;
  delete process.env.LOOPSUP_PI_SETUP;
  if (!kept.__loopsupSetup) throw new Error("this extension is loaded by loopsup, not by hand");
  return JSON.parse(kept.__loopsupSetup);
}

class Link {
  private socket?: Socket;
  private waiting = new Map<number, (answer: Json) => void>();
  private nextId = 1;

  open(path: string, onOpen: () => void, onRecord: (record: Json) => void): void {
    let rest = "";
    const socket = connect(path);
    this.socket = socket;
    socket.setEncoding("utf8");
    socket.on("connect", guarded(onOpen));
    socket.on("data", guarded((data: string) => {
      const lines = (rest + data).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.take(JSON.parse(line), onRecord);
    }));
    socket.on("error", () => this.lost(socket));
    socket.on("close", () => this.lost(socket));
    socket.unref(); // never the reason why Pi stays
  }

  close(): void {
    if (this.socket) this.lost(this.socket);
  }

  send(record: Json): void {
    if (this.socket?.writable) this.socket.write(JSON.stringify(record) + "\n");
  }

  // The answer, or undefined: nobody there, or nobody answered in time.
  ask(record: Json): Promise<Json | undefined> {
    if (!this.socket?.writable) return Promise.resolve(undefined);
    const id = this.nextId++;
    return new Promise((resolve) => {
      const done = (answer?: Json) => {
        clearTimeout(timer);
        this.waiting.delete(id);
        resolve(answer);
      };
      const timer = setTimeout(guarded(() => done()), ANSWER_MS);
      this.waiting.set(id, done);
      this.send({ ...record, id });
    });
  }

  private take(record: Json, onRecord: (record: Json) => void): void {
    const waiting = record.type === "answer" ? this.waiting.get(record.id) : undefined;
    if (waiting) waiting(record);
    else onRecord(record);
  }

  private lost(socket: Socket): void {
    socket.destroy();
    if (this.socket !== socket) return;
    this.socket = undefined;
    for (const done of [...this.waiting.values()]) done({ accepted: false, message: "the supervisor is gone" });
  }
}

function guarded<A extends unknown[]>(callback: (...args: A) => void): (...args: A) => void {
  return (...args) => {
    try {
      callback(...args);
    } catch (error) {
      console.error(`loopsup: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
}

// The newest marker among `entries` (oldest first), or null.
function marker(entries: readonly unknown[]): Json | null {
  for (const entry of [...entries].reverse() as Json[])
    if (entry.type === "custom" && entry.customType === MARKER && entry.data?.v === 1)
      return { loopId: entry.data.loopId, seq: entry.data.seq };
  return null;
}

export default function (pi: ExtensionAPI) {
  const setup = takeSetup();
  const link = new Link();
  let decided = false; // a decision was accepted in the turn under way

  pi.on("session_start", (event, ctx) => {
    const hello = {
      type: "hello",
      token: setup.token,
      reason: event.reason,
      sessionId: ctx.sessionManager.getSessionId(),
      file: ctx.sessionManager.getSessionFile() ?? null,
      cwd: ctx.cwd,
      marker: marker(ctx.sessionManager.getBranch()),
      newest: marker(ctx.sessionManager.getEntries()),
      tool: pi.getAllTools().some((tool) => tool.name === TOOL),
    };
    link.open(setup.socket, () => link.send(hello), (record) => {
      if (record.type !== "append") return;
      pi.appendEntry(record.entry, record.data);
      link.send({ type: "appended", id: record.id });
      if (record.notice) ctx.ui.notify(record.notice, "info");
    });
  });
  pi.on("session_shutdown", () => link.close());

  // Another extension (a "plan mode") may have switched to tools of its own choice.
  pi.on("before_agent_start", () => {
    const active = pi.getActiveTools();
    if (!active.includes(TOOL)) pi.setActiveTools([...active, TOOL]);
  });

  // Before the conversation branches the loop must be paused; if nobody answers, the user goes first.
  pi.on("session_before_fork", async () => void (await link.ask({ type: "forking", what: "fork" })));
  pi.on("session_before_tree", async () => void (await link.ask({ type: "forking", what: "tree" })));
  pi.on("session_tree", (_event, ctx) => link.send({ type: "branch", marker: marker(ctx.sessionManager.getBranch()) }));

  // One mark for each real request to the model: Pi also starts a turn after an abort, without any.
  pi.on("before_provider_request", (_event, ctx) => {
    if (!ctx.signal?.aborted) ctx.ui.setStatus("loopsup", "request");
  });

  pi.on("tool_call", (event) => {
    if (event.toolName === TOOL)
      return event.parentToolCallId ? { block: true, reason: `${TOOL} must be called directly` } : undefined;
    const { mode, allow, deny } = setup.permissions;
    if (deny.includes(event.toolName) || (mode === "deny" && !allow.includes(event.toolName)))
      return { block: true, reason: `The user's loopsup configuration denies the tool ${event.toolName}.` };
  });

  // Pi ends the turn by itself only if every result of the batch asks for it.
  pi.on("turn_end", (event, ctx) => {
    if (decided && event.toolResults.length > 1) {
      ctx.ui.setStatus("loopsup", "decision");
      ctx.abort();
    }
    decided = false;
  });

  pi.registerTool({
    name: TOOL,
    label: "Loop control",
    description:
      "Report the outcome of the present loop iteration to the supervisor. Valid only during a loop iteration, and " +
      "exactly once: call it as the very last action, alone. continue: the objective is not reached yet and it is worth " +
      "looking again later. complete: the objective is verifiably reached. fail: it has definitely failed. block: only a " +
      "person can unblock it.",
    promptSnippet: "Report the outcome of a loop iteration (continue, complete, fail, block) as the last action",
    promptGuidelines: [
      `Inside a loop iteration, end by calling ${TOOL} as your last action, once and without other tool calls beside it.`,
      `Before ${TOOL}, re-evaluate the objective against the current state, not against memory of earlier iterations.`,
      `The evidence of ${TOOL} must cite observed state, a command that was run, or a reference that was consulted.`,
      `Do not use ${TOOL} continue to poll for a background process that this session already observes by itself.`,
    ],
    parameters: Type.Object(
      {
        decision: StringEnum(["continue", "complete", "fail", "block"] as const),
        summary: Type.String({ description: "What was done and what the state is, in one or two sentences" }),
        evidence: Type.String({ description: "Observed state, command run (with its result) or reference consulted" }),
        nextDelay: Type.Optional(
          Type.String({ description: "Only with continue and an auto rhythm: when to look again, like 90s, 10m or 1h30m" }),
        ),
      },
      { additionalProperties: false },
    ),
    executionMode: "sequential",
    async execute(_toolCallId, params) {
      const verdict = await link.ask({ type: "decide", arguments: params });
      if (!verdict) throw new Error(`the supervisor did not answer within ${ANSWER_MS / 1000} s; nothing was recorded`);
      if (!verdict.accepted) throw new Error(String(verdict.message));
      decided = true;
      return { content: [{ type: "text", text: String(verdict.message) }], details: params, terminate: true };
    },
  });
}
