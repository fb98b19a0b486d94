/** Data that a page reads repeatedly while it is visible. */
import { useEffect, useState } from "preact/hooks";
import type { Problem } from "./api";

export interface Refreshed<T> {
  /** The newest answer. */
  value: T | undefined;
  /** Why the last attempt failed. */
  error: string;
  /** Reads it now. */
  read: () => void;
}

export function useRefreshed<T>(ask: () => Promise<T>, everyMs: number): Refreshed<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState("");
  const read = (): void => {
    ask().then(
      (found) => {
        setValue(() => found);
        setError("");
      },
      (problem: Problem) => setError(problem.message),
    );
  };
  useEffect(() => {
    read();
    const timer = setInterval(() => !document.hidden && read(), everyMs);
    return () => clearInterval(timer);
  }, []);
  return { value, error, read };
}
