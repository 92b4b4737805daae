//! Tests that span crates and processes. The tests themselves are in `tests/`; the programs they start, in `src/bin/`.
