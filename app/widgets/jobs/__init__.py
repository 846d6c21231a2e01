"""What a view lacks, the buttons that compute it, and the tray of jobs."""
