"""The words both products share: immutable values that parse and print themselves. No I/O, no clock, no logging."""
