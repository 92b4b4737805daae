//! Page: one file, and the policy under which a browser runs it.
//!
//! The policy allows this one script and this one style by their hashes, an empty icon, requests to the origin of the
//! page, and nothing else.

use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// The page.
pub(super) const PAGE: &str = include_str!("page.html");

/// Returns its `Content-Security-Policy`.
pub(super) fn policy() -> String {
    static POLICY: OnceLock<String> = OnceLock::new();
    let made = || {
        let (script, style) = (hash_of("script"), hash_of("style"));
        format!(
            "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; base-uri \
             'none'; form-action 'none'; frame-ancestors 'none'"
        )
    };
    POLICY.get_or_init(made).clone()
}

/// Returns the hash of the one element of that name, as a source of the policy.
fn hash_of(element: &str) -> String {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let text = PAGE.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map_or("", |(text, _)| text);
    format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())))
}

/// Encodes bytes by RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let three = |chunk: &[u8]| {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letter = move |place: usize| LETTERS[(bits >> (18 - 6 * place)) as usize % 64] as char;
        let letters = chunk.len() + 1;
        (0..4).map(move |place| if place < letters { letter(place) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(three).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_this_script_and_style_and_nothing_else() {
        // RFC 4648, section 10.
        let known =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        assert!(known.iter().all(|(text, coded)| base64(text.as_bytes()) == *coded));
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        for forbidden in ["http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write", " style=", "eval("] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        assert_eq!(policy().matches("'sha256-").count(), 2);
    }
}
