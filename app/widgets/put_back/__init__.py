"""What if this layer were put back: the panel beside a chosen tensor."""
