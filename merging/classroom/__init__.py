"""What many sessions of one small server share: turns in the queue of jobs, and polls. Nothing about people is kept."""
