"""What a kernel costs: cross-compilation to targets without a GPU, occupancy, floors, timing, the sweep."""
