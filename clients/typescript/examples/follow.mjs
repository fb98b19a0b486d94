import { Client } from "candlewright";

const client = new Client(process.env.CANDLEWRIGHT_URL);
const day = { ticker: "BTC/USDT.BINANCE", period: "1m", start: "2024-01-01", end: "2024-01-02" };
const bars = await client.history(day);
console.log(bars.length, "bars, the last one closed at", bars.at(-1).close);
for await (const event of client.live(["TICKS:BTC/USDT.BINANCE"])) {
  if (event.kind === "ticks") console.log("now", event.data.ticks[0].price);
  break;
}
