"""What two sides may do and say, without I/O: rooms as tables, frames, clocks, contract, who reads which heads."""
