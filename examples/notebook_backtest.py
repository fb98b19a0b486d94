# %% [markdown]
# # A pattern in history, and what followed it
#
# Start a platform first: `./run up --sandbox`. `candlewright_cep` is the trigger language without the platform: what
# matches here would have fired live.

# %%
import numpy as np
import pandas as pd

import candlewright as cw
from candlewright_cep import evaluate

c = cw.connect()
bars = c.history("BTC/USDT.BINANCE", "5m", start="2024-03-01", end="2024-03-08")
bars

# %% [markdown] Three falling closes, then one that recovers the last two:

# %%
PATTERN = """
SELECT * FROM ohlc MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time
  MEASURES FIRST(D.open_time) AS since, U.open_time AS at, U.close AS price
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (S D{3} U)
  DEFINE D AS close < PREV(close), U AS close > FIRST(D.close)
) AS reversal
"""
matches = evaluate(PATTERN, bars.to_arrow(), table_name="ohlc").to_pandas()
print(f"{len(matches)} matches in {len(bars)} bars")
matches.tail(3)

# %% [markdown] The returns after 1, 3 and 12 bars, compared with those after any bar. A pattern is useful only if the
# two differ.

# %%
closes = bars.to_pandas().set_index("open_time").close
after = pd.DataFrame({f"{n} bars": closes.shift(-n) / closes - 1 for n in (1, 3, 12)})
found = after.loc[matches["at"]]
comparison = pd.concat({"after a match": found.describe(), "after any bar": after.describe()}, axis=1)
comparison.loc[["count", "mean", "std", "50%"]]

# %% [markdown] How likely is such a mean by chance? Draw the same number of bars at random, many times:

# %%
random = np.random.default_rng(1)
returns = after["12 bars"].dropna().to_numpy()
drawn = random.choice(returns, (5_000, len(found))).mean(axis=1)
share = float((drawn >= found["12 bars"].mean()).mean())
print(f"{share:.0%} of random draws do as well")

# %% [markdown]
# The newest match, with an hour on each side:

# %%
hour = pd.Timedelta("1h")
last = matches.iloc[-1]
c.load("BTC/USDT.BINANCE", "5m", last["since"] - hour, last["at"] + hour)

# %%
c.close()
