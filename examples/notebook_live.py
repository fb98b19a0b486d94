# %% [markdown]
# # Live bars, and a trigger on them
#
# Start a platform first: `./run up --sandbox`.

# %%
from itertools import islice

import candlewright as cw

c = cw.connect()
TICKER = "BTC/USDT.BINANCE"

# %% [markdown]
# A live chart. Scroll back for older bars; the platform fetches the ticker while the chart is shown.

# %%
chart = c.chart(TICKER, "1m")
chart

# %% [markdown]
# A trigger is SQL. This one fires when a trade is higher than the three before it.

# %%
trigger = c.triggers.add(
    """
    SELECT * FROM ticks MATCH_RECOGNIZE (
      PARTITION BY ticker ORDER BY ts
      MEASURES FIRST(A.price) AS before, B.price AS price, B.ts AS at
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (A{3} B)
      DEFINE B AS price > MAX(A.price)
    ) AS higher
    """,
    tickers=[TICKER],
    trigger_id="notebook-higher",
)
trigger

# %% [markdown] `collect` waits for its next events. They are shown as a table, and can be converted to a DataFrame.

# %%
events = trigger.collect(3, timeout=60)
events

# %%
frame = events.to_pandas()
assert (frame.price > frame.before).all()
frame[["fired_at", "before", "price"]]

# %% [markdown] Trades can be read as they arrive, too:

# %%
with c.ticks(TICKER, timeout=30) as ticks:
    for tick in islice(ticks, 3):
        print(tick.trade_id, tick.price, tick.size, tick.side)

# %%
trigger.remove()
chart.close()
c.close()
