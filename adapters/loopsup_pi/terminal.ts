// The part for a Pi with a person in front of it: `/loop …`, the status line, and Pi's events over the link (in its
// RPC mode Pi's own stream tells them).
//
// A Pi started by hand has no supervisor until `/loop start` or `/loop resume` asks for one (`loopsup host`, which
// answers with an invitation). Rules: every rule of the loop is the supervisor's, the line is handed on as it was
// typed; what the person types goes over the link, whose token no tool of the agent has, and processes below Pi are
// marked as the agent's; a conversation another supervisor drives is not worked on here.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { Text } from "@earendil-works/pi-tui";
import { guarded, type Json, type Link, type Setup } from "./link.ts";
import { rehearsed } from "./stream.ts";

const ATTENTION = "loopsup-attention"; // type of the entries that tell of an attention event
const COMMAND_MS = 10_000; // the supervisor answers a command in milliseconds
const HOST_MS = 100_000; // a little more than a supervisor may take to come up
const TAKE_MS = 30_000; // Pi begins in milliseconds; an input handler of another extension may take its time
const ACTIVE = ["waiting", "queued", "running"];
const DIVIDED = "the conversation divided: its loop is paused where it was; /loop resume there goes on";
const EXIT_OWNED = 4; // as loopsup's own: refused in this state
const MARKS = ["LOOPSUP_AGENT", "LOOPSUP_SESSION"] as const; // in the environment of what runs below an agent

type Given = (invitation: Setup, ctx: ExtensionContext) => void;

export class Terminal {
  private ctx?: ExtensionContext;
  private invited = false; // the supervisor was asked for here, and is not the parent of this Pi
  private byHand = false; // no supervisor is the parent of this Pi
  private asking = 0; // questions to `loopsup host` on their way
  private active = false; // the loop last shown could wake
  private ended = false; // it has ended
  private untold = ""; // that the supervisor is gone, while `loopsup host` may be about to say more
  private refused = ""; // why nothing is said to the model here
  private offer?: { prompt: string; text: string; timer: NodeJS.Timeout };

  constructor(
    private pi: ExtensionAPI,
    private link: Link,
    private given: Given,
  ) {
    this.invited = (globalThis as Json).__loopsupInvited === true; // before a reload
    link.onLost = () => this.released("the supervisor is gone; /loop resume goes on");
    pi.registerEntryRenderer(ATTENTION, (entry, _options, theme) => {
      const event = (entry.data ?? {}) as Json;
      const bad = event.status !== "completed";
      const text = `loop ${words(event.status)}: ${plain(event.summary)}`;
      return new Text(theme.fg(bad ? "warning" : "success", text), 1, 0);
    });
    pi.on("input", async (event, ctx) => {
      if (this.byHand && event.source !== "extension" && !link.connected) await this.guard(ctx, false);
      return this.refused ? { action: "handled" as const } : undefined;
    });
    rehearsed(pi, (event, ctx) => {
      this.ctx = ctx;
      if (ctx.mode === "rpc" || !link.connected) return;
      if (event.type === "agent_start" || event.message?.text === this.offer?.text) this.taken(true);
      link.send({ type: "event", event });
      if (event.type === "agent_settled") this.refresh();
    });
  }

  // At the beginning of a session, with or without a supervisor.
  async begin(ctx: ExtensionContext, byHand: boolean): Promise<void> {
    this.ctx = ctx;
    if (ctx.mode === "tui")
      this.pi.registerCommand("loop", {
        description: "Supervise an objective: start --every 10m <objective>, status, pause, resume, stop, update",
        handler: (line, given) => this.typed(line, given),
      });
    this.byHand = byHand || this.invited;
    const kept = globalThis as Json;
    if (kept.__loopsupDivided) ctx.ui.notify(DIVIDED, "warning");
    delete kept.__loopsupDivided;
    if (byHand) await this.guard(ctx, true);
  }

