/** A journal in a folder, for Node: one file for each operation, flushed before a promise resolves. */

import { createHash, randomUUID } from "node:crypto";
import { link, mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";

import type { Entry, Storage } from "./journal.js";

const TAG = "$bytes";

function written(entry: Entry): string {
  return JSON.stringify(entry, (_, value: unknown) =>
    value instanceof Uint8Array ? { [TAG]: Buffer.from(value).toString("base64") } : value,
  );
}

function read(text: string): Entry {
  return JSON.parse(text, (_, value: unknown) => {
    const bytes = typeof value === "object" && value !== null ? (value as Record<string, unknown>)[TAG] : undefined;
    return typeof bytes === "string" ? new Uint8Array(Buffer.from(bytes, "base64")) : value;
  }) as Entry;
}

/** Programs that share a folder agree on keys; who changes an entry should be one of them. Within one, changes take turns. */
export class FolderStorage implements Storage {
  private turn: Promise<unknown> = Promise.resolve();

  constructor(readonly folder: string) {}

  add(entry: Entry): Promise<Entry> {
    return this.next(async () => {
      if (await this.write(entry, true)) return entry;
      return (await this.read(this.file(entry.id))) ?? entry;
    });
  }

  change(key: string, how: (entry: Entry) => Entry | null): Promise<void> {
    return this.next(async () => {
      const entry = (await this.entries()).find((one) => one.key === key);
      const changed = entry && how(entry);
      if (changed) await this.write(changed);
    });
  }

  look(key: string): Promise<Entry | undefined> {
    return this.next(async () => (await this.entries()).find((entry) => entry.key === key));
  }

  all(): Promise<Entry[]> {
    return this.next(() => this.entries());
  }

  remove(id: string): Promise<boolean> {
    return this.next(async () => {
      const there = await this.read(this.file(id));
      await rm(this.file(id), { force: true });
      return there !== undefined;
    });
  }

  private next<T>(work: () => Promise<T>): Promise<T> {
    const done = this.turn.then(work);
    this.turn = done.catch(() => undefined);
    return done;
  }

  private file(id: string): string {
    return join(this.folder, `${createHash("sha256").update(id).digest("hex").slice(0, 40)}.json`);
  }

  private async entries(): Promise<Entry[]> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const names = (await readdir(this.folder)).filter((name) => name.endsWith(".json"));
    const found = await Promise.all(names.map((name) => this.read(join(this.folder, name))));
    return found.filter((entry) => entry !== undefined);
  }

  private async read(file: string): Promise<Entry | undefined> {
    try {
      return read(await readFile(file, "utf8"));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      if (error instanceof SyntaxError) throw new Error(`${file} is damaged: move it away, and ask the server about its operation`, { cause: error });
      throw error;
    }
  }

  /** Flushed before it has its name. `anew`: only where nothing is there. */
  private async write(entry: Entry, anew = false): Promise<boolean> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const file = this.file(entry.id);
    const draft = `${file}.${randomUUID()}.new`;
    const made = await open(draft, "w", 0o600);
    try {
      await made.writeFile(written(entry));
      await made.sync();
    } finally {
      await made.close();
    }
    try {
      await (anew ? link(draft, file) : rename(draft, file));
    } catch (error) {
      if (!anew || (error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      return false;
    } finally {
      await rm(draft, { force: true });
    }
    const folder = await open(this.folder, "r");
    await folder.sync().finally(() => folder.close());
    return true;
  }
}
