/** Keys: one for each thing that somebody wants done, made before the first attempt. */

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

function uuid(bytes: Uint8Array, version: number): string {
  bytes[6] = (bytes[6]! & 0x0f) | (version << 4);
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const text = Array.from(bytes.subarray(0, 16), (byte) => HEX[byte]).join("");
  return [text.slice(0, 8), text.slice(8, 12), text.slice(12, 16), text.slice(16, 20), text.slice(20)].join("-");
}

/** A UUIDv7: 48 bits of time, 74 random bits. OnceKey servers read its age. */
export function newKey(now = Date.now()): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  for (let place = 5, rest = now; place >= 0; place--, rest = Math.floor(rest / 256)) bytes[place] = rest % 256;
  return uuid(bytes, 7);
}

/** A UUIDv4. */
export function randomKey(): string {
  return uuid(crypto.getRandomValues(new Uint8Array(16)), 4);
}

/** When a key was made, in milliseconds, if it is a UUIDv7. */
export function madeAt(key: string): number | undefined {
  const found = /^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.exec(key);
  return found ? parseInt(found[1]! + found[2]!, 16) : undefined;
}

async function digest(...parts: string[]): Promise<string> {
  const encoder = new TextEncoder();
  const framed: number[] = [];
  for (const part of parts) {
    const data = encoder.encode(part);
    const size = new DataView(new ArrayBuffer(8));
    size.setBigUint64(0, BigInt(data.length));
    framed.push(...new Uint8Array(size.buffer), ...data);
  }
  return uuid(new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array(framed))), 8);
}

/** The key of a business identity: `derived("shop.example", "refund", orderId)`. Name the intent, not only the object. */
export function derived(namespace: string, ...identity: (string | number)[]): Promise<string> {
  if (namespace === "" || identity.length === 0) {
    throw new TypeError("a derived key needs a namespace and an identity: derived('shop', 'order', orderId)");
  }
  for (const part of identity) {
    if (typeof part !== "string" && !Number.isSafeInteger(part)) {
      throw new TypeError(`${String(part)} is no part of an identity: write text or a whole number`);
    }
  }
  return digest("oncekey derived 1", namespace, ...identity.map(String));
}

/** The key of one call of a tool in one run of an agent or a job. */
export function toolKey(run: string, tool: string, args: unknown): Promise<string> {
  return digest("oncekey tool 1", run, tool, canonical(args));
}

/** RFC 8785: JSON.stringify writes numbers and texts as it wants them; members are sorted by UTF-16. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
    entries.sort(([one], [other]) => (one < other ? -1 : 1));
    return `{${entries.map(([name, inner]) => `${text(name)}:${canonical(inner)}`).join(",")}}`;
  }
  if (typeof value === "string") return text(value);
  const plain = typeof value === "boolean" || value === null || (typeof value === "number" && Number.isFinite(value));
  if (!plain) throw new TypeError(`${String(value)} has no canonical form: use JSON`);
  return JSON.stringify(value);
}

function text(value: string): string {
  if (/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(value)) {
    throw new TypeError("a lone surrogate has no canonical form");
  }
  return JSON.stringify(value);
}