  // The conversation divides, and the loop was paused for it. A fork shows another conversation next: told there.
  divided(ctx: ExtensionContext, what: string): void {
    if (ctx.mode !== "tui" || !this.active) return;
    if (what === "fork") (globalThis as Json).__loopsupDivided = true;
    else ctx.ui.notify(DIVIDED, "warning");
  }

  // At its end. True: what was known of the supervisor is void.
  leave(reason: string): boolean {
    this.link.send({ type: "goodbye", reason });
    if (!this.invited || reason === "reload") return false;
    this.forget();
    return true;
  }

  // What the supervisor says, beside answers.
  heard(record: Json): void {
    if (record.type === "prompt") this.prompted(record);
    else if (record.type === "abort") this.ctx?.abort();
    else if (record.type === "released") this.released("the supervisor has closed the session; /loop resume goes on");
  }

  // An entry was appended for the supervisor: the loop has moved.
  appended(record: Json): void {
    if (record.notice && this.ctx?.mode !== "tui") this.ctx?.ui.notify(record.notice, "info");
    this.refresh();
  }

  mark(text: string): void {
    this.link.send({ type: "event", event: { type: "extension_ui_request", statusKey: "loopsup", statusText: text } });
  }

  // ---- /loop --------------------------------------------------------------------------------------

  private async typed(line: string, ctx: ExtensionContext): Promise<void> {
    this.ctx = ctx;
    const own = this.link.connected && line.trim() !== "status";
    const answer = own
      ? await this.link.ask({ type: "command", line }, COMMAND_MS)
      : await this.host(line, ctx);
    const message = answer?.text ?? answer?.message ?? "the supervisor did not answer";
    ctx.ui.notify(plain(message), answer?.done ? "info" : "error");
    const untold = this.untold;
    this.untold = "";
    if (own) this.show(answer?.status);
    else if (this.link.connected) this.refresh(); // a process may end long after what it saw
    else if (untold && answer?.done) ctx.ui.notify(untold, "info");
  }

  // Asks `loopsup host`; an invitation on the way is followed at once.
  private host(line: string, ctx: ExtensionContext): Promise<Json> {
    const { sessionManager } = ctx;
    const file = sessionManager.getSessionFile();
    const conversation = { id: sessionManager.getSessionId(), file, cwd: ctx.cwd };
    this.asking += 1;
    const answered = new Promise<Json>((resolve) => {
      let last: Json = { done: false, message: "loopsup ended without an answer" };
      const env = { ...process.env };
      if (this.invited) for (const mark of MARKS) delete env[mark]; // our own: it is the person who asks
      const child = spawn("loopsup", ["host"], { env, stdio: ["pipe", "pipe", "ignore"], timeout: HOST_MS });
      const failed = (error: Error) =>
        resolve({ done: false, message: `loopsup cannot be run (${error.message}); is it on the PATH of this Pi?` });
      child.on("error", guarded(failed));
      child.stdin.on("error", () => {});
      child.stdin.end(JSON.stringify({ agent: "pi", line, conversation }) + "\n");
      const lines = createInterface({ input: child.stdout });
      lines.on("line", guarded((text: string) => {
        const record = JSON.parse(text);
        if (record.invite) this.follow(JSON.parse(record.invite), ctx);
        else last = record;
      }));
      lines.on("close", () => resolve(last));
    });
    return answered.finally(() => (this.asking -= 1));
  }

  private follow(invitation: Setup, ctx: ExtensionContext): void {
    const kept = globalThis as Json;
    kept.__loopsupSetup = JSON.stringify(invitation);
    kept.__loopsupInvited = this.invited = true;
    this.ended = false;
    process.env.LOOPSUP_AGENT = "1"; // what runs below this Pi may not decide for the person
    process.env.LOOPSUP_SESSION = invitation.session;
    this.given(invitation, ctx);
  }

  private released(notice: string): void {
    if (!this.invited) return;
    this.link.close();
    this.forget();
    if (this.ended) return; // told already
    this.ctx?.ui.setStatus("loop", undefined);
    if (this.asking) this.untold = notice;
    else this.ctx?.ui.notify(notice, "info");
  }

