/** Rows of a result. Only visible rows are in the document, so any number can be scrolled. */
import { useEffect, useRef, useState } from "preact/hooks";
import { downloadBlob } from "../data/download";
import type { Column } from "../data/sql";

const ROW = 26;
const AROUND = 12;

interface Props {
  columns: Column[];
  rows: Record<string, unknown>[];
  label: string;
  choose?: (row: Record<string, unknown>) => void;
}

export function ResultTable({ columns, rows, label, choose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setHeight(entry!.contentRect.height));
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    box.current!.scrollTop = 0;
    setTop(0);
  }, [rows]);
  const first = Math.max(0, Math.floor(top / ROW) - AROUND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + AROUND);
  const isNumber = columns.map(({ name }) => typeof rows.find((row) => row[name] != null)?.[name] === "number");
  return (
    <div
      class="results"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label={label}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table>
        <thead>
          <tr>
            {columns.map(({ name, type }, at) => (
              <th key={name} class={isNumber[at] ? "number" : ""} title={type}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="space" ref={(row) => row?.style.setProperty("height", `${first * ROW}px`)} />}
          {rows.slice(first, last).map((row, at) => (
            <tr key={first + at} class={choose ? "link" : ""} onClick={choose && (() => choose(row))}>
              {columns.map(({ name }, column) => (
                <td key={name} class={isNumber[column] ? "number" : ""}>
                  {cell(row[name])}
                </td>
              ))}
            </tr>
          ))}
          {last < rows.length && (
            <tr class="space" ref={(row) => row?.style.setProperty("height", `${(rows.length - last) * ROW}px`)} />
          )}
        </tbody>
      </table>
    </div>
  );
}

const ZEROS = /(:\d\d)(?:\.0+)?Z$/;

/** Times are shown without trailing zeros; NULL is distinct from an empty string. */
export function cell(value: unknown) {
  if (value === null || value === undefined) return <i class="muted">NULL</i>;
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(12)));
  if (typeof value === "object") return JSON.stringify(value);
  const text = String(value);
  return /^\d{4}-\d\d-\d\dT/.test(text) ? text.replace("T", " ").replace(ZEROS, "$1").replace(/0+Z$/, "") : text;
}

export const download = (name: string, type: string, text: string): void =>
  downloadBlob(name, new Blob([text], { type }));

export function csv(columns: Column[], rows: Record<string, unknown>[]): string {
  const quote = (value: unknown): string => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns.map(({ name }) => quote(name)), ...rows.map((row) => columns.map(({ name }) => quote(row[name])))];
  return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
}
