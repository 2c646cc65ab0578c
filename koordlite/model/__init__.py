"""Common values of both programs: immutable values that parse and print themselves. No I/O, no clock, no logging."""
