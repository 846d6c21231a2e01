"""Many runs along one or two axes."""
