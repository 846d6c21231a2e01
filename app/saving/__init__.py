"""Files of a chart: the picture in four formats, its numbers, and the line of provenance."""
