//! The members of a line and their values: texts, paths and JSON, each of which may be missing.

use super::RawJson;
use crate::text::json::Object;
use crate::unix::files;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::ops::Deref;
use std::path::Path;

/// The members of an event that the engine knows: the field and its type. Every field may be missing. (A derived reader
/// would move all fields several times for each line, and would not say which member does not fit.)
macro_rules! members {
    ($($(#[$about:meta])* $Event:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $Event<'a> { $($(#[$doc])* pub $field: $type,)* }

        impl<'a> $Event<'a> {
            /// Reads the value of a member. False if it is not known here.
            pub(super) fn read_member<M: serde::de::MapAccess<'a>>(
                &mut self,
                name: &str,
                from: &mut M,
            ) -> Result<bool, M::Error> {
                match name {
                    $(stringify!($field) => {
                        if self.$field.is_some() {
                            return Err(serde::de::Error::duplicate_field(stringify!($field)));
                        }
                        self.$field = from.next_value()?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    )*};
}

/// Events as they are written and as they are read: a table of the members, each with its form (`form!`), in the order
/// in which they are written. Behind `+` are those that only others write.
macro_rules! events {
    ($($(#[$about:meta])* $Event:ident, $New:ident {
        $($(#[$doc:meta])* $field:ident: $form:tt,)*
    } $(+ { $($(#[$other_doc:meta])* $other:ident: $type:ty,)* })?)*) => {$(
        $(#[$about])*
        pub(crate) struct $New<'a> {
            $($(#[$doc])* pub $field: form!(@new $form),)*
        }

        impl Event for $New<'_> {
            fn kind(&self) -> EventKind<'static> {
                EventKind::$Event
            }

            fn put(&self, line: &mut crate::text::json::Object<'_>) {
                $(form!(@put $form)(line, stringify!($field), &self.$field);)*
            }
        }

        members! {
            $Event {
                $($field: form!(@read $form),)*
                $($($(#[$other_doc])* $other: $type,)*)?
            }
        }
    )*};
}

/// The form of a member: the types as which it is written and read. In brackets are those that are left out if there is
/// nothing to be written. The ones with `place` are read into [`super::Place`], or not at all.
macro_rules! form {
    (@new ($new:ty => $read:ty)) => { $new };
    (@new [$new:ty => $read:ty]) => { $new };
    (@read ($new:ty => $read:ty)) => { $read };
    (@read [$new:ty => $read:ty]) => { $read };
    (@put ($($types:tt)*)) => { crate::text::json::Object::put };
    (@put [$($types:tt)*]) => { super::members::put_some };
    (@new reasoning) => { &'a [(&'static str, &'a [u8])] };
    (@read reasoning) => { Option<serde::de::IgnoredAny> };
    (@put reasoning) => { super::members::put_all };
    (@$what:ident text) => { form!(@$what (&'a str => Text<'a>)) };
    (@$what:ident opt_text) => { form!(@$what [Option<&'a str> => Text<'a>]) };
    (@$what:ident string) => { form!(@$what (&'a str => Raw<'a>)) };
    (@$what:ident json) => { form!(@$what (RawJson<'a> => Raw<'a>)) };
    (@$what:ident opt_json) => { form!(@$what [Option<RawJson<'a>> => Raw<'a>]) };
    (@$what:ident count) => { form!(@$what (u64 => Option<u64>)) };
    (@$what:ident opt_count) => { form!(@$what [Option<u64> => Option<u64>]) };
    (@$what:ident null_code) => { form!(@$what (Option<i32> => Option<i64>)) };
    (@$what:ident flag) => { form!(@$what (bool => Option<bool>)) };
    (@$what:ident opt_flag) => { form!(@$what [bool => Option<bool>]) };
    (@$what:ident place) => { form!(@$what place &'a str) };
    (@$what:ident null_place) => { form!(@$what place Option<&'a str>) };
    (@$what:ident number) => { form!(@$what place u64) };
    (@$what:ident place $new:ty) => { form!(@$what ($new => Option<serde::de::IgnoredAny>)) };
}

/// A string; nothing if it is null or missing. Reads as an empty one then. It is borrowed where it has no escapes: the
/// derived code would copy every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(pub Option<Cow<'a, str>>);

impl Text<'_> {
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(crate) fn owned(&self) -> Option<String> {
        self.get().map(str::to_owned)
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.get().unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(transparent)]
        struct Borrowed<'t>(#[serde(borrow)] Cow<'t, str>);
        let text = Option::<Borrowed<'a>>::deserialize(from)?;
        Ok(Self(text.map(|text| text.0)))
    }
}

/// Members of an answer in which the server has sent reasoning, under their own names.
pub(super) fn put_all(line: &mut Object<'_>, _: &str, members: &&[(&'static str, &[u8])]) {
    for (name, json) in *members {
        line.put(name, &RawJson(json));
    }
}

pub(super) fn put_some(line: &mut Object<'_>, name: &str, value: &(impl Serialize + MayBeEmpty)) {
    if !value.is_empty() {
        line.put(name, value);
    }
}

/// Values of members that may be left out.
pub(super) trait MayBeEmpty {
    fn is_empty(&self) -> bool;
}

impl<T> MayBeEmpty for Option<T> {
    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl<T> MayBeEmpty for &[T] {
    fn is_empty(&self) -> bool {
        <[T]>::is_empty(self)
    }
}

impl MayBeEmpty for &Map<String, Value> {
    fn is_empty(&self) -> bool {
        Map::is_empty(self)
    }
}

impl MayBeEmpty for bool {
    fn is_empty(&self) -> bool {
        !self
    }
}

/// A path from the run's directory, unless it leads out of that.
#[derive(Debug, Default)]
pub(crate) struct Reference<'a>(pub Text<'a>);

impl<'a> Deref for Reference<'a> {
    type Target = Text<'a>;

    fn deref(&self) -> &Text<'a> {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Reference<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Text(path) = Text::deserialize(from)?;
        let below = path.filter(|path| files::is_below(Path::new(&**path)));
        Ok(Self(Text(below)))
    }
}

/// A value as the JSON that it is; nothing if it is null or missing.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Raw<'a>(#[serde(borrow)] pub Option<&'a RawValue>);

impl<'a> Raw<'a> {
    pub(crate) fn is_some(self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn get(self) -> Option<&'a str> {
        self.0.map(RawValue::get)
    }

    /// A string as text, anything else as it is written; empty if it is nothing.
    pub(crate) fn text(self) -> Cow<'a, str> {
        self.get().map_or(Cow::Borrowed(""), decoded)
    }

    /// The value, if it is of this type.
    pub(crate) fn read<T: serde::Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.get()?).ok()
    }

    /// The same; the default of the type if it is another.
    pub(crate) fn read_or_default<T: DeserializeOwned + Default>(self) -> T {
        self.read().unwrap_or_default()
    }
}

/// A value that is there also if it is null.
#[derive(Debug, Default)]
pub(crate) struct Present<'a>(pub Raw<'a>);

impl<'a> Deref for Present<'a> {
    type Target = Raw<'a>;

    fn deref(&self) -> &Raw<'a> {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Present<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Raw(Some(Deserialize::deserialize(from)?))))
    }
}

/// True for the end of a call that succeeded. Older engines record only its exit code, or only its status.
pub(super) fn is_success(status: &Text<'_>, exit_code: Option<i64>) -> bool {
    match status.get() {
        Some(status) => status.eq_ignore_ascii_case("success"),
        None => exit_code == Some(0),
    }
}

/// A JSON string as text. Anything else is returned as it is.
pub(crate) fn decoded(json: &str) -> Cow<'_, str> {
    match serde_json::from_str(json) {
        Ok(Text(Some(text))) => text,
        _ => Cow::Borrowed(json),
    }
}
