"""The venues' names, and the native periods of the main ones, until an ingestor reports its own.

A venue's own record on the bus (candlewright.Venue, kept by ingestors) always takes precedence.
"""

from candlewright.wire.ticker import ccxt_id

_MINUTE, _HOUR, _DAY, _WEEK = 60, 3_600, 86_400, 604_800

#: Fixed-length periods (seconds) that these exchanges serve themselves, by ccxt id. Calendar months are excluded.
_NATIVE_PERIODS: dict[str, frozenset[int]] = {
    "binance": frozenset(
        (
            1,
            *(m * _MINUTE for m in (1, 3, 5, 15, 30)),
            *(h * _HOUR for h in (1, 2, 4, 6, 8, 12)),
            _DAY,
            3 * _DAY,
            _WEEK,
        )
    ),
    "kraken": frozenset((*(m * _MINUTE for m in (1, 5, 15, 30)), _HOUR, 4 * _HOUR, _DAY, _WEEK)),
    "okx": frozenset((*(m * _MINUTE for m in (1, 3, 5, 15, 30)), *(h * _HOUR for h in (1, 2, 4, 6, 12)), _DAY, _WEEK)),
    "bybit": frozenset(
        (*(m * _MINUTE for m in (1, 3, 5, 15, 30)), *(h * _HOUR for h in (1, 2, 4, 6, 12)), _DAY, _WEEK)
    ),
    "coinbase": frozenset((*(m * _MINUTE for m in (1, 5, 15, 30)), *(h * _HOUR for h in (1, 2, 6)), _DAY)),
    "coinbaseexchange": frozenset((*(m * _MINUTE for m in (1, 5, 15)), *(h * _HOUR for h in (1, 6)), _DAY)),
}

#: The venues that an installation serves by default.
MAIN_VENUES = ("BINANCE", "BYBIT", "COINBASE", "KRAKEN", "OKX")

#: ccxt's exchange ids; a test compares them with the installed release.
CCXT_EXCHANGES = frozenset(
    """
    alpaca apex aster backpack bequant bigone binance binancecoinm binanceus binanceusdm bingx bit2c bitbank bitbns
    bitfinex bitflyer bitget bithumb bitopro bitrue bitso bitstamp bitteam bittrade bitvavo blockchaincom blofin btcbox
    btcmarkets btcturk btse bullish bybit bybiteu bybitid bydfi cex coinbase coinbaseexchange coinbaseinternational
    coincheck coinmate coinone coinsph coinspot cryptocom cryptomus deepcoin delta deribit derive digifinex dydx
    extended fmfwio foxbit gate gateeu gemini grvt hashkey hibachi hitbtc hollaex htx hyperliquid independentreserve
    indodax kraken krakenfutures kucoin kucoinfutures latoken lbank lighter luno mercado mexc modetrade mudrex myokx
    nado ndax okx okxus onetrading p2b pacifica paradex paymium phemex poloniex polymarket revolutx tokocrypto toobit
    upbit weex whitebit woo woofipro xt zaif zebpay
    """.split()  # noqa: SIM905
)


def is_known(venue: str) -> bool:
    """Whether stock ccxt has an exchange with this name."""
    return ccxt_id(venue) in CCXT_EXCHANGES


def native_periods(venue: str) -> frozenset[int] | None:
    """The periods (seconds) that the venue itself serves; None if only its ingestor knows them."""
    return _NATIVE_PERIODS.get(ccxt_id(venue))
