"""Write a file of random trades for `bench ohlc`, `bench match` and `benchmarks/live/flink.py`.

python -m benchmarks.measuring.ticks_file ticks.parquet [--rows 2000000] [--symbols 100] [--seed 7]
"""

import argparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BEGIN_NS = 1_704_067_200_000_000_000
MEAN_GAP_MS = 36


def trades(rows: int, symbols: int, seed: int, *, gap_ns: int = MEAN_GAP_MS * 1_000_000) -> pa.Table:
    """Times are distinct, `gap_ns` apart on average; each symbol's price walks on a grid of cents, so equal neighbours
    occur.
    """
    random = np.random.default_rng(seed)
    # On a grid: milliseconds, as exchanges have, unless asked for closer ones.
    step_ns = 1_000_000 if gap_ns >= 1_000_000 else 1_000
    times = BEGIN_NS + np.cumsum(random.integers(1, 2 * gap_ns // step_ns, rows)) * step_ns
    symbol = random.integers(0, symbols, rows)
    cents = random.integers(-5, 6, rows)
    for number in range(symbols):
        own = symbol == number
        cents[own] = 100_000 + 1_000 * number + np.cumsum(cents[own])
    return pa.table(
        {
            "ts_ns": times,
            "symbol": pa.array([f"S{number:03d}/USDT.SIM" for number in range(symbols)]).take(pa.array(symbol)),
            "price": cents / 100,
            "size": np.round(random.exponential(2.0, rows) + 0.001, 3),
            "side": pa.array(["buy", "sell"]).take(pa.array(random.integers(0, 2, rows))),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--symbols", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    pq.write_table(trades(options.rows, options.symbols, options.seed), options.file)


if __name__ == "__main__":
    main()
