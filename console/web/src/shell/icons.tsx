/** Sixteen-pixel line icons. */
const PATHS = {
  chart: "M4.5 2v12M11.5 2v12M3 5h3v5H3zM10 6.500h3v4h-3z",
  markets: "M2 3.500h12M2 8h12M2 12.500h8",
  triggers: "M9 1.500 3.500 9H8l-1 5.500L12.500 7H8z",
  events: "M8 2a4 4 0 0 0-4 4v3l-1.500 2.500h11L12 9V6a4 4 0 0 0-4-4zM6.500 13.500h3",
  sql: "M3 4c0-1.100 2.200-2 5-2s5 .900 5 2-2.200 2-5 2-5-.900-5-2zM3 4v8c0 1.100 2.200 2 5 2s5-.900 5-2V4M3 8c0 1.100 2.200 2 5 2s5-.900 5-2",
  requests: "M8 2v8M4.500 7 8 10.500 11.500 7M2.500 13.500h11",
  quality: "M8 1.500 13 3.500v4c0 3.500-2.200 5.800-5 7-2.800-1.200-5-3.500-5-7v-4zM5.500 8l2 2 3.500-4",
  system: "M2 8h3l2-5 2.500 10 2-5H14",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.600 10.600 14 14",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.500 9.500A6 6 0 1 1 6.500 2.500a4.700 4.700 0 0 0 7 7z",
  picture: "M2 3h12v10H2zM2 11l3.500-3.500L9 11l2-2 3 3M10.500 6h.01",
  close: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  play: "M5 3l8 5-8 5z",
  bell: "M8 2a4 4 0 0 0-4 4v3l-1.500 2.500h11L12 9V6a4 4 0 0 0-4-4zM6.500 13.500h3",
  leave: "M6.500 2.500H3v11h3.500M7 8h7M11 5l3 3-3 3",
  latest: "M3 3l5 5-5 5M12.500 3v10",
  more: "M3.500 8h.01M8 8h.01M12.500 8h.01",
  save: "M8 2v8M4.500 7 8 10.500 11.500 7M2.500 13.500h11",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
