//! Serialization of doubles as bits, because text would lose NaN, the infinities, and possibly the last bit.

use serde::{Deserialize, Deserializer, Serializer};

/// Serializes for serde.
pub fn serialize<S: Serializer>(double: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(double.to_bits())
}

/// Deserializes for serde.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    u64::deserialize(deserializer).map(f64::from_bits)
}
