"""Files of a chart: the picture in four formats, the numbers that it draws, and the line that says where it is from."""
