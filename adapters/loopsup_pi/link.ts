// The Unix socket to the supervisor, from the side of the extension: one JSON object a line (see link.py).
//
// Rules: a throw in a callback of a timer or socket would kill Pi, so each is guarded; an answer that does not come
// in time is none.
import { connect, type Socket } from "node:net";

export const ANSWER_MS = 5000; // the supervisor answers in milliseconds; after this the call has failed

export type Json = Record<string, any>;
export type Setup = {
  socket: string;
  token: string;
  session: string;
  permissions: { mode: string; allow: string[]; deny: string[] };
  holdMs: number; // how long a tool call waits for its check; 0: none has to
};

export class Link {
  private socket?: Socket;
  private waiting = new Map<number, (answer: Json) => void>();
  private nextId = 1;
  onLost: () => void = () => {}; // the other end closed, not we

  get connected(): boolean {
    return this.socket?.writable === true && !this.socket.connecting;
  }

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
    const ended = guarded(() => this.lost(socket) && this.onLost());
    socket.on("error", ended);
    socket.on("close", ended);
    socket.unref(); // never the reason why Pi stays
  }

  close(): void {
    if (this.socket) this.lost(this.socket);
  }

  send(record: Json): void {
    if (this.socket?.writable) this.socket.write(JSON.stringify(record) + "\n");
  }

  // The answer, or undefined: nobody there, or nobody answered in time.
  ask(record: Json, patienceMs = ANSWER_MS): Promise<Json | undefined> {
    const { answer, drop } = this.begin(record);
    const timer = setTimeout(guarded(drop), patienceMs);
    return answer.finally(() => clearTimeout(timer));
  }

  // An answer that may take hours; `drop` gives it up.
  begin(record: Json): { answer: Promise<Json | undefined>; drop: () => void } {
    if (!this.socket?.writable) return { answer: Promise.resolve(undefined), drop: () => {} };
    const id = this.nextId++;
    let drop = () => {};
    const answer = new Promise<Json | undefined>((resolve) => {
      const done = (given?: Json) => {
        if (!this.waiting.delete(id)) return;
        if (!given) this.send({ type: "dropped", ask: id });
        resolve(given);
      };
      this.waiting.set(id, done);
      drop = () => done();
    });
    this.send({ ...record, id });
    return { answer, drop };
  }

  private take(record: Json, onRecord: (record: Json) => void): void {
    const waiting = record.type === "answer" ? this.waiting.get(record.id) : undefined;
    if (waiting) waiting(record);
    else onRecord(record);
  }

  private lost(socket: Socket): boolean {
    socket.destroySoon(); // what was written last still goes out
    if (this.socket !== socket) return false;
    this.socket = undefined;
    for (const done of [...this.waiting.values()]) done({ accepted: false, message: "the supervisor is gone" });
    return true;
  }
}

export function guarded<A extends unknown[]>(callback: (...args: A) => void): (...args: A) => void {
  return (...args) => {
    try {
      callback(...args);
    } catch (error) {
      console.error(`loopsup: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
}
