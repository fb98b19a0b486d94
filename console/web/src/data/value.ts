/** An observable value for components. */
import { useEffect, useState } from "preact/hooks";

export class Value<T> {
  readonly #listeners = new Set<(value: T) => void>();

  constructor(private current: T) {}

  get(): T {
    return this.current;
  }

  set(value: T): void {
    if (Object.is(value, this.current)) return;
    this.current = value;
    for (const listener of [...this.#listeners]) listener(value);
  }

  /** Returns a function that ends the subscription. */
  follow(listener: (value: T) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export function useValue<T>(value: Value<T>): T {
  const [current, set] = useState(() => value.get());
  useEffect(() => {
    set(() => value.get());
    return value.follow((next) => set(() => next));
  }, [value]);
  return current;
}
