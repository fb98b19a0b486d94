# %% [markdown] # SQL over the tables, and your own table
#
# Start a platform first: `./run up --sandbox`.

# %%
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

import candlewright as cw
from candlewright_cep import evaluate

c = cw.connect()
TICKER = "BTC/USDT.BINANCE"
c.history(TICKER, "1m", start="2024-03-01", end="2024-03-01T06:00")

# %% [markdown]
# `c.sql` runs on the platform, in DuckDB's dialect, and gives Arrow: no Spark in the client.

# %%
hours = c.sql(f"""
    SELECT time_bucket(INTERVAL '1 hour', open_time) AS hour, max(high) - min(low) AS range, sum(volume) AS volume
    FROM ohlc
    WHERE ticker = '{TICKER}' AND period_seconds = 60 AND open_time >= '2024-03-01' AND open_time < '2024-03-01 06:00'
    GROUP BY hour ORDER BY hour
""")
pl.DataFrame(hours)

# %% [markdown] Your own table, here positions that were opened manually:

# %%
positions = pa.Table.from_pandas(
    pd.DataFrame(
        {
            "ticker": [TICKER, TICKER],
            "ts": pd.to_datetime(["2024-03-01T01:30:30Z", "2024-03-01T04:10:05Z"]),
            "size": [0.5, -0.25],
        }
    )
)

# %% [markdown]
# Joined with the stored candles in DuckDB, each with the bar in which it was opened and the close two hours later:

# %%
bars = c.load(TICKER, "1m", "2024-03-01", "2024-03-02").to_arrow()
result = duckdb.sql("""
    SELECT p.ts, p.size, entry.close AS entry, later.close AS later, p.size * (later.close - entry.close) AS profit
    FROM positions AS p
    ASOF JOIN bars AS entry ON p.ts >= entry.open_time
    ASOF JOIN bars AS later ON p.ts + INTERVAL '2 hours' >= later.open_time
    ORDER BY p.ts
""").df()
assert len(result) == 2
result

# %% [markdown] The trigger language accepts your own tables, too. Here, the last bar that had closed when a position
# was opened:

# %%
evaluate(
    """
    SELECT p.ts, o.close_time, o.close FROM positions p
    ASOF JOIN ohlc o ON p.ticker = o.ticker AND p.ts >= o.close_time
    """,
    {"positions": positions, "ohlc": bars},
).to_pandas()

# %%
c.close()
