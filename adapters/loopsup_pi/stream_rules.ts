// The stream rules' half inside Pi: holds tool calls, ends a response half-way, lets the model try again.
//
// What matches is the supervisor's business. A response that was ended (the target) is known by its time stamp. Its
// fate is written into the reminder that follows it, so that it is the same after a restart and on every branch: the
// `context` handler takes the target out of each request, or (keep) puts it back, because Pi replays no aborted
// message. Pi's session file keeps both.
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Json, Link } from "./link.ts";

const REMINDER = "loopsup-rule"; // type of the reminder's message in the session file

// Puts a mark into the stream of events the adapter reads.
type Tell = (ctx: ExtensionContext, mark: string) => void;

export function streamRules(pi: ExtensionAPI, link: Link, hold: () => number, tell: Tell) {
  let ending = false; // a rule ended the response under way
  let target: number | undefined; // time stamp of the message that was cut off

  function end(ctx: ExtensionContext): void {
    ending = true;
    ctx.abort();
  }

  // The supervisor has heard all that was streamed before once it has read this mark in Pi's own stream.
  function mark(event: Json, ctx: ExtensionContext): void {
    if (hold()) tell(ctx, `tool:${event.toolCallId}`);
  }

  async function check(event: Json, ctx: ExtensionContext) {
    const holdMs = hold();
    if (!holdMs) return undefined;
    mark(event, ctx);
    const call = { call: event.toolCallId, tool: event.toolName, arguments: event.input };
    const verdict = await link.ask({ type: "tool", ...call }, holdMs);
    if (verdict?.ends) end(ctx);
    if (verdict?.allowed) return undefined;
    const reason = `loopsup could not check this call within ${holdMs} ms, so it did not run; call it again.`;
    return { block: true, reason: verdict?.reason || reason };
  }

  // Whether the record was one of ours.
  function heard(record: Json, ctx: ExtensionContext): boolean {
    if (record.type === "end") {
      if (!ctx.isIdle()) end(ctx);
      return true;
    }
    if (record.type !== "retry") return false;
    const idle = ctx.isIdle();
    const details = { v: 1, keep: record.keep === true, target: target ?? null };
    if (idle)
      pi.sendMessage({ customType: REMINDER, content: record.text, display: false, details }, { triggerTurn: true });
    link.send({ type: "appended", id: record.id, refused: idle ? undefined : "pi is busy with something else" });
    return true;
  }

  pi.on("turn_end", (event) => {
    if (ending && target === undefined) target = event.message.timestamp;
  });
  pi.on("before_agent_start", () => {
    ending = false;
    target = undefined;
  });
  pi.on("context", (event) => {
    const messages = project(event.messages as Json[]);
    return messages ? { messages: messages as typeof event.messages } : undefined;
  });
  return { check, heard, mark };
}

// The conversation as the model shall see it; undefined where nothing changes.
function project(messages: Json[]): Json[] | undefined {
  let changed: Json[] | undefined;
  for (const message of messages) {
    const details = message.role === "custom" && message.customType === REMINDER ? message.details : undefined;
    if (details?.v !== 1 || typeof details.target !== "number") continue;
    const now = changed ?? messages;
    const cut = now.find((one) => one.role === "assistant" && one.timestamp === details.target);
    if (cut) changed = details.keep ? now.map((one) => (one === cut ? kept(cut) : one)) : without(now, cut);
  }
  return changed;
}

function without(messages: Json[], cut: Json): Json[] {
  const calls = cut.content.map((part: Json) => (part.type === "toolCall" ? part.id : undefined));
  return messages.filter((one) => one !== cut && !(one.role === "toolResult" && calls.includes(one.toolCallId)));
}

// A response that was cut off, as text. A whole one, with the results of its calls, is replayed as it is.
function kept(cut: Json): Json {
  if (cut.stopReason !== "aborted" && cut.stopReason !== "error") return cut;
  const content = cut.content.flatMap((part: Json) => {
    if (part.type === "text") return [part];
    if (part.type !== "toolCall") return []; // half a thought has no signature
    return [{ type: "text", text: `[call of ${part.name}, cut off, never run: ${JSON.stringify(part.arguments ?? {})}]` }];
  });
  if (!content.some((part: Json) => part.text.trim())) return cut;
  return { ...cut, content, stopReason: "stop", errorMessage: undefined };
}
