//! Checks of the derive's input: attributes, generics, fields.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use syn::{Attribute, Data, Error, Field, Generics, Ident, Path};

pub(crate) fn krate(attrs: &[Attribute]) -> syn::Result<Path> {
    let mut krate = syn::parse_quote!(::trust_durable);
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("persist")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("only `crate = path` is known here"));
            }
            krate = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(krate)
}

pub(crate) fn reprs(attrs: &[Attribute]) -> syn::Result<Vec<String>> {
    let mut reprs = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("repr")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("packed") {
                return Err(meta.error("fields of packed structs cannot be borrowed: leave `packed` out"));
            }
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<TokenStream>()?;
            }
            reprs.extend(meta.path.get_ident().map(Ident::to_string));
            Ok(())
        })?;
    }
    reprs.retain(|repr| repr != "align");
    Ok(reprs)
}

pub(crate) fn check_generics(generics: &Generics) -> syn::Result<()> {
    if let Some(second) = generics.lifetimes().nth(1) {
        return Err(Error::new_spanned(second, "a persistent type has one lifetime at most: the brand of its pool"));
    }
    for parameter in generics.type_params() {
        let is_persist = parameter.bounds.iter().any(|bound| quote!(#bound).to_string().ends_with("Persist"));
        if !is_persist || parameter.bounds.len() != 1 {
            let text =
                format!("declare it as `{}: Persist`, and put other bounds on impls and functions", parameter.ident);
            return Err(Error::new_spanned(parameter, text));
        }
    }
    match &generics.where_clause {
        Some(clause) => {
            Err(Error::new_spanned(clause, "put these bounds on impls and functions, not on the persistent type"))
        }
        None => Ok(()),
    }
}

/// Returns the fields of all variants.
pub(crate) fn fields_of(data: &Data) -> Vec<&Field> {
    match data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    }
}

/// Refuses a macro in the place of a type: it could expand to another type in each derived function, and nothing would
/// be checked.
pub(crate) fn check_field(field: &Field) -> syn::Result<()> {
    let of = &field.ty;
    if has_macro(quote!(#of)) {
        return Err(Error::new_spanned(of, "what a macro makes of this cannot be checked: write the type itself"));
    }
    Ok(())
}

/// Detects `!`: in types it marks a macro, or the type without values, which no pool holds.
fn has_macro(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => has_macro(group.stream()),
        TokenTree::Punct(punct) => punct.as_char() == '!',
        _ => false,
    })
}
