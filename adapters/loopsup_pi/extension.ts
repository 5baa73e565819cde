// loopsup's half inside Pi: the tool `loop_control` and the few things only an extension can see.
//
// It decides nothing. Every call is asked of the supervisor over a Unix socket (one JSON object a line,
// see link.py); no answer in time is a tool error, and an interrupted response without one stays as it is. What a
// Pi with a person in front of it has beside that is in terminal.ts. Rules: an unhandled rejection or a throw in a
// timer or socket callback would kill Pi, so each is guarded; nothing is ever written to stdout; marks for the
// adapter that must stay in order with Pi's own events go out as a status of the key "loopsup", or over the link.
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { StringEnum } from "@earendil-works/pi-ai";
import { Type } from "typebox";
import { ANSWER_MS, guarded, Link, type Json, type Setup } from "./link.ts";
import { streamRules } from "./stream_rules.ts";
import { Terminal } from "./terminal.ts";

const TOOL = "loop_control";
const MARKER = "loopsup"; // type of the marker entries in the session file
const RECOVERY = "loopsup-recovery"; // type of the record of a recovery, outside the model's context
const LOOK_MS = 1000; // how often Pi's own queue is looked at during a wait
const MAX_ERROR = 4096; // characters of an error message: a provider's sentence stands at its beginning

// Taken out of the environment at once, so that no tool of the agent inherits the token; kept for the new
// instance of this extension that Pi makes when it reloads or changes the session. None: a Pi started by hand, which
// gets it with the invitation of a supervisor it has asked for (terminal.ts).
function takeSetup(): Setup | undefined {
  const kept = globalThis as Json;
  if (process.env.LOOPSUP_PI_SETUP) kept.__loopsupSetup = process.env.LOOPSUP_PI_SETUP;
  delete process.env.LOOPSUP_PI_SETUP;
  return kept.__loopsupSetup && JSON.parse(kept.__loopsupSetup);
}

// The newest marker among `entries` (oldest first), or null.
function marker(entries: readonly unknown[]): Json | null {
  for (const entry of [...entries].reverse() as Json[])
    if (entry.type === "custom" && entry.customType === MARKER && entry.data?.v === 1)
      return { loopId: entry.data.loopId, seq: entry.data.seq };
  return null;
}

type Turn = {
  entry: string;
  results: string[];
  omitted: boolean;
  stop: string;
  error: string;
  provider: string;
  substance: boolean;
  tail: string[]; // the tools whose results stand at its end
  overflow: boolean;
};

function turnOf(event: Json, ctx: ExtensionContext): Turn {
  const { message } = event;
  const content: Json[] = Array.isArray(message.content) ? message.content : [];
  const input = (message.usage?.input ?? 0) + (message.usage?.cacheRead ?? 0);
  return {
    entry: event.messageEntryId,
    results: event.toolResultEntryIds,
    omitted: false,
    stop: String(message.stopReason),
    error: String(message.errorMessage ?? "").slice(0, MAX_ERROR),
    provider: String(message.provider ?? ""),
    substance: content.some((part) => part.redacted || (part.text ?? part.thinking ?? part.type).trim() !== ""),
    tail: event.toolResults.map((result: Json) => String(result.toolName)),
    // Nothing came out because the input fills the window: Pi's compaction has that.
    overflow:
      message.stopReason === "length" &&
      message.usage?.output === 0 &&
      input >= 0.99 * (ctx.model?.contextWindow ?? Infinity),
  };
}

// Something else makes the next request anyway.
function busy(event: Json): boolean {
  return event.continue || event.context.pendingMessages.length > 0;
}

// Whether the context without these entries ends in something a model can answer.
function canRun(context: Json, without: string[]): boolean {
  const kept = context.contextEntries.filter((entry: Json) => !without.includes(entry.sourceEntry.id));
  const roles = kept.flatMap((entry: Json) => entry.messages.map((message: Json) => message.role));
  const final = roles.filter((role: string) => role !== "system").pop();
  return final !== undefined && final !== "assistant";
}

