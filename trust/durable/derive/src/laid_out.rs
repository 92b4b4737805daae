//! Check that the type has the layout that its `repr` promises. The compiler evaluates it on the type itself, because
//! an attribute below the derive may have changed the type after the derive saw it.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Field, GenericParam};

use crate::{Target, member};

/// A variant to check, with its twin: a `repr(C)` struct of tag and fields.
pub(crate) struct Twin<'a> {
    pub(crate) variant: &'a Ident,
    pub(crate) fields: Vec<&'a Field>,
    pub(crate) tag: u8,
    pub(crate) name: Ident,
    pub(crate) names: Vec<Ident>,
}

impl Target<'_> {
    /// Generates a function that panics at compile time if the layout of the type differs from `checks`, and a constant
    /// that calls it.
    pub(crate) fn laid_out(&self, checks: &TokenStream) -> TokenStream {
        let (impls, ..) = self.generics.split_for_impl();
        // A type with parameters is checked by `describe`, for each instance that a pool uses.
        let now = (self.arguments().is_empty()).then(|| {
            quote!(
                const _: () = __laid_out();
            )
        });
        quote! {
            // SAFETY: run at compile time only, where the compiler rejects undefined behaviour.
            #[allow(dead_code, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
            const fn __laid_out #impls () { #checks }
            #now
        }
    }

    /// Generates the call of that function for this type.
    pub(crate) fn check_layout(&self) -> TokenStream {
        let arguments = self.arguments();
        let turbofish = (!arguments.is_empty()).then(|| quote!(::<#(#arguments),*>));
        quote!(const { __laid_out #turbofish () })
    }

    /// Returns the parameters that are not lifetimes.
    fn arguments(&self) -> Vec<&Ident> {
        self.generics
            .params
            .iter()
            .filter_map(|parameter| match parameter {
                GenericParam::Lifetime(_) => None,
                GenericParam::Type(of) => Some(&of.ident),
                GenericParam::Const(of) => Some(&of.ident),
            })
            .collect()
    }

    fn message(&self, repr: &str) -> String {
        format!(
            "`{}` is not laid out as `#[repr({repr})]` promises: an attribute below `#[derive(Persist)]` has changed \
             it; put the derive below that",
            self.name
        )
    }

    /// Generates the check of a struct: each field is where `repr(C)` puts it.
    pub(crate) fn struct_is_laid_out(&self, twin: &Ident, names: &[Ident], fields: &[&Field]) -> TokenStream {
        let (_, types, _) = self.generics.split_for_impl();
        let (name, message) = (self.name, self.message("C"));
        let members = fields.iter().enumerate().map(|(index, field)| member(index, field));
        quote! {
            ::core::assert!(::core::mem::size_of::<#name #types>() >= ::core::mem::size_of::<#twin #types>(), #message);
            #(::core::assert!(
                ::core::mem::offset_of!(#name #types, #members) == ::core::mem::offset_of!(#twin #types, #names),
                #message
            );)*
        }
    }

    /// Generates the check of an enum: a tag alone makes a value of its variant, and each field is where the variant's
    /// twin has it.
    pub(crate) fn enum_is_laid_out(&self, twins: &[Twin<'_>]) -> TokenStream {
        let (_, types, _) = self.generics.split_for_impl();
        let (name, message) = (self.name, self.message("u8"));
        let checks = twins.iter().map(|twin| {
            let Twin { variant, fields, tag, name: twin, names } = twin;
            let members = fields.iter().enumerate().map(|(index, field)| member(index, field));
            quote! {
                ::core::assert!(
                    ::core::mem::size_of::<#name #types>() >= ::core::mem::size_of::<#twin #types>(),
                    #message
                );
                let mut __value = ::core::mem::MaybeUninit::<#name #types>::zeroed();
                let __start = (&raw mut __value).cast::<u8>();
                unsafe { __start.write(#tag) };
                #[allow(unreachable_patterns)]
                match unsafe { &*__value.as_ptr() } {
                    #name::#variant { #(#members: #names),* } => { #(
                        let __offset = unsafe { (&raw const *#names).cast::<u8>().offset_from(__start) };
                        ::core::assert!(__offset == ::core::mem::offset_of!(#twin #types, #names) as isize, #message);
                    )* }
                    _ => ::core::panic!(#message),
                }
            }
        });
        quote!(#({ #checks })*)
    }
}
