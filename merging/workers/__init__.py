"""Computing elsewhere: units of work for other processes and machines, and who is asked to do them."""
