"""What the rail and the view show for each kind of step."""
