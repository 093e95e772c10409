/** Two places for a journal: the browser's IndexedDB, and memory for pages that may forget. */

import type { Entry, Storage } from "./journal.js";

/** For tests, and for programs whose operations may be lost with them. */
export class MemoryStorage implements Storage {
  private readonly entries = new Map<string, Entry>();

  async add(entry: Entry): Promise<Entry> {
    const there = this.entries.get(entry.id) ?? entry;
    this.entries.set(entry.id, there);
    return there;
  }

  async change(key: string, how: (entry: Entry) => Entry | null): Promise<void> {
    const entry = await this.look(key);
    const changed = entry && how(entry);
    if (changed) this.entries.set(changed.id, changed);
  }

  async look(key: string): Promise<Entry | undefined> {
    return [...this.entries.values()].find((entry) => entry.key === key);
  }

  async all(): Promise<Entry[]> {
    return [...this.entries.values()];
  }

  async remove(id: string): Promise<boolean> {
    return this.entries.delete(id);
  }
}

const STORE = "intents";

/** IndexedDB, flushed to the disk before a promise resolves. All tabs of an origin share it. */
export class IndexedDbStorage implements Storage {
  private opened: Promise<IDBDatabase> | undefined;

  constructor(readonly name = "oncekey") {}

  async add(entry: Entry): Promise<Entry> {
    let there = entry;
    await this.within("readwrite", (store) => {
      const found = store.get(entry.id);
      found.onsuccess = () => {
        if (found.result === undefined) store.add(entry);
        else there = found.result as Entry;
      };
    });
    return there;
  }

  async change(key: string, how: (entry: Entry) => Entry | null): Promise<void> {
    await this.within("readwrite", (store) => {
      const found = store.index("key").get(key);
      found.onsuccess = () => {
        const changed = found.result === undefined ? null : how(found.result as Entry);
        if (changed) store.put(changed);
      };
    });
  }

  look(key: string): Promise<Entry | undefined> {
    return this.asked((store) => store.index("key").get(key) as IDBRequest<Entry | undefined>);
  }

  all(): Promise<Entry[]> {
    return this.asked((store) => store.getAll() as IDBRequest<Entry[]>);
  }

  async remove(id: string): Promise<boolean> {
    let there = false;
    await this.within("readwrite", (store) => {
      store.count(id).onsuccess = (event) => (there = (event.target as IDBRequest<number>).result > 0);
      store.delete(id);
    });
    return there;
  }

  /** Let go of the database. */
  async close(): Promise<void> {
    (await this.opened)?.close();
    this.opened = undefined;
  }

  private async asked<T>(ask: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    let found: IDBRequest<T> | undefined;
    await this.within("readonly", (store) => void (found = ask(store)));
    return found!.result;
  }

  private async within(mode: IDBTransactionMode, work: (store: IDBObjectStore) => void): Promise<void> {
    const database = await (this.opened ??= this.open());
    await new Promise<void>((resolve, reject) => {
      // "strict": a commit is on the disk, and not only with the system.
      const transaction = database.transaction(STORE, mode, { durability: "strict" });
      transaction.oncomplete = () => resolve();
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("the transaction was aborted"));
      work(transaction.objectStore(STORE));
    });
  }

  private open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      const asked = indexedDB.open(this.name, 1);
      asked.onupgradeneeded = () => {
        const store = asked.result.createObjectStore(STORE, { keyPath: "id" });
        store.createIndex("key", "key", { unique: true });
      };
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => reject(asked.error ?? new Error("IndexedDB cannot be opened"));
    });
  }
}
