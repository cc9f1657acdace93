//! Enums whose variants have names in files.

/// An enum whose variants have names in files. With a lifetime it has a variant for any other name, too, and
/// takes in the names of other such enums, each in a variant behind `+`.
macro_rules! named_enum {
    ($(#[$about:meta])* $vis:vis enum $Enum:ident {
        $($(#[$note:meta])* $Variant:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $Enum { $($(#[$note])* $Variant,)* }

        #[allow(dead_code, reason = "some are only read, some only written")]
        impl $Enum {
            /// All variants with their names, in the order of the manual.
            pub const ALL: [(&'static str, Self); [$($name),*].len()] =
                [$(($name, Self::$Variant),)*];

            /// The name in files.
            pub const fn name(self) -> &'static str {
                Self::ALL[self as usize].0
            }

            /// Reads what [`Self::name`] writes.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$Variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::text::names::Named for $Enum {
            const NAMES: &'static [(&'static str, Self)] = &Self::ALL;
        }

        impl serde::Serialize for $Enum {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $Enum {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                let name = from.deserialize_str($crate::text::names::Name)?;
                let known = Self::parse(&name);
                known.ok_or_else(|| serde::de::Error::unknown_variant(&name, &[$($name),*]))
            }
        }
    };
    ($(#[$about:meta])* $vis:vis enum $Enum:ident<'a> {
        $($(#[$note:meta])* $Variant:ident = $name:literal,)*
        $(+ $Group:ident($Names:ty),)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis enum $Enum<'a> {
            $($(#[$note])* $Variant,)*
            $($Group($Names),)*
            /// Any other name.
            Unknown(std::borrow::Cow<'a, str>),
        }

        #[allow(dead_code, reason = "some are never listed, or never outlive what they are read from")]
        impl<'a> $Enum<'a> {
            /// The name in files.
            pub(crate) fn name(&self) -> &str {
                match self {
                    $(Self::$Variant => $name,)*
                    $(Self::$Group(one) => one.name(),)*
                    Self::Unknown(name) => name,
                }
            }

            /// The names of the variants, without those of groups.
            pub(crate) const NAMES: &'static [&'static str] = &[$($name),*];

            /// The variant of a name that is not unknown.
            pub(crate) fn known(name: &str) -> Option<$Enum<'static>> {
                match name {
                    $($name => Some($Enum::$Variant),)*
                    _ => None$(.or_else(|| <$Names>::parse(name).map($Enum::$Group)))*,
                }
            }

            /// The variant of any name.
            pub(crate) fn of(name: impl Into<std::borrow::Cow<'a, str>>) -> Self {
                let name = name.into();
                Self::known(&name).unwrap_or(Self::Unknown(name))
            }

            /// The same, borrowing nothing.
            pub(crate) fn into_owned(self) -> $Enum<'static> {
                match self {
                    $(Self::$Variant => $Enum::$Variant,)*
                    $(Self::$Group(one) => $Enum::$Group(one),)*
                    Self::Unknown(name) => $Enum::Unknown(name.into_owned().into()),
                }
            }
        }

        $(impl From<$Names> for $Enum<'_> {
            fn from(one: $Names) -> Self {
                Self::$Group(one)
            }
        })*

        impl serde::Serialize for $Enum<'_> {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de: 'a, 'a> serde::Deserialize<'de> for $Enum<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                from.deserialize_str($crate::text::names::Name).map(Self::of)
            }
        }
    };
}

pub(crate) use named_enum;

/// The part of a name after the last separator; all of it if there is none.
pub(crate) fn last_part(name: &str, separator: char) -> &str {
    name.rsplit_once(separator).map_or(name, |(_, last)| last)
}

use serde::de::Visitor;
use std::borrow::Cow;
use std::fmt;

/// An enum whose variants have names in files.
pub(crate) trait Named: Copy + serde::Serialize + 'static {
    const NAMES: &'static [(&'static str, Self)];
}

/// Reads a string, borrowed where it has no escapes.
pub(crate) struct Name;

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }
    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
