//! Tables of functions that are found in a library at run time.

/// Makes `Functions`, a table of functions of the library of `$owner`, and for each a method of `$owner` that calls it and
/// turns its code into an [`Error`](crate::Error), by `$owner::check`.
///
/// Those that are `optional` may be missing, of which `$has` tells; those that are `plain` have no method.
/// `$owner` has the fields `functions` and `library`.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        impl $owner:ident;
        needed { $($name:ident = $symbol:literal($($argument:ident: $type:ty),* $(,)?);)* }
        plain { $($plain:ident = $plain_symbol:literal($($plain_type:ty),*);)* }
        optional { $($some:ident, $has:ident = $some_symbol:literal($($some_argument:ident: $some_type:ty),* $(,)?);)* }
    ) => {
        #[derive(Debug)]
        struct Functions {
            $($name: unsafe extern "system" fn($($type),*) -> u32,)*
            $($plain: unsafe extern "system" fn($($plain_type),*) -> u32,)*
            $($some: Option<unsafe extern "system" fn($($some_type),*) -> u32>,)*
        }

        impl Functions {
            fn find(library: &Loaded) -> Result<Self> {
                Ok(Self {
                    // SAFETY: the types are those of the library's header.
                    $($name: unsafe { library.needed($symbol) }?,)*
                    // SAFETY: as above.
                    $($plain: unsafe { library.needed($plain_symbol) }?,)*
                    // SAFETY: as above.
                    $($some: unsafe { library.symbol($some_symbol) },)*
                })
            }
        }

        $(#[$meta])*
        ///
        /// A handle must be one that the library gave and that was not destroyed since, and a pointer valid for what the
        /// function reads or writes.
        #[allow(clippy::too_many_arguments, reason = "they are the library's")]
        impl $owner {
            $(
                pub(crate) unsafe fn $name(&self, $($argument: $type),*) -> Result<()> {
                    // SAFETY: the caller's promise.
                    self.check($symbol, unsafe { (self.functions.$name)($($argument),*) })
                }
            )*
            $(
                pub(crate) unsafe fn $some(&self, $($some_argument: $some_type),*) -> Result<()> {
                    let function = self.functions.$some.ok_or_else(|| Error::Symbol {
                        library: self.library.path().to_owned(),
                        symbol: $some_symbol,
                    })?;
                    // SAFETY: the caller's promise.
                    self.check($some_symbol, unsafe { function($($some_argument),*) })
                }

                /// Whether the library has the function.
                pub(crate) fn $has(&self) -> bool {
                    self.functions.$some.is_some()
                }
            )*
        }
    };
}

pub(crate) use functions;
