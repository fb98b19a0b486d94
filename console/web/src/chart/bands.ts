/** Shaded ranges behind the candles: missing bars or trades, and the span of a match. */
import type {
  IChartApi,
  IPrimitivePaneRenderer,
  IPrimitivePaneView,
  ISeriesPrimitive,
  SeriesAttachedParameter,
  Time,
  UTCTimestamp,
} from "lightweight-charts";

export interface Band {
  from: number;
  to: number;
  color: string;
  hatched?: boolean;
  text?: string;
}

export class Bands implements ISeriesPrimitive<Time> {
  #chart: IChartApi | undefined;
  #update: (() => void) | undefined;
  #bands: Band[] = [];
  readonly #views: IPrimitivePaneView[];

  constructor() {
    const renderer: IPrimitivePaneRenderer = {
      draw: () => undefined,
      drawBackground: (target) =>
        target.useBitmapCoordinateSpace(({ context, bitmapSize, horizontalPixelRatio: ratio }) => {
          for (const band of this.#bands) {
            const left = this.#edge(band.from);
            const right = this.#edge(band.to);
            if (left === null || right === null || right < 0 || left * ratio > bitmapSize.width) continue;
            const x = Math.max(-1, Math.floor(left * ratio));
            const width = Math.max(ratio, Math.ceil(Math.min(right * ratio, bitmapSize.width) - x));
            paint(context, band, x, width, bitmapSize.height, ratio);
          }
        }),
    };
    this.#views = [{ zOrder: () => "bottom", renderer: () => renderer }];
  }

  attached({ chart, requestUpdate }: SeriesAttachedParameter<Time>): void {
    this.#chart = chart as IChartApi;
    this.#update = requestUpdate;
  }

  paneViews(): readonly IPrimitivePaneView[] {
    return this.#views;
  }

  set(bands: Band[]): void {
    this.#bands = bands;
    this.#update?.();
  }

  at(time: number): Band | undefined {
    return this.#bands.find((each) => each.from <= time && time < each.to);
  }

  /** The left edge of the bar at a time, or of the first one after it; past all bars, the right edge of the last one. */
  #edge(time: number): number | null {
    const scale = this.#chart!.timeScale();
    const index = scale.timeToIndex(time as UTCTimestamp, true);
    const middle = index === null ? null : scale.logicalToCoordinate(index as never);
    if (middle === null) return null;
    const isAfterAll = ((scale.coordinateToTime(middle) as number | null) ?? time) < time;
    return middle + (isAfterAll ? 0.5 : -0.5) * scale.options().barSpacing;
  }
}

function paint(
  context: CanvasRenderingContext2D,
  band: Band,
  x: number,
  width: number,
  height: number,
  ratio: number,
): void {
  context.save();
  context.globalAlpha = 0.16;
  context.fillStyle = band.color;
  context.fillRect(x, 0, width, height);
  if (band.hatched) {
    context.globalAlpha = 0.35;
    context.strokeStyle = band.color;
    context.lineWidth = ratio;
    context.beginPath();
    context.rect(x, 0, width, height);
    context.clip();
    context.beginPath();
    for (let offset = -height; offset < width; offset += 8 * ratio) {
      context.moveTo(x + offset, height);
      context.lineTo(x + offset + height, 0);
    }
    context.stroke();
  }
  context.restore();
}
