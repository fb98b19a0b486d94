/** The platform's state as the whole page shows it, read every few seconds while the page is visible. */
import { Problem, get } from "./api";
import { useValue, Value } from "./value";

export interface Status {
  ready?: boolean;
  healthy?: boolean;
  problems?: string[];
  warnings?: string[];
  parts?: Record<string, PartStatus> | PartStatus[];
  roles?: Record<string, unknown>;
  origin?: string;
  role?: string;
  /** The name of the token, if one was needed. */
  signed_in_as?: string | null;
  version?: string;
  [name: string]: unknown;
}

export interface PartStatus {
  part?: string;
  name?: string;
  ready?: boolean;
  healthy?: boolean;
  standby?: boolean;
  problems?: string[];
  warnings?: string[];
  [name: string]: unknown;
}

const EVERY_MS = 5000;

/** Actions for operators are hidden from other users; nothing is hidden until the user's role is known. */
export function useMayChange(): boolean {
  return useValue(status)?.role !== "viewer";
}

export const status = new Value<Status | undefined>(undefined);
/** False after the platform did not answer. */
export const reachable = new Value(true);

export async function readStatus(): Promise<void> {
  try {
    status.set(await get<Status>("status", {}, AbortSignal.timeout(EVERY_MS)));
    reachable.set(true);
  } catch (error) {
    // Any answer shows that it is running.
    reachable.set(error instanceof Problem && error.status > 0 && error.status < 500);
  }
}

export function watchStatus(): void {
  void readStatus();
  setInterval(() => {
    if (!document.hidden) void readStatus();
  }, EVERY_MS);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void readStatus();
  });
}

export function partsOf(value: Status | undefined): PartStatus[] {
  const parts = value?.parts ?? [];
  if (Array.isArray(parts)) return parts;
  return Object.entries(parts).map(([name, part]) => ({ part: name, ...part }));
}

export function problemsOf(value: Status | undefined): string[] {
  const own = value?.problems ?? [];
  const ofParts = partsOf(value).flatMap((part) => (part.problems ?? []).map((text) => `${nameOf(part)}: ${text}`));
  return [...own, ...ofParts.filter((text) => !own.some((each) => each.includes(text)))];
}

/** Parts that have been started or restarted and are not ready yet. */
export function startingOf(value: Status | undefined): string[] {
  return partsOf(value)
    .filter((part) => part.ready === false && !part.standby && !part.problems?.length)
    .map(nameOf);
}

export const nameOf = (part: PartStatus): string => part.name ?? part.part ?? "";
