//! Typed access to the content of a file. Every error has the path of its field.

use coracle_proto::names::qualified_name;
use coracle_proto::time::parse_duration;
use serde_json::{Map, Value};
use std::time::Duration;

/// A field that is not as it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{path}: {problem}")]
pub struct FieldError {
    /// The path of the field.
    pub path: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// Nobody knows it.
    #[error("unknown field")]
    Unknown,
    /// It has another type.
    #[error("must be {0}")]
    Type(&'static str),
    /// It is missing.
    #[error("Required value")]
    Required,
    /// Its value is wrong.
    #[error("Invalid value: {value:?}: {detail}")]
    Invalid {
        /// The value.
        value: String,
        /// Why.
        detail: String,
    },
    /// Its value is none of those that there are.
    #[error("Unsupported value: {value:?}: supported values: {}", .supported.join(", "))]
    Unsupported {
        /// The value.
        value: String,
        /// What there is.
        supported: &'static [&'static str],
    },
    /// It is there twice.
    #[error("Duplicate value: {0:?}")]
    Duplicate(String),
    /// It must not be set.
    #[error("Forbidden: {0}")]
    Forbidden(&'static str),
}

/// A value and its path.
#[derive(Debug, Clone)]
pub struct At<'v> {
    path: String,
    value: &'v Value,
}

/// An object and its path.
#[derive(Debug)]
pub struct Object<'v> {
    path: String,
    fields: &'v Map<String, Value>,
}

impl<'v> At<'v> {
    /// The whole file.
    pub fn root(value: &'v Value) -> Self {
        Self { path: String::new(), value }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value itself.
    pub fn value(&self) -> &'v Value {
        self.value
    }

    /// An error at this place.
    pub fn fails(&self, problem: Problem) -> FieldError {
        FieldError { path: self.path.clone(), problem }
    }

    /// The value is wrong.
    pub fn invalid(&self, detail: impl Into<String>) -> FieldError {
        let value = match self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.fails(Problem::Invalid { value, detail: detail.into() })
    }

    /// The value is missing.
    pub fn required(&self) -> FieldError {
        self.fails(Problem::Required)
    }

    /// As an object.
    pub fn object(&self) -> Result<Object<'v>, FieldError> {
        let fields = self.value.as_object().ok_or_else(|| self.fails(Problem::Type("an object")))?;
        Ok(Object { path: self.path.clone(), fields })
    }

    /// As a text.
    pub fn text(&self) -> Result<&'v str, FieldError> {
        self.value.as_str().ok_or_else(|| self.fails(Problem::Type("a string")))
    }

    /// As a boolean.
    pub fn bool(&self) -> Result<bool, FieldError> {
        self.value.as_bool().ok_or_else(|| self.fails(Problem::Type("a boolean")))
    }

    /// As an integer.
    pub fn int(&self) -> Result<i64, FieldError> {
        self.value.as_i64().ok_or_else(|| self.fails(Problem::Type("an integer")))
    }

    /// As an integer of a range.
    pub fn int_in(&self, least: i64, most: i64) -> Result<i64, FieldError> {
        let number = self.int()?;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(self.invalid(format!("not in valid range [{least}, {most}]")))
    }

    /// As a duration: Go's text, or nanoseconds.
    pub fn duration(&self) -> Result<Duration, FieldError> {
        let nanos = match self.value {
            Value::String(text) => parse_duration(text).map_err(|error| self.invalid(error.to_string()))?,
            _ => self.int()?,
        };
        u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| self.invalid("must not be negative"))
    }

    /// As one of some words.
    pub fn one_of(&self, supported: &'static [&'static str]) -> Result<&'v str, FieldError> {
        let text = self.text()?;
        if supported.contains(&text) {
            return Ok(text);
        }
        Err(self.fails(Problem::Unsupported { value: text.to_owned(), supported }))
    }

    /// As the name of a label or resource.
    pub fn qualified(&self) -> Result<&'v str, FieldError> {
        let text = self.text()?;
        if text.is_empty() {
            return Err(self.required());
        }
        match qualified_name(text).into_iter().next() {
            Some(why) => Err(self.invalid(why)),
            None => Ok(text),
        }
    }

    /// The elements of a list.
    pub fn items(&self) -> Result<Vec<Self>, FieldError> {
        let list = self.value.as_array().ok_or_else(|| self.fails(Problem::Type("a list")))?;
        let at = |(n, value): (usize, &'v Value)| At { path: format!("{}[{n}]", self.path), value };
        Ok(list.iter().enumerate().map(at).collect())
    }
}

impl<'v> Object<'v> {
    /// An error if it has other fields.
    pub fn only(&self, known: &[&str]) -> Result<(), FieldError> {
        match self.fields.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(FieldError { path: self.join(name), problem: Problem::Unknown }),
            None => Ok(()),
        }
    }

    /// A field, null if it is missing.
    pub fn at(&self, name: &str) -> At<'v> {
        At { path: self.join(name), value: self.fields.get(name).unwrap_or(&Value::Null) }
    }

    /// A field that is set.
    pub fn get(&self, name: &str) -> Option<At<'v>> {
        Some(self.at(name)).filter(|at| !at.value.is_null())
    }

    /// A text that may be missing.
    pub fn text(&self, name: &str) -> Result<Option<&'v str>, FieldError> {
        self.get(name).map(|at| at.text()).transpose()
    }

    /// A boolean, false if it is missing.
    pub fn bool(&self, name: &str) -> Result<bool, FieldError> {
        self.get(name).map_or(Ok(false), |at| at.bool())
    }

    /// The elements of a list, none if it is missing.
    pub fn list(&self, name: &str) -> Result<Vec<At<'v>>, FieldError> {
        self.get(name).map_or(Ok(Vec::new()), |at| at.items())
    }

    /// A text that must be there.
    pub fn required(&self, name: &str) -> Result<&'v str, FieldError> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(self.at(name).required()),
        }
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}
