"""Points of the decode step's sweep as records give them, made up."""

from capturebook.measure.kernel_classes import CLASSES


def timed(variant, layer, us, batch=64, **classes):
    """A point as `rows.sweep_points` gives it."""
    classes = dict.fromkeys(CLASSES, 0.0) | classes if classes else None
    launches = classes and dict.fromkeys(CLASSES, 2)
    place = {"batch": batch, "context": 8192, "max_context": 131072, "ends_us": 5.0}
    point = {"variant": variant, "layer": layer, "us": [us], "median_us": us, "classes": classes, "launches": launches}
    return point | place