  private forget(): void {
    const kept = globalThis as Json;
    this.invited = false;
    this.taken(null, "the supervisor is gone");
    delete kept.__loopsupSetup;
    delete kept.__loopsupInvited;
    for (const mark of MARKS) delete process.env[mark];
  }

  // ---- prompts of the supervisor's ----------------------------------------------------------------

  private prompted({ prompt, text }: Json): void {
    const ctx = this.ctx;
    const refuse = (reason: string, busy: boolean) =>
      this.link.send({ type: "taken", prompt, taken: false, reason, busy });
    if (!ctx?.isIdle() || ctx.hasPendingMessages() || this.offer) return refuse("pi is working", true);
    if (!ctx.model) return refuse("no model is selected in pi; /model selects one", false);
    const timer = setTimeout(guarded(() => this.taken(null, "pi did not begin with the message")), TAKE_MS);
    timer.unref();
    this.offer = { prompt, text, timer };
    this.pi.sendUserMessage(text, { deliverAs: "followUp" });
  }

  private taken(taken: boolean | null, reason = ""): void {
    if (!this.offer) return;
    clearTimeout(this.offer.timer);
    this.link.send({ type: "taken", prompt: this.offer.prompt, taken, reason });
    this.offer = undefined;
  }

  // ---- the status line ----------------------------------------------------------------------------

  refresh(): void {
    if (this.ctx?.mode !== "tui" || !this.link.connected) return;
    const asked = this.link.ask({ type: "command", line: "status" }, COMMAND_MS);
    void asked.then(guarded((answer?: Json) => this.show(answer?.status)));
  }

  private show(status?: Json): void {
    if (!status || !this.link.connected) return;
    const { loop } = status;
    if (!loop) return this.ctx?.ui.setStatus("loop", undefined); // none on this branch
    this.active = ACTIVE.includes(loop.state);
    this.ended = ["completed", "failed", "stopped"].includes(loop.state);
    const reason = loop.pauseReason ? ` (${words(loop.pauseReason)})` : "";
    const due = loop.nextDueAt ? `, next ${new Date(loop.nextDueAt).toLocaleTimeString("en-GB")}` : "";
    const text = `loop ${loop.state}${reason} ${loop.iterationCount}/${loop.maxIterations}${due}`;
    this.ctx?.ui.setStatus("loop", text);
  }

  // ---- a second owner -----------------------------------------------------------------------------

  // A conversation that another supervisor drives is left before anything is said in it.
  private async guard(ctx: ExtensionContext, greet: boolean): Promise<void> {
    const file = ctx.sessionManager.getSessionFile();
    const folder = file && `${file.replace(/\.jsonl$/, "")}.loopsup`;
    if (this.refused || !folder || !existsSync(folder) || !(greet || locked(folder))) return;
    const who = await this.host("", ctx);
    if (who.owner !== null && who.owner !== undefined) return this.refuse(who, ctx);
    if (greet && who.state) ctx.ui.notify(`a loop is here (${plain(who.state)}); /loop resume goes on with it`, "info");
  }

  private refuse(who: Json, ctx: ExtensionContext): void {
    const owner = who.owner ? ` (process ${who.owner})` : "";
    this.refused =
      `loopsup: a supervisor${owner} drives this conversation; \`loopsup attach --session ${who.session}\` shows it, ` +
      `\`loopsup close --session ${who.session}\` ends it`;
    process.once("exit", () => process.stderr.write(`${this.refused}\n`)); // the screen it was shown on is gone then
    if (ctx.mode !== "tui") process.exit(EXIT_OWNED);
    ctx.ui.notify(this.refused, "error");
    ctx.shutdown();
  }
}

// Somebody holds the session or was killed holding it: worth a question.
function locked(folder: string): boolean {
  try {
    return readFileSync(`${folder}/lock`, "utf8").trim() !== "";
  } catch {
    return false;
  }
}

function words(name: unknown): string {
  return plain(String(name ?? "")).replaceAll("_", " ");
}

// Text of a model's, without what a terminal would obey.
function plain(text: unknown): string {
  return String(text ?? "").replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g, "\ufffd");
}
