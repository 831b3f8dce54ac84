"""The bandwidth-aware meta-schedulers of the mini-grid paper: A1, A2, B1 to B5, and the steps they share."""
