"""One exchange as jobs see it: stock ccxt, limits, errors, pages."""
