"""Servers beyond readiness: what their start-up log points to, their metrics, a sweep of requests, A/B of launches."""
