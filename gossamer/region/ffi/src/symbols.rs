//! Names of the program's variables and functions, from the symbol table of its file.

use std::ffi::CStr;
use std::ops::Range;

/// A variable: its name, and where it is.
pub(crate) type Variable = (String, Range<usize>);

/// Bytes of a file's header, of a section header, of a symbol (ELF, 64 bits).
const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;

/// Returns all variables in the program's file, loaded `bias` bytes above its addresses; none where it is stripped or
/// cannot be read.
pub(crate) fn variables(bias: usize) -> Vec<Variable> {
    of_file(bias, OBJECT)
}

/// Same as [`variables`], of functions.
pub(crate) fn functions(bias: usize) -> Vec<Variable> {
    of_file(bias, FUNCTION)
}

fn of_file(bias: usize, kind: u8) -> Vec<Variable> {
    std::fs::read("/proc/self/exe").ok().and_then(|file| parse(&file, bias, kind)).unwrap_or_default()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    usize::try_from(u64::from_le_bytes(wide)).ok()
}

struct Section<'a> {
    kind: u32,
    link: usize,
    bytes: &'a [u8],
}

fn parse(file: &[u8], bias: usize, kind: u8) -> Option<Vec<Variable>> {
    let is_known = file.len() >= HEADER && file.starts_with(b"\x7fELF\x02\x01");
    let (start, count) = (number::<8>(file, 0x28)?, number::<2>(file, 0x3c)?);
    let section = |at: usize| {
        let header = file.get(start.checked_add(at * SECTION)?..)?;
        let (offset, bytes) = (number::<8>(header, 0x18)?, number::<8>(header, 0x20)?);
        let bytes = file.get(offset..offset.checked_add(bytes)?).unwrap_or(&[]);
        Some(Section { kind: number::<4>(header, 4)? as u32, link: number::<4>(header, 0x28)?, bytes })
    };
    let sections: Vec<Section<'_>> = (0..count).filter(|_| is_known).filter_map(section).collect();
    let found = [SYMBOLS, DYNAMIC_SYMBOLS].iter().find_map(|kind| sections.iter().find(|of| of.kind == *kind))?;
    let names = sections.get(found.link)?.bytes;
    Some(found.bytes.chunks_exact(SYMBOL).filter_map(|symbol| variable(symbol, names, bias, kind)).collect())
}

fn variable(symbol: &[u8], names: &[u8], bias: usize, kind: u8) -> Option<Variable> {
    let (name, value, bytes) = (number::<4>(symbol, 0)?, number::<8>(symbol, 8)?, number::<8>(symbol, 16)?);
    let name = names.get(name..)?.split(|byte| *byte == 0).next()?;
    let start = value.wrapping_add(bias);
    let is_one = symbol[4] & 0xf == kind && bytes > 0;
    is_one.then(|| (String::from_utf8_lossy(name).into_owned(), start..start.saturating_add(bytes)))
}

/// Names the variable of the program at an address, or the one of a library that it exports.
pub(crate) fn name_of(all: &[Variable], address: usize) -> Option<String> {
    if all.iter().any(|(_, of)| of.contains(&address)) {
        return Some(names_in(all, &(address..address.saturating_add(1))));
    }
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call fills it, or leaves zeros, which are one.
    let found = unsafe {
        libc::dladdr(std::ptr::without_provenance(address), found.as_mut_ptr());
        found.assume_init()
    };
    // SAFETY: null, or a name that ends with a zero, of a library that stays.
    let name = (!found.dli_sname.is_null()).then(|| unsafe { CStr::from_ptr(found.dli_sname) })?;
    let offset = address.saturating_sub(found.dli_saddr.addr());
    let from = if offset == 0 { String::new() } else { format!(" from byte {offset} on") };
    Some(format!("variable {}{from}", name.to_string_lossy()))
}

/// Names the variables of a range of bytes, in words.
pub(crate) fn names_in(all: &[Variable], range: &Range<usize>) -> String {
    const NAMED: usize = 4;
    let mut here: Vec<&Variable> = all.iter().filter(|(_, of)| of.start < range.end && range.start < of.end).collect();
    here.sort_by_key(|(_, of)| of.start);
    let name = |(name, of): &&Variable| match range.start.checked_sub(of.start) {
        None | Some(0) => name.clone(),
        Some(offset) => format!("{name} from byte {offset} on"),
    };
    let names: Vec<String> = here.iter().take(NAMED).map(name).collect();
    match here.len() {
        0 => "variables".to_owned(),
        count @ 1..=NAMED => format!("variable{} {}", if count > 1 { "s" } else { "" }, names.join(", ")),
        count => format!("variables {} and {} more", names.join(", "), count - NAMED),
    }
}
