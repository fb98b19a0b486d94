/** A calendar for each year, newest first: squares of days in columns of weeks, shaded by a share of the day. */
import { useEffect, useRef } from "preact/hooks";
import { day } from "../data/times";

/** `days`: shares by days since the epoch; `textOf`: what a day's tooltip says. */
export function Calendar(props: { days: Map<number, number>; textOf: (day: number, share: number) => string; mostYears?: number }) {
  const years = [...new Set([...props.days.keys()].map((each) => new Date(each * 86_400_000).getUTCFullYear()))];
  const shown = years.sort((a, b) => b - a).slice(0, props.mostYears);
  if (shown.length === 0) return null;
  return (
    <>
      {shown.map((year) => (
        <Year key={year} year={year} days={props.days} textOf={props.textOf} />
      ))}
      <p class="heat-key">
        nothing {[0, 1, 2, 3, 4].map((level) => <i key={level} class={`heat-${level}`} />)} complete
      </p>
    </>
  );
}

function Year({ year, days, textOf }: { year: number; days: Map<number, number>; textOf: (day: number, share: number) => string }) {
  const first = Date.UTC(year, 0, 1) / 86_400_000;
  const count = Date.UTC(year + 1, 0, 1) / 86_400_000 - first;
  const shift = (new Date(first * 86_400_000).getUTCDay() + 6) % 7;
  const cells = Array.from({ length: count }, (_, at) => first + at);
  const full = cells.filter((each) => (days.get(each) ?? 0) >= 1).length;
  const size = 12;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a narrow screen, the newest known day is in view.
    const last = cells.findLastIndex((each) => days.has(each));
    box.current!.scrollLeft = Math.floor((last + shift + 14) / 7) * size - box.current!.clientWidth;
  }, [days]);
  return (
    <div class="year">
      <b>{year}</b>
      <div ref={box} class="scroll" tabIndex={0} role="region" aria-label={`Calendar of ${year}`}>
        <svg width={54 * size} height={7 * size} role="img" aria-label={`${full} days of ${year} are complete`}>
          {cells.map((each, at) => {
            const share = days.get(each) ?? 0;
            const level = share <= 0 ? 0 : share >= 1 ? 4 : Math.min(3, 1 + Math.floor(share * 3));
            const place = at + shift;
            return (
              <rect
                key={each}
                class={`heat-${level}`}
                x={Math.floor(place / 7) * size}
                y={(place % 7) * size}
                width={size - 2}
                height={size - 2}
                rx={2}
              >
                <title>{`${day(each * 86400)}: ${textOf(each, share)}`}</title>
              </rect>
            );
          })}
        </svg>
      </div>
    </div>
  );
}
