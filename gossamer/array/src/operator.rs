//! Operators, which combine values before they are merged at home (DArray 4.3).

#![allow(unsafe_code)]

use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, BitXor};

use crate::element::Element;
use crate::part::Part;
use crate::post;

/// A binary operator for [`apply`](crate::Array::apply). The type names the operator on every machine, so nothing is
/// registered. It is usually a struct without fields.
///
/// `combine` must be associative and commutative with `IDENTITY` as its identity: several workers combine values in any
/// order and grouping, and the results are merged later. Debug builds test these laws on the values that occur, if
/// `EXACT` is true.
///
/// An element that no call combines keeps its bits, even if `combine` with `IDENTITY` would change them: an accumulator
/// that still has the bytes of `IDENTITY` is not merged.
///
/// ```
/// use gossamer_array::{Array, Operator};
///
/// /// Keeps the longest distance.
/// #[derive(Clone, Copy)]
/// struct Longest;
///
/// impl Operator<u32> for Longest {
///     const IDENTITY: u32 = 0;
///     const EXACT: bool = true;
///     fn combine(a: u32, b: u32) -> u32 {
///         a.max(b)
///     }
/// }
///
/// gossamer::main(
///     || {
///         let distance = Array::new(1000, 0u32).unwrap();
///         distance.apply(7, Longest, 5);
///         distance.apply(7, Longest, 3);
///         assert_eq!(distance.get(7), 5);
///     },
///     2,
/// );
/// ```
///
/// Source: DArray 4.3.
pub trait Operator<T>: Copy + 'static {
    /// Identity of `combine`: `combine(x, IDENTITY)` is `x`. For floating-point numbers it is -0.0 for sums, as 0.0
    /// would change -0.0, and NaN for [`Min`] and [`Max`], which return the other number if one is NaN.
    const IDENTITY: T;
    /// Do the laws hold exactly? They do not for floating-point sums, which may differ in the last bits from run to
    /// run.
    const EXACT: bool;

    /// Combines two values into one. Nothing may wait in it, and it should not panic: that poisons the array.
    fn combine(a: T, b: T) -> T;

    /// Is it one of this crate's operators, which neither panic nor call other code?
    #[doc(hidden)]
    const PLAIN: Plain<Self, T> = Plain(0, PhantomData);
}

/// A mark that only this crate can set, and that fits one operator on one type only: another crate may implement
/// [`Operator`] for its own types on the operators of this one.
///
/// ```compile_fail,E0308
/// use gossamer_array::{Add, Operator, Plain};
/// #[derive(Clone, Copy)]
/// struct Mine;
/// impl Operator<u64> for Mine {
///     const IDENTITY: u64 = 0;
///     const EXACT: bool = true;
///     const PLAIN: Plain<Self, u64> = <Add as Operator<u64>>::PLAIN;
///     fn combine(a: u64, b: u64) -> u64 { a + b }
/// }
/// ```
#[doc(hidden)]
pub struct Plain<O, T>(u64, PhantomData<fn(O, T)>);

impl<O, T> Plain<O, T> {
    pub(crate) const fn is_plain(&self) -> bool {
        self.0 != 0
    }

    /// Returns its bit in the words of the table, which hits test; 0 for the operators of programs.
    pub(crate) const fn bit(&self) -> u64 {
        self.0
    }
}

/// Bits of the operators that have one, in the upper byte of a word of the table, where addresses have zeros.
pub(crate) const OPERATORS: u64 = 0x3f << FIRST_BIT;
const FIRST_BIT: u32 = 56;

