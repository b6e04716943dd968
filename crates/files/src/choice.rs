//! Settings that are one of a few names.

/// An enum that is written and read as one of its names. Its parse error lists all of them.
macro_rules! choice {
    (
        $(#[$of_enum:meta])*
        $enum:ident, $what:literal:
        $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $enum {
            $($(#[$of_variant])* $variant,)+
        }

        impl $enum {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl ::std::fmt::Display for $enum {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }

        impl ::std::str::FromStr for $enum {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(format!("`{text}` is not {}: use {}", $what, [$($name),+].join(", "))),
                }
            }
        }
    };
}
pub(crate) use choice;
