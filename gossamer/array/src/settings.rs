//! Settings of an array that a program may choose.

/// Settings that apply at each place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Bytes for chunks of other places.
    pub(crate) cache_bytes: usize,
    /// Free share of the cache below which chunks are evicted, and the share at which eviction stops.
    pub(crate) watermarks: (f64, f64),
    /// Chunks that are fetched ahead.
    pub(crate) prefetch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { cache_bytes: 64 << 20, watermarks: (0.3, 0.5), prefetch: 8 }
    }
}