macro_rules! operators {
    ($($(#[$meta:meta])* $name:ident;)*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name;
    )* };
}

operators! {
    /// The sum; on integers it wraps. The identity of floating-point sums is -0.0.
    ///
    /// ```
    /// use gossamer_array::{Add, Array};
    /// gossamer::main(|| {
    ///     let count = Array::new(100, 0u8).unwrap();
    ///     (0..300).for_each(|_| count.apply(42, Add, 1));
    ///     assert_eq!(count.get(42), 44);
    /// }, 2);
    /// ```
    Add;
    /// The lesser value; of a number and NaN, the number. The identity is the greatest integer, or NaN.
    ///
    /// ```
    /// use gossamer_array::{Array, Min};
    /// gossamer::main(|| {
    ///     let label: Array<u64> = Array::new(100, u64::MAX).unwrap();
    ///     label.apply(42, Min, 7);
    ///     label.apply(42, Min, 8);
    ///     assert_eq!(label.get(42), 7);
    /// }, 2);
    /// ```
    Min;
    /// The greater value; of a number and NaN, the number. The identity is the least integer, or NaN. Example: as for
    /// [`Min`].
    Max;
    /// The bits that both values have. Example: as for [`Or`].
    And;
    /// The bits that either value has.
    ///
    /// ```
    /// use gossamer_array::{Array, Or};
    /// gossamer::main(|| {
    ///     let seen = Array::new(100, 0u64).unwrap();
    ///     seen.apply(42, Or, 1 << 3);
    ///     seen.apply(42, Or, 1 << 5);
    ///     assert_eq!(seen.get(42), 0b101000);
    /// }, 2);
    /// ```
    Or;
    /// The bits that exactly one value has. Example: as for [`Or`].
    Xor;
}

macro_rules! implement {
    ($($operator:ident $number:literal $exact:literal [$($type:ty),*] $identity:expr, $combine:expr;)*) => { $($(
        impl Operator<$type> for $operator {
            const IDENTITY: $type = { type T = $type; const IDENTITY: T = $identity; IDENTITY };
            const EXACT: bool = $exact;
            const PLAIN: Plain<Self, $type> = Plain(1 << (FIRST_BIT + $number), PhantomData);
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                type T = $type;
                let combine: fn(T, T) -> T = $combine;
                combine(a, b)
            }
        }
    )*)* };
}

implement! {
    Add 0 true [u8, u16, u32, u64, usize, i8, i16, i32, i64, isize] 0, T::wrapping_add;
    Add 0 false [f32, f64] -0.0, |a, b| a + b;
    Min 1 true [u8, u16, u32, u64, usize, i8, i16, i32, i64, isize] T::MAX, Ord::min;
    Min 1 false [f32, f64] T::NAN, T::min;
    Max 2 true [u8, u16, u32, u64, usize, i8, i16, i32, i64, isize] T::MIN, Ord::max;
    Max 2 false [f32, f64] T::NAN, T::max;
    And 3 true [u8, u16, u32, u64, usize, i8, i16, i32, i64, isize] !0, BitAnd::bitand;
    Or 4 true [u8, u16, u32, u64, usize, i8, i16, i32, i64, isize] 0, BitOr::bitor;
    Xor 5 true [u8, u16, u32, u64, usize, i8, i16, i32, i64, isize] 0, BitXor::bitxor;
}

/// An operator for one element type, with both types erased.
pub(crate) struct OpTable {
    /// Id of the operator's type.
    pub(crate) id: TypeId,
    /// Bit of its `Plain`.
    pub(crate) bit: u64,
    /// Writes this many identities.
    pub(crate) clear: unsafe fn(*mut u8, usize),
    /// Combines each element with that in the bytes, except where the bytes are those of the identity. Runs the
    /// operator's code.
    pub(crate) merge: unsafe fn(*mut u8, &[u8]),
    /// Requests the right to combine.
    pub(crate) send_want: fn(&Part, u32),
    /// Grants a place the right to combine.
    pub(crate) send_grant: fn(&Part, usize, u32),
    /// Gives combined elements back: the chunk, the number of the recall, the elements.
    pub(crate) send_back: fn(&Part, u32, u64, &[u8]),
}

