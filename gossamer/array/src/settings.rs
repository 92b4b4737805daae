//! What a program may set.

/// Of each place, but for what the handle's maker computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// For chunks of other places.
    pub(crate) cache_bytes: usize,
    /// Below which free share of the cache chunks are dropped, and up to which.
    pub(crate) watermarks: (f64, f64),
    /// Chunks that are fetched ahead.
    pub(crate) prefetch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { cache_bytes: 64 << 20, watermarks: (0.3, 0.5), prefetch: 8 }
    }
}
