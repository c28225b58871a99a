"""The chain: run folders, what a notebook's cells call, and the runner that takes the notebooks headless."""
