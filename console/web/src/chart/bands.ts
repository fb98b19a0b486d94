/** Shaded stretches behind the candles: bars or trades that are missing, and the range of a match. */
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
            const [left, right] = this.#edges(band);
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

  #edges(band: Band): [number | null, number | null] {
    const scale = this.#chart!.timeScale();
    const half = scale.options().barSpacing / 2;
    const from = scale.timeToIndex(band.from as UTCTimestamp, true);
    const to = scale.timeToIndex(band.to as UTCTimestamp, true);
    if (from === null || to === null) return [null, null];
    const left = scale.logicalToCoordinate(from as never);
    const right = scale.logicalToCoordinate(to as never);
    return [left === null ? null : left - half, right === null ? null : right - half];
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
