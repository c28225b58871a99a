"""Planted failures of every class, and sound steps with hazards: probed, judged, and compared with what is known."""
