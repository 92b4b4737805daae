//! [`digest`]: a number for the groups found. It is the same for programs that find them in another order and add up
//! their values in another one. The file needs nothing of the heap, so that other programs can compute the same number
//! with it.

use graph::random::mix;

/// Computes the digest of groups in any order: key, rows, sum, least and greatest value of each. Sums count in
/// hundredths, which all values of a generated table are made of: the last bits of a sum depend on the order of its
/// terms.
pub fn digest(groups: impl Iterator<Item = (u32, u64, f64, f64, f64)>) -> u64 {
    let one = |(key, rows, sum, least, greatest): (u32, u64, f64, f64, f64)| {
        let hundredths = (sum * 100.0).round() as i64 as u64;
        let numbers = [key.into(), rows, hundredths, least.to_bits(), greatest.to_bits()];
        numbers.into_iter().fold(0, |digest: u64, number| mix(digest.wrapping_add(1) ^ number))
    };
    groups.map(one).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_group_counts_but_for_the_order_and_the_last_bits_of_sums() {
        let (one, other) = ((3, 4, 10.25, 1.5, 4.0), (5, 1, 0.1 + 0.2, 0.3, 0.3));
        let of = |groups: [_; 2]| digest(groups.into_iter());
        assert_ne!(0.1 + 0.2, 0.3);
        assert_eq!(of([one, other]), of([(5, 1, 0.3, 0.3, 0.3), one]));
        for wrong in
            [(4, 4, 10.25, 1.5, 4.0), (3, 5, 10.25, 1.5, 4.0), (3, 4, 10.26, 1.5, 4.0), (3, 4, 10.25, 1.25, 4.0)]
        {
            assert_ne!(of([one, other]), of([wrong, other]), "{wrong:?}");
        }
        assert_ne!(of([one, other]), of([(3, 4, 10.25, 1.5, 4.5), other]));
        assert_ne!(digest([one].into_iter()), of([one, one]));
    }
}
