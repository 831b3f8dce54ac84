"""The two placement queues, in which jobs wait for places in an order, and the claiming queue behind them."""
