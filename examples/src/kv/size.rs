//! The largest keys and items, as memcached has them.

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// No value is longer, in bytes; [`fits`] says which are possible.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes that memcached has beside an item's key and value: its head, its unique number, and ends of key and value.
const HEAD_BYTES: usize = 48 + 8 + 1 + 2;
/// The same for flags that are not 0.
const FLAGS_BYTES: usize = 4;

/// May an item have this key and value? As memcached has it: head, key and value are 1 MiB at most.
pub fn fits(key_bytes: usize, flags: u32, value_bytes: usize) -> bool {
    let head_bytes = HEAD_BYTES + if flags == 0 { 0 } else { FLAGS_BYTES };
    head_bytes + key_bytes + value_bytes <= VALUE_BYTES_MAX
}
