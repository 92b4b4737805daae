//! `#[derive(Persist)]` for `trust-durable`, where it is documented.
//!
//! This file generates the code; `allowed.rs` checks the input. The compiler checks the types of fields in the bodies
//! of functions, not in where-clauses: a type that contains itself behind a pointer could not satisfy those.

mod allowed;
mod laid_out;

use allowed::{check_field, check_generics, fields_of, krate, reprs};
use laid_out::Twin;
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Expr, Field, Fields, GenericParam, Generics, Ident, Path, Type};

/// Derives `Persist`, so that values of the type can lie in a pool.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn persist(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Example of a change that another attribute may make to a type after the derive has seen it.
#[cfg(feature = "without-repr")]
#[doc(hidden)]
#[proc_macro_attribute]
pub fn without_repr(_: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let mut item = syn::parse_macro_input!(item as DeriveInput);
    item.attrs.retain(|attr| !attr.path().is_ident("repr"));
    quote!(#item).into()
}

/// The type that the derive is applied to.
struct Target<'a> {
    name: &'a Ident,
    generics: &'a Generics,
    krate: Path,
}

/// Generated code that depends on the shape of the type.
struct Body {
    is_plain: TokenStream,
    drop_writes: TokenStream,
    kind: TokenStream,
    check: TokenStream,
    /// Items beside the impl.
    beside: TokenStream,
    /// Layout assertions, checked at compile time.
    layout: TokenStream,
}

fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let target = Target { name: &input.ident, generics: &input.generics, krate: krate(&input.attrs)? };
    check_generics(&input.generics)?;
    fields_of(&input.data).into_iter().try_for_each(check_field)?;
    let reprs = reprs(&input.attrs)?;
    let body = match &input.data {
        Data::Struct(data) => {
            if !reprs.iter().any(|repr| repr == "C" || repr == "transparent") {
                return Err(Error::new_spanned(
                    &input.ident,
                    "the layout of this struct may be another in each build: add `#[repr(C)]`",
                ));
            }
            target.of_struct(&data.fields, reprs.iter().any(|repr| repr == "C"))
        }
        Data::Enum(data) => {
            if reprs != ["u8"] {
                return Err(Error::new_spanned(
                    &input.ident,
                    "the layout of this enum may be another in each build: add `#[repr(u8)]`",
                ));
            }
            target.of_enum(data)?
        }
        Data::Union(_) => {
            return Err(Error::new_spanned(
                &input.ident,
                "nothing tells what a union holds: use an enum with `#[repr(u8)]`",
            ));
        }
    };
    Ok(target.item(body, &input.data))
}

