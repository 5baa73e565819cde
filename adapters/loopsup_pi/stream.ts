// Pi's events as its RPC mode would print them, for a Pi that has no such stream (see translate.py).
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import type { Json } from "./link.ts";

type Tell = (event: Json, ctx: ExtensionContext) => void;

const DELTAS = ["text_delta", "thinking_delta", "toolcall_delta"];

export function rehearsed(pi: ExtensionAPI, tell: Tell): void {
  pi.on("agent_start", (_event, ctx) => tell({ type: "agent_start" }, ctx));
  pi.on("message_start", ({ message }: Json, ctx) => {
    const { role, stopReason } = message;
    if (role === "user") tell({ type: "message_start", message: { role, text: textOf(message.content) } }, ctx);
    if (role === "assistant") tell({ type: "message_start", message: { role, stopReason } }, ctx);
  });
  pi.on("message_update", ({ message, assistantMessageEvent: { type, delta, contentIndex } }: Json, ctx) => {
    const { id, name: toolName } = message?.content?.[contentIndex] ?? {};
    const call = type === "toolcall_start" ? { id, toolName } : {};
    if (DELTAS.includes(type) || type === "toolcall_start")
      tell({ type: "message_update", assistantMessageEvent: { type, delta, contentIndex, ...call } }, ctx);
  });
  pi.on("message_end", ({ message }: Json, ctx) => {
    const { role, stopReason, errorMessage, usage } = message;
    if (role !== "assistant") return;
    const content = message.content.map((part: Json) => (part.type === "thinking" ? { type: part.type } : part));
    tell({ type: "message_end", message: { role, content, stopReason, errorMessage, usage } }, ctx);
  });
  pi.on("tool_execution_start", ({ toolCallId, toolName, args, parentToolCallId }: Json, ctx) => {
    if (!parentToolCallId) tell({ type: "tool_execution_start", toolCallId, toolName, args }, ctx);
  });
  pi.on("tool_execution_end", ({ toolCallId, toolName, result, isError, parentToolCallId }: Json, ctx) => {
    const parts: Json[] = result?.content ?? [];
    const shown = { content: parts.map((part) => ("text" in part ? part : { type: part.type })) };
    if (!parentToolCallId) tell({ type: "tool_execution_end", toolCallId, toolName, result: shown, isError }, ctx);
  });
  pi.on("turn_end", (_event, ctx) => tell({ type: "turn_end" }, ctx));
  pi.on("session_before_compact", (_event, ctx) => tell({ type: "compaction_start" }, ctx));
  pi.on("session_compact", (_event, ctx) => tell({ type: "compaction_end", result: true }, ctx));
  pi.on("session_compact_failed", (_event, ctx) => tell({ type: "compaction_end" }, ctx));
  pi.on("agent_settled", ({ aborted }, ctx) => tell({ type: "agent_settled", aborted }, ctx));
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return String(content);
  return content.map((part: Json) => part.text ?? "").join("");
}
