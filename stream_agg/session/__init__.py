"""The engine: one value per session that decides, learns and reports. Pure: no clock, no I/O, no chance."""