impl Target<'_> {
    fn item(&self, body: Body, data: &Data) -> TokenStream {
        let Target { name, generics, krate } = self;
        let Body { is_plain, drop_writes, kind, check, beside, layout } = body;
        let (impls, types, _) = generics.split_for_impl();
        let at = self.at(&quote!('__q));
        let text = name.to_string();
        let same = self.same(data);
        let (laid_out, check_layout) = (self.laid_out(&layout), self.check_layout());
        quote! {
            const _: () = {
                #beside
                #same
                #laid_out

                /// Has the type a destructor of its own? `IS` of the type itself hides that of the trait.
                struct __Probe<__T>(::core::marker::PhantomData<__T>);
                trait __Otherwise { const IS: bool = false; }
                impl<__T> __Otherwise for __Probe<__T> {}
                #[allow(drop_bounds)]
                impl<__T: ::core::ops::Drop> __Probe<__T> { const IS: bool = true; }

                // SAFETY: the layout is promised by `repr`, which `__laid_out` has seen to be that of the type; each
                // field is `Persist` and is checked, and `__same` holds only where the fields of `At` are those of this
                // type with another brand.
                #[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
                unsafe impl #impls #krate::Persist for #name #types {
                    type At<'__q> = #at;
                    const IS_PLAIN: bool = #is_plain;
                    const DROP_WRITES: bool = <__Probe<Self>>::IS #drop_writes;

                    fn describe(__types: &mut #krate::layout::Types) -> (::std::string::String, #krate::layout::Kind) {
                        #check_layout;
                        (#text.into(), #kind)
                    }

                    fn check(
                        __at: u64,
                        __walk: &mut #krate::walk::Walk<'_>,
                    ) -> ::core::result::Result<(), #krate::walk::Damage> {
                        #check
                        ::core::result::Result::Ok(())
                    }
                }
            };
        }
    }

    /// Generates the type with the brand `'__q`.
    fn at(&self, brand: &TokenStream) -> TokenStream {
        let Target { name, generics, krate } = self;
        let arguments = generics.params.iter().map(|parameter| match parameter {
            GenericParam::Lifetime(_) => brand.clone(),
            GenericParam::Type(of) => {
                let ident = &of.ident;
                quote!(<#ident as #krate::Persist>::At<#brand>)
            }
            GenericParam::Const(of) => {
                let ident = &of.ident;
                quote!(#ident)
            }
        });
        quote!(#name<#(#arguments),*>)
    }

    /// Generates a function for each field that compiles only if the field's `At` type in another pool is the written
    /// type with another brand. So `PBox<'static, T>` in a type without a brand is refused.
    fn same(&self, data: &Data) -> TokenStream {
        let Target { generics, krate, .. } = self;
        let fields = fields_of(data);
        let mut with_brand = (*generics).clone();
        with_brand.params.insert(0, syn::parse_quote!('__q));
        let (impls, ..) = with_brand.split_for_impl();
        let fields = fields.into_iter().enumerate().map(|(index, field)| {
            let function = format_ident!("__same_{index}");
            let of = &field.ty;
            let there = self.replaced(quote!(#of));
            quote_spanned! {of.span()=>
                fn #function #impls (field: *mut <#of as #krate::Persist>::At<'__q>) -> *mut #there { field }
            }
        });
        let exact = self.exact(data);
        quote!(#[allow(dead_code, clippy::all)] const _: () = { #(#fields)* #exact };)
    }

    /// Generates a function that compiles only if the type has exactly the fields seen here: an attribute below the
    /// derive may have changed them.
    fn exact(&self, data: &Data) -> TokenStream {
        let Target { name, generics, .. } = self;
        let (impls, types, _) = generics.split_for_impl();
        let arm = |path: TokenStream, fields: &Fields| {
            let of: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
            let names = fields.iter().enumerate().map(|(index, field)| member(index, field));
            let bound: Vec<Ident> = (0..of.len()).map(|index| format_ident!("__field_{index}")).collect();
            // In two steps: if the type were known at the binding, a pointer would be dereferenced by coercion.
            quote!(#path { #(#names: ref #bound),* } => { #(
                let __found = __type_of(#bound);
                let _: ::core::marker::PhantomData<fn(#of) -> #of> = __found;
            )* })
        };
        let arms: Vec<TokenStream> = match data {
            Data::Struct(data) => vec![arm(quote!(#name), &data.fields)],
            Data::Enum(data) => data
                .variants
                .iter()
                .map(|variant| {
                    let ident = &variant.ident;
                    arm(quote!(#name::#ident), &variant.fields)
                })
                .collect(),
            Data::Union(_) => Vec::new(),
        };
        quote! {
            fn __type_of<__T>(_: &__T) -> ::core::marker::PhantomData<fn(__T) -> __T> { ::core::marker::PhantomData }
            fn __exact #impls (value: &#name #types) { match *value { #(#arms)* } }
        }
    }

    /// Replaces brand and parameters in a field's type by those in another pool.
    fn replaced(&self, tokens: TokenStream) -> TokenStream {
        let krate = &self.krate;
        let brand = self.generics.lifetimes().next().map(|parameter| parameter.lifetime.ident.to_string());
        let mut out = Vec::new();
        let mut is_lifetime = false;
        for token in tokens {
            let was_lifetime = std::mem::replace(&mut is_lifetime, false);
            match token {
                TokenTree::Group(group) => {
                    let mut inner = Group::new(group.delimiter(), self.replaced(group.stream()));
                    inner.set_span(group.span());
                    out.push(TokenTree::Group(inner));
                }
                TokenTree::Ident(ident)
                    if was_lifetime && brand.as_ref().is_some_and(|brand| ident == brand.as_str()) =>
                {
                    out.push(TokenTree::Ident(Ident::new("__q", ident.span())));
                }
                TokenTree::Ident(ident) if !was_lifetime && self.generics.type_params().any(|of| of.ident == ident) => {
                    out.extend(quote!(<#ident as #krate::Persist>::At<'__q>));
                }
                TokenTree::Punct(punct) => {
                    is_lifetime = punct.as_char() == '\'';
                    out.push(TokenTree::Punct(punct));
                }
                other => out.push(other),
            }
        }
        out.into_iter().collect()
    }

    fn of_struct(&self, fields: &Fields, is_c: bool) -> Body {
        let (impls, ..) = self.generics.split_for_impl();
        let krate = &self.krate;
        let list: Vec<_> = fields.iter().collect();
        let names: Vec<TokenStream> = list.iter().enumerate().map(|(index, field)| member(index, field)).collect();
        let described = names.iter().zip(&list).map(|(name, field)| {
            let (text, of) = (name.to_string(), &field.ty);
            quote_spanned! {of.span()=> {
                let of = __types.add::<#of>();
                #krate::layout::Field { name: #text.into(), offset: ::core::mem::offset_of!(Self, #name), of }
            }}
        });
        let checked = names.iter().zip(&list).map(|(name, field)| {
            let of = &field.ty;
            quote_spanned! {of.span()=>
                <#of as #krate::Persist>::check(__at + ::core::mem::offset_of!(Self, #name) as u64, __walk)?;
            }
        });
        let kind = quote!(#krate::layout::Kind::Struct(::std::vec![#(#described),*]));
        let (plain, drop_writes) = self.consts(&list);
        // Padding does not matter: it is never read.
        let twin = format_ident!("__Twin");
        let twin_names: Vec<Ident> = (0..list.len()).map(|index| format_ident!("__{index}")).collect();
        let (of, marks) = (list.iter().map(|field| &field.ty), self.marks());
        // A transparent struct has the layout of its one field, so its attribute needs no check.
        let (beside, layout) = if is_c {
            let twin_of = quote! {
                #[allow(dead_code, clippy::all)]
                #[repr(C)]
                struct #twin #impls { #(#twin_names: #of,)* __marks: #marks }
            };
            (twin_of, self.struct_is_laid_out(&twin, &twin_names, &list))
        } else {
            (quote!(), quote!())
        };
        let is_plain = quote!(true #plain);
        Body { is_plain, drop_writes, kind, check: quote!(#(#checked)*), beside, layout }
    }

    fn consts(&self, fields: &[&Field]) -> (TokenStream, TokenStream) {
        let krate = &self.krate;
        let of: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
        (quote!(#(&& <#of as #krate::Persist>::IS_PLAIN)*), quote!(#(|| <#of as #krate::Persist>::DROP_WRITES)*))
    }

    fn of_enum(&self, data: &syn::DataEnum) -> syn::Result<Body> {
        let Target { generics, krate, .. } = self;
        let (impls, types, _) = generics.split_for_impl();
        let (mut variants, mut arms, mut beside, mut twins) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut next: u8 = 0;
        let mut is_first = true;
        for variant in &data.variants {
            let tag = match &variant.discriminant {
                Some((_, value)) => tag(value)?,
                None if is_first => 0,
                None => next
                    .checked_add(1)
                    .ok_or_else(|| Error::new_spanned(variant, "more variants than a byte counts"))?,
            };
            (next, is_first) = (tag, false);
            let twin = format_ident!("__{}", variant.ident);
            let list: Vec<&Field> = variant.fields.iter().collect();
            let of: Vec<&Type> = list.iter().map(|field| &field.ty).collect();
            let twin_names: Vec<Ident> = (0..list.len()).map(|index| format_ident!("__{index}")).collect();
            // The layout that `repr(u8)` promises for a variant.
            let marks = self.marks();
            beside.push(quote! {
                #[allow(dead_code, non_camel_case_types, clippy::all)]
                #[repr(C)]
                struct #twin #impls { __tag: u8, #(#twin_names: #of,)* __marks: #marks }
            });
            let names = list.iter().enumerate().map(|(index, field)| member(index, field).to_string());
            let text = variant.ident.to_string();
            variants.push(quote! {
                #krate::layout::Variant {
                    name: #text.into(),
                    tag: #tag,
                    fields: ::std::vec![#({
                        let of = __types.add::<#of>();
                        #krate::layout::Field {
                            name: #names.into(), offset: ::core::mem::offset_of!(#twin #types, #twin_names), of
                        }
                    }),*],
                }
            });
            arms.push(quote! {
                #tag => { #(
                    let __field = ::core::mem::offset_of!(#twin #types, #twin_names) as u64;
                    <#of as #krate::Persist>::check(__at + __field, __walk)?;
                )* }
            });
            twins.push(Twin { variant: &variant.ident, fields: list, tag, name: twin, names: twin_names });
        }
        let fields: Vec<&Field> = data.variants.iter().flat_map(|variant| &variant.fields).collect();
        let (_, drop_writes) = self.consts(&fields);
        let text = format!("it is no variant of `{}`", self.name);
        Ok(Body {
            is_plain: quote!(false),
            drop_writes,
            kind: quote!(#krate::layout::Kind::Enum(::std::vec![#(#variants),*])),
            check: quote! {
                let __tag: [u8; 1] = __walk.bytes(__at)?;
                match __tag[0] {
                    #(#arms)*
                    _ => return ::core::result::Result::Err(__walk.damage(__at, #text)),
                }
            },
            beside: quote!(#(#beside)*),
            layout: self.enum_is_laid_out(&twins),
        })
    }

    /// Generates a zero-sized type that uses all parameters.
    fn marks(&self) -> TokenStream {
        let lifetimes = self.generics.lifetimes().map(|parameter| &parameter.lifetime);
        let types = self.generics.type_params().map(|parameter| &parameter.ident);
        quote!(::core::marker::PhantomData<(#(&#lifetimes (),)* #(*mut #types,)*)>)
    }
}

fn member(index: usize, field: &Field) -> TokenStream {
    match &field.ident {
        Some(name) => quote!(#name),
        None => {
            let index = syn::Index { index: index as u32, span: Span::call_site() };
            quote!(#index)
        }
    }
}

fn tag(value: &Expr) -> syn::Result<u8> {
    let Expr::Lit(literal) = value else {
        return Err(Error::new_spanned(value, "the number of a variant has to be a literal from 0 to 255 here"));
    };
    match &literal.lit {
        syn::Lit::Int(number) => number.base10_parse(),
        syn::Lit::Byte(byte) => Ok(byte.value()),
        other => Err(Error::new_spanned(other, "the number of a variant is from 0 to 255")),
    }
}
