/** POST /api/v1/sql. */
import { send } from "./api";

export interface Column {
  name: string;
  type: string;
}

export interface SqlAnswer {
  columns: Column[];
  rows: unknown[][] | Record<string, unknown>[];
  seconds?: number;
  truncated?: boolean;
}

export const runSql = (sql: string, limit: number, signal?: AbortSignal): Promise<SqlAnswer> =>
  send<SqlAnswer>("POST", "sql", { sql, limit }, signal);

export function rowsOf(answer: SqlAnswer): Record<string, unknown>[] {
  return answer.rows.map((row) =>
    Array.isArray(row) ? Object.fromEntries(answer.columns.map((column, at) => [column.name, row[at]])) : row,
  );
}
