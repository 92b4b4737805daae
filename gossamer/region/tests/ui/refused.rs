use gossamer_region::{Region, SharedSpan, Span};

/// Any bytes would be a value, but for the padding after `small`.
#[allow(dead_code)]
struct Padded {
    small: u8,
    large: u64,
}

fn spans(region: &Region) {
    region.span::<bool>(1);
    region.span::<&'static u8>(1);
    region.span::<*const u8>(1);
    region.span::<String>(1);
    region.span::<Padded>(1);
}

fn two_writers(span: &mut SharedSpan<u64>) {
    span[0] = 1;
}

fn bytes_that_outlive_their_span(span: Span<u64>) -> &'static [u64] {
    &span
}

fn main() {}
