"""Run by backtrader's own Python: the bars of the CSV file argv[1] as CSV on stdout."""

import sys

import backtrader as bt


class Rows(bt.Strategy):  # type: ignore[misc]
    def next(self) -> None:
        data = self.data
        moment = bt.num2date(data.datetime[0]).isoformat()
        print(moment, data.open[0], data.high[0], data.low[0], data.close[0], data.volume[0], sep=",")  # noqa: T201


cerebro = bt.Cerebro(stdstats=False)
cerebro.adddata(bt.feeds.GenericCSVData(dataname=sys.argv[1], timeframe=bt.TimeFrame.Minutes))
cerebro.addstrategy(Rows)
cerebro.run()
