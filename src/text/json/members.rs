//! The members of objects, looked at by name, with values as they were written.

use super::{object, small};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// The members of an object in their order, with values verbatim.
#[derive(Clone, Debug)]
pub(crate) struct Members<V = Box<RawValue>, K = String>(pub Vec<(K, V)>);

/// Members that are parts of the text that they were read from.
pub(crate) type Fields<'j> = Members<&'j RawValue, Key<'j>>;

/// The name of a member, borrowed where it has no escapes.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Key<'j>(#[serde(borrow)] Cow<'j, str>);

impl Deref for Key<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<V, K> Default for Members<V, K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V: Borrow<RawValue>, K: Deref<Target = str>> Members<V, K> {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| **name == *key);
        found.map(|(_, value)| value.borrow().get())
    }

    /// The object with those of its members whose names are wanted.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<u8> {
        object(|object| {
            let wanted = self.0.iter().filter(|(name, _)| is_wanted(name));
            for (name, value) in wanted {
                object.raw(name, value.borrow().get().as_bytes());
            }
        })
    }
}

impl<'j> Fields<'j> {
    /// A member; `None` if it is missing or null.
    pub(crate) fn raw(&self, key: &str) -> Option<&'j RawValue> {
        let found = self.0.iter().find(|(name, _)| name.0 == key);
        found
            .map(|(_, value)| *value)
            .filter(|value| value.get() != "null")
    }

    /// A member that is a small value; null in place of another.
    pub(crate) fn small(&self, key: &str) -> Value {
        small(self.raw(key))
    }

    /// A member that is a short text.
    pub(crate) fn word(&self, key: &str) -> Option<String> {
        self.small(key).as_str().map(str::to_owned)
    }

    /// A member of a type; the default if it is missing or null.
    ///
    /// # Errors
    /// It is of another type.
    pub(crate) fn read<T: Deserialize<'j> + Default>(&self, key: &str) -> serde_json::Result<T> {
        self.raw(key)
            .map_or_else(|| Ok(T::default()), |raw| serde_json::from_str(raw.get()))
    }
}

impl<'de, V: Deserialize<'de>, K: Deserialize<'de>> Deserialize<'de> for Members<V, K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each<V, K>(PhantomData<(V, K)>);
        impl<'de, V: Deserialize<'de>, K: Deserialize<'de>> Visitor<'de> for Each<V, K> {
            type Value = Members<V, K>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Each(PhantomData))
    }
}
