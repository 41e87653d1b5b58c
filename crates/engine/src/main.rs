//! The engine as a program: `pgdyno-engine drive`, `load`, `version`. `docs/engine.md` is the interface.

fn main() {}