/// Handle of an operator; equal if the operators' types are.
#[derive(Clone, Copy)]
pub(crate) struct Op(pub(crate) &'static OpTable);

impl PartialEq for Op {
    #[inline(always)]
    fn eq(&self, other: &Op) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Op {}

impl Op {
    pub(crate) const fn of<T: Element, O: Operator<T>>() -> Op {
        Op(TableOf::<T, O>::TABLE)
    }
}

struct TableOf<T, O>(PhantomData<(T, O)>);

impl<T: Element, O: Operator<T>> TableOf<T, O> {
    const TABLE: &'static OpTable = &OpTable {
        id: TypeId::of::<O>(),
        bit: O::PLAIN.bit(),
        clear: Self::clear,
        merge: Self::merge,
        send_want: post::want_to_combine::<T, O>,
        send_grant: post::grant_to_combine::<T, O>,
        send_back: post::combined::<T, O>,
    };

    unsafe fn clear(elements: *mut u8, count: usize) {
        for index in 0..count {
            // SAFETY: the caller's promise: that many elements may be written there.
            unsafe { elements.cast::<T>().add(index).write(O::IDENTITY) }
        }
    }

    /// Does merging the identity leave each element as it is, guaranteed by this crate?
    const IS_NEUTRAL: bool = O::EXACT && O::PLAIN.is_plain();

    unsafe fn merge(elements: *mut u8, with: &[u8]) {
        let identity = O::IDENTITY;
        for (index, with) in with.chunks_exact(size_of::<T>()).enumerate() {
            // SAFETY: the caller's promise: that many elements lie there; any bytes are a `T`, as it is `FromBytes`.
            let (at, with) = unsafe { (elements.cast::<T>().add(index), with.as_ptr().cast::<T>().read_unaligned()) };
            // No call has combined this element, or without effect: it keeps its bits, even if the operator would
            // change them.
            if !Self::IS_NEUTRAL && bytes_of(&with) == bytes_of(&identity) {
                continue;
            }
            // SAFETY: as before. Read and write are separate, because the operator in between is the user's code.
            unsafe { at.write(checked_combine::<T, O>(at.read(), with)) };
        }
    }
}

/// Combines two values; debug builds test the operator's laws on them.
#[inline(always)]
pub(crate) fn checked_combine<T: Element, O: Operator<T>>(a: T, b: T) -> T {
    let both = O::combine(a, b);
    if cfg!(debug_assertions) && O::EXACT && !O::PLAIN.is_plain() {
        let same = |x: T, y: T| bytes_of(&x) == bytes_of(&y);
        let name = std::any::type_name::<O>();
        assert!(same(O::combine(b, a), both), "the operator {name} is not commutative");
        assert!(same(O::combine(a, O::IDENTITY), a), "the `IDENTITY` of the operator {name} is none");
        let (left, right) = (O::combine(both, b), O::combine(a, O::combine(b, b)));
        assert!(same(left, right), "the operator {name} is not associative");
    }
    both
}

/// Returns the bytes of an element.
pub(crate) fn bytes_of<T: Element>(value: &T) -> &[u8] {
    // SAFETY: `T` is `IntoBytes`: all of its bytes are initialised; it is `Copy`, so nothing changes behind the
    // reference.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Returns the bytes of elements.
pub(crate) fn bytes_of_all<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: as in `bytes_of`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Sets elements from their bytes.
pub(crate) fn copy_bytes<T: Element>(to: &mut [T], bytes: &[u8]) {
    assert_eq!(size_of_val(to), bytes.len(), "the bytes of as many elements");
    // SAFETY: as many bytes, and any bytes are elements.
    unsafe { to.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Product;

    impl Operator<u64> for Product {
        const IDENTITY: u64 = 1;
        const EXACT: bool = true;
        fn combine(a: u64, b: u64) -> u64 {
            a.wrapping_mul(b)
        }
    }

    /// Merges `operands` into elements of this value. Each operand is first combined into an accumulator of its own;
    /// `None` leaves the accumulator untouched.
    fn merged<T: Element, O: Operator<T>>(_: O, value: T, operands: &[Option<T>]) -> Vec<T> {
        let table = Op::of::<T, O>().0;
        let mut elements = vec![value; operands.len()];
        let mut accumulators = elements.clone();
        // SAFETY: as many elements lie there.
        unsafe { (table.clear)(accumulators.as_mut_ptr().cast(), operands.len()) };
        for (accumulator, operand) in accumulators.iter_mut().zip(operands) {
            *accumulator = operand.map_or(*accumulator, |operand| checked_combine::<T, O>(*accumulator, operand));
        }
        // SAFETY: as before.
        unsafe { (table.merge)(elements.as_mut_ptr().cast(), bytes_of_all(&accumulators)) };
        elements
    }

    /// An element with an operand becomes the combination of both, one without keeps its bits.
    fn merge_touches_what_was_combined<T: Element, O: Operator<T>>(op: O, values: &[T]) {
        for value in values {
            for operand in values {
                let merged = merged(op, *value, &[None, Some(*operand), None]);
                let name = std::any::type_name::<O>();
                assert!([0, 2].iter().all(|i| bytes_of(&merged[*i]) == bytes_of(value)), "{name} of an identity");
                let wanted = O::combine(*value, *operand);
                assert_eq!(bytes_of(&merged[1]), bytes_of(&wanted), "{name}");
            }
        }
    }

    /// Special numbers of this type, except signalling NaN, which any operation turns into a quiet one.
    macro_rules! special {
        ($type:ident) => {
            [
                $type::NAN,
                -0.0,
                0.0,
                1.5,
                $type::INFINITY,
                $type::NEG_INFINITY,
                $type::MIN_POSITIVE / 2.0,
                $type::MAX,
                $type::MIN,
            ]
        };
    }

    #[test]
    fn a_merge_is_the_combination_of_what_was_combined_and_leaves_the_rest() {
        merge_touches_what_was_combined::<f64, _>(Min, &special!(f64));
        merge_touches_what_was_combined::<f64, _>(Max, &special!(f64));
        merge_touches_what_was_combined::<f32, _>(Min, &special!(f32));
        merge_touches_what_was_combined::<f32, _>(Max, &special!(f32));
        // The sum of infinities of both signs is a NaN with a sign that depends on the order.
        let finite = |all: &[f64]| all.iter().copied().filter(|x| !x.is_infinite()).collect::<Vec<_>>();
        merge_touches_what_was_combined(Add, &finite(&special!(f64)));
        merge_touches_what_was_combined(Add, &[f32::NAN, -0.0, 0.0, 1.5, f32::MIN_POSITIVE / 2.0]);
        merge_touches_what_was_combined(Product, &[0, 1, 7, u64::MAX]);
        merge_touches_what_was_combined::<i16, _>(Max, &[i16::MIN, -1, 0, i16::MAX]);
        merge_touches_what_was_combined(Xor, &[0u8, 1, 255]);
    }

    /// Takes the pair with more of two; its identity is not neutral for pairs with a NaN in `more`.
    #[derive(Clone, Copy)]
    struct Best;

    impl Operator<[f32; 2]> for Best {
        const IDENTITY: [f32; 2] = [f32::NEG_INFINITY, 0.0];
        const EXACT: bool = false;
        fn combine(a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
            if a[0] > b[0] { a } else { b }
        }
    }

    #[test]
    fn what_nobody_combined_keeps_its_bits_under_operators_of_programs() {
        let payload = f32::from_bits(0x7fc0_1234);
        for value in [[f32::NAN, 3.0], [payload, -0.0], [f32::NEG_INFINITY, 5.0]] {
            let merged = merged(Best, value, &[None, Some([2.0, 1.0]), None]);
            assert_eq!(bytes_of(&merged[0]), bytes_of(&value), "{value:?}");
            assert_eq!(bytes_of(&merged[2]), bytes_of(&value), "{value:?}");
            assert_eq!(merged[1], [2.0, 1.0]);
        }
        let quiet = [Some(1.0), None];
        let bits = |value: f64| merged(Max, value, &quiet).into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(f64::from_bits(0x7ff8_0000_0000_beef))[1], 0x7ff8_0000_0000_beef, "the payload of a NaN");
        assert_eq!(bits(f64::from_bits(0x7ff4_0000_0000_0000))[1], 0x7ff4_0000_0000_0000, "a signalling NaN");
    }

    /// Hits recognise the operator of a chunk by these bits alone.
    #[test]
    fn each_operator_of_the_crate_has_a_bit_and_no_other_one_has() {
        fn bit<O: Operator<u64>>(_: O) -> u64 {
            let bit = Op::of::<u64, O>().0.bit;
            assert_eq!(bit, O::PLAIN.bit());
            bit
        }
        let bits = [bit(Add), bit(Min), bit(Max), bit(And), bit(Or), bit(Xor)];
        assert!(bits.iter().all(|bit| bit.is_power_of_two()));
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), OPERATORS, "six different ones");
        assert_eq!(bit(Product), 0);
        assert_eq!(Op::of::<f64, Add>().0.bit, bits[0]);
    }
}
