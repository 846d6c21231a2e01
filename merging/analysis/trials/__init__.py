"""Trials: the merges and evaluations that a measurement consists of, done here or by workers."""
