# %% [markdown]
# # History, and whether it can be trusted
#
# Start a platform first: `./run up --sandbox`. Everything below works the same with a real exchange.

# %%
import pandas as pd

import candlewright as cw

c = cw.connect()
TICKER = "BTC/USDT.BINANCE"
DAY = {"start": "2024-03-01", "end": "2024-03-02"}

# %% [markdown] A request fetches candles that are not stored yet, and returns all of them. The card shows holes, where
# the exchange has none.

# %%
minutes = c.history(TICKER, "1m", **DAY)
minutes

# %%
frame = minutes.to_pandas().set_index("open_time")
frame[["open", "high", "low", "close", "volume", "source"]].tail()

# %% [markdown] Is it complete? A day has 1,440 minutes: each is stored, a hole of the exchange, or unknown.

# %%
stored = c.load(TICKER, "1m", **DAY)
missing = sum(end - start for start, end in stored.holes) // 60_000_000_000
assert len(stored) + missing == 1440 and not stored.unknown
print(f"{len(stored)} candles, {missing} minutes without one, nothing unknown")

# %% [markdown] Is it consistent? Hours made from these minutes must equal the exchange's own.

# %%
hours = c.history(TICKER, "1h", **DAY).to_pandas().set_index("open_time")
made = frame.resample("1h").agg({"open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"})
pd.testing.assert_frame_equal(made, hours[made.columns], check_freq=False)
print(f"{len(hours)} hours are equal")

# %% [markdown] Minutes without a trade, and the largest changes from one close to the next:

# %%
quiet = frame[frame.volume == 0]
steps = frame.close.pct_change().abs().nlargest(5)
print(f"{len(quiet)} minutes without a trade")
steps.to_frame("step")

# %% [markdown]
# `candlewright quality` on the command line examines the same, and compares candles with the trades that were received.

# %%
c.close()
