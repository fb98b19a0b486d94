"""One exchange: stock ccxt, rate limits, errors and pages."""
