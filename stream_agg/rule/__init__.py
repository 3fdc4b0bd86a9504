"""The mathematics: plain numbers in, plain numbers out. No clock, no I/O, no session.

Notation as in Guo, Li, Mu, "Robust Aggregation of Calibrated Forecasts": N(e) counts of a profile e, rho(e) the chance
of state 1 given e, z a level, u(a, state) payoffs, U the largest |u|, gamma and epsilon of the penalised problem.
"""
