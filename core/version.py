from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("candlewright")
except PackageNotFoundError:
    VERSION = "0+unknown"
