/** The events of triggers, newest first, including those that fire while the page is open. */
import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../data/api";
import { type Trigger, type TriggerEvent, eventOf, eventsOf, newestEvents, removedEvents, useTriggers } from "../data/events";
import { follow } from "../data/live";
import { counted } from "../data/numbers";
import { iso, moment, now, span } from "../data/times";
import { useValue } from "../data/value";
import { cell } from "../parts/result_table";
import { chartOf, go, place, withQuery } from "../shell/router";

const MOST_EVENTS = 1000;
const REMOVED_EVENTS = 200;
const REMOVED = "This trigger is no longer registered. Its stored events of the last 30 days remain, but they cannot be explained.";

const explanationOf = ({ trigger, ticker, time }: TriggerEvent): string =>
  `/triggers?${new URLSearchParams({ explain: trigger, ticker, at: iso(time) })}`;

export default function Events() {
  const { query } = useValue(place);
  const chosen = query.get("trigger") ?? "";
  const ticker = (query.get("ticker") ?? "").toUpperCase();
  const { value: triggers, error: listError } = useTriggers();
  const [removed, setRemoved] = useState<TriggerEvent[]>([]);
  const [events, setEvents] = useState<TriggerEvent[]>();
  const [error, setError] = useState("");
  const own = triggers?.filter((each) => chosen === "" || each.trigger_id === chosen);

  useEffect(() => {
    let isOver = false;
    setRemoved([]);
    setEvents(undefined);
    setError("");
    removedEvents(chosen, REMOVED_EVENTS).then(
      (found) => !isOver && setRemoved(found),
      (problem: Problem) => !isOver && setError(problem.message),
    );
    return () => {
      isOver = true;
    };
  }, [chosen]);
  useEffect(() => {
    if (own === undefined) return;
    let isOver = false;
    const take = (more: TriggerEvent[]): void => {
      if (!isOver) setEvents((known) => eventsOf(known ?? [], more).slice(-MOST_EVENTS));
    };
    const read = (trigger: Trigger): void => {
      newestEvents(trigger, 200).then(
        (found) => {
          take(found);
          setError("");
        },
        (problem: Problem) => {
          take([]);
          if (!isOver) setError(problem.message);
        },
      );
    };
    if (own.length === 0) take([]);
    for (const each of own) read(each);
    const ends = own.map((each) =>
      follow(
        `TRIGGER:${each.trigger_id}`,
        (message) => take([eventOf(message)]),
        () => read(each),
        (reason) => !isOver && setError(`${each.trigger_id}: ${reason}`),
      ),
    );
    return () => {
      isOver = true;
      for (const end of ends) end();
    };
    // Registering or removing a trigger changes the topics to follow; an event does not.
  }, [own?.map((each) => each.trigger_id).join("\n"), chosen]);

  const isKnown = (id: string): boolean => triggers?.some((each) => each.trigger_id === id) ?? false;
  const isRemoved = chosen !== "" && triggers !== undefined && !isKnown(chosen);
  const removedIds = [...new Set([...(isRemoved ? [chosen] : []), ...removed.map((each) => each.trigger)])].sort();
  const shown = eventsOf(removed, events ?? []).reverse().filter((each) => each.ticker.includes(ticker));
  return (
    <div class="page full">
      <div class="page-head">
        <h1>Events</h1>
        <select
          aria-label="Trigger"
          value={chosen}
          onChange={(event) => go(withQuery({ trigger: event.currentTarget.value || undefined }), true)}
        >
          <option value="">All triggers</option>
          {triggers?.map((each) => (
            <option key={each.trigger_id} value={each.trigger_id}>
              {each.trigger_id}
            </option>
          ))}
          {removedIds.length > 0 && (
            <optgroup label="Removed">
              {removedIds.map((id) => (
                <option key={id}>{id}</option>
              ))}
            </optgroup>
          )}
        </select>
        <input
          type="search"
          aria-label="Market"
          placeholder="Market"
          value={ticker}
          onInput={(event) => go(withQuery({ ticker: event.currentTarget.value || undefined }), true)}
        />
        <span class="muted">{events !== undefined && shown.length > 0 && counted(shown.length, "event")}</span>
      </div>
      {(error || listError) && (
        <p class="notice bad" role="alert">
          {error || listError}
        </p>
      )}
      {isRemoved && <p class="notice">{REMOVED}</p>}
      <section class="card scroll" aria-label="Events" tabIndex={0}>
        {events === undefined && <div class="waiting" aria-busy="true" />}
        <table class="events">
          <thead>
            <tr>
              <th>Happened</th>
              <th class="wide-only">Ago</th>
              <th>Trigger</th>
              <th>Market</th>
              <th>Columns</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((event) => (
              <tr key={event.id}>
                <td>
                  <a href={chartOf(event.ticker, "1m", { at: iso(event.time) })}>{moment(event.time)}</a>
                </td>
                <td class="wide-only muted">{span(now() - event.time)}</td>
                <td>
                  {event.isRemoved || !isKnown(event.trigger) ? (
                    <span title={REMOVED}>
                      {event.trigger} <span class="tag">removed</span>
                    </span>
                  ) : (
                    <a href={explanationOf(event)} title="Why it fired">
                      {event.trigger}
                    </a>
                  )}
                </td>
                <td>{event.ticker}</td>
                <td class="wrap">
                  {Object.entries(event.columns)
                    .filter(([name]) => name !== "ticker")
                    .map(([name, value]) => (
                      <span key={name} class="pair">
                        <i>{name}</i> {cell(value)}
                      </span>
                    ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {events !== undefined && shown.length === 0 && (
          <p class="nothing">
            {triggers?.length === 0 && !isRemoved ? (
              <>
                No trigger is registered. <a href="/triggers">Create one</a>
              </>
            ) : ticker ? (
              "No event matches."
            ) : (
              "No trigger has fired yet."
            )}
          </p>
        )}
      </section>
    </div>
  );
}
