//! Benchmarks: ratios measured in one run.

fn main() {}