export default function (pi: ExtensionAPI) {
  let setup = takeSetup();
  const link = new Link();
  const terminal = new Terminal(pi, link, (invitation, ctx) => {
    setup = invitation;
    join(invitation, "startup", ctx);
  });
  const rules = streamRules(pi, link, () => setup?.holdMs ?? 0, tell);
  let decided = false; // a decision was accepted in the turn under way
  let last: Turn | undefined; // the last finalised turn of the run under way

  function join({ socket, token }: Setup, reason: string, ctx: ExtensionContext): void {
    const hello = {
      type: "hello",
      token,
      reason,
      pid: process.pid,
      sessionId: ctx.sessionManager.getSessionId(),
      file: ctx.sessionManager.getSessionFile() ?? null,
      cwd: ctx.cwd,
      marker: marker(ctx.sessionManager.getBranch()),
      newest: marker(ctx.sessionManager.getEntries()),
      tool: pi.getAllTools().some((tool) => tool.name === TOOL),
    };
    const greet = () => {
      link.send(hello);
      terminal.refresh();
    };
    link.open(socket, greet, (record) => {
      if (rules.heard(record, ctx)) return;
      if (record.type !== "append") return terminal.heard(record);
      pi.appendEntry(record.entry, record.data);
      link.send({ type: "appended", id: record.id });
      terminal.appended(record);
    });
  }

  // A mark for the adapter, in order with Pi's own events.
  function tell(ctx: ExtensionContext, mark: string): void {
    if (!setup) return;
    if (ctx.mode === "rpc") ctx.ui.setStatus("loopsup", mark);
    else terminal.mark(mark);
  }

  pi.on("session_start", async (event, ctx) => {
    if (setup) join(setup, event.reason, ctx);
    await terminal.begin(ctx, setup === undefined);
  });
  pi.on("session_shutdown", (event) => {
    setup = terminal.leave(event.reason) ? undefined : setup;
    link.close();
  });

  // Another extension (a "plan mode") may have switched to tools of its own choice.
  pi.on("before_agent_start", () => {
    const active = pi.getActiveTools();
    if (!active.includes(TOOL)) pi.setActiveTools([...active, TOOL]);
  });

  // Before the conversation branches the loop must be paused; if nobody answers, the user goes first.
  async function divide(what: string, ctx: ExtensionContext): Promise<void> {
    await link.ask({ type: "forking", what });
    terminal.divided(ctx, what);
  }
  pi.on("session_before_fork", (_event, ctx) => divide("fork", ctx));
  pi.on("session_before_tree", (_event, ctx) => divide("tree", ctx));
  pi.on("session_tree", (_event, ctx) => link.send({ type: "branch", marker: marker(ctx.sessionManager.getBranch()) }));

  // One mark for each real request to the model: Pi also starts a turn after an abort, without any.
  pi.on("before_provider_request", (_event, ctx) => {
    if (!ctx.signal?.aborted) tell(ctx, "request");
  });

  pi.on("tool_call", (event, ctx) => {
    if (event.toolName === TOOL) {
      rules.mark(event, ctx); // the decision itself is asked about when the tool runs
      return event.parentToolCallId ? { block: true, reason: `${TOOL} must be called directly` } : undefined;
    }
    if (!setup) return undefined;
    const { mode, allow, deny } = setup.permissions;
    if (deny.includes(event.toolName) || (mode === "deny" && !allow.includes(event.toolName)))
      return { block: true, reason: `The user's loopsup configuration denies the tool ${event.toolName}.` };
    return rules.check(event, ctx);
  });

  pi.on("turn_end", async (event, ctx) => {
    // Pi ends the turn by itself only if every result of the batch asks for it.
    if (decided && event.toolResults.length > 1) {
      tell(ctx, "decision");
      ctx.abort();
    }
    last = decided || event.outcome === "aborted" ? undefined : turnOf(event, ctx);
    decided = false;
    if (last?.stop !== "length" && last?.stop !== "error") return;
    tell(ctx, "turn_end"); // Pi tells it only after the wait
    const natural = (last.stop === "length" && last.tail.length > 0) || busy(event);
    return consult("turn", last, natural, event, ctx);
  });
  pi.on("agent_before_settle", async (event, ctx) => {
    const turn = last;
    last = undefined;
    if (turn) return consult("settle", turn, busy(event), event, ctx);
  });
  for (const end of ["before_agent_start", "agent_settled", "session_tree"] as const)
    pi.on(end as "agent_settled", () => void (last = undefined));

  // Asks what to do with an interrupted response, and does it. Abort and input inside Pi end the wait.
  async function consult(boundary: string, turn: Turn, natural: boolean, event: Json, ctx: ExtensionContext) {
    const { entry, results, omitted, ...told } = turn;
    const targets = [entry, ...results];
    const runnable = canRun(event.context, told.tail.length && told.stop !== "length" ? [] : targets);
    const { answer, drop } = link.begin({ type: "interrupted", boundary, natural, runnable, ...told });
    const look = setInterval(guarded(() => ctx.hasPendingMessages() && drop()), LOOK_MS);
    const signal = ctx.signal;
    signal?.addEventListener("abort", drop, { once: true });
    if (signal?.aborted) drop();
    const plan = await answer;
    clearInterval(look);
    signal?.removeEventListener("abort", drop);
    if (plan?.end) ctx.abort();
    if (!plan?.omit && !plan?.resume) return undefined;
    const entries = [...event.entries];
    if (plan.omit && !omitted)
      for (const targetId of targets) entries.push({ type: "context_edit", targetId, replacement: null });
    turn.omitted = omitted || plan.omit;
    if (!plan.resume) return { entries };
    const data = { v: 1, kind: plan.kind, attempt: plan.attempt, waitMs: plan.waitMs };
    return { entries: [...entries, { type: "custom" as const, customType: RECOVERY, data }], continue: true };
  }

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
    async execute(call, params) {
      if (!setup) throw new Error("no loop is running in this conversation; do not repeat this call");
      const verdict = await link.ask({ type: "decide", call, arguments: params });
      if (!verdict) throw new Error(`the supervisor did not answer within ${ANSWER_MS / 1000} s; nothing was recorded`);
      if (!verdict.accepted) throw new Error(String(verdict.message));
      decided = true;
      return { content: [{ type: "text", text: String(verdict.message) }], details: params, terminate: true };
    },
  });
}
