//! Black-box tests of the real binary.
