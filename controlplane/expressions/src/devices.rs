//! Selectors of devices: expressions about `device`, its `driver`, `attributes` and `capacity`.

use super::error::CompileError;
use super::library::Amount;
use super::objects::children;
use super::versions::Semver;
use super::{Budget, Failure, Program, compile_selector, context};
use cel::Value;
use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};
use coracle_proto::quantity::Quantity;
use std::collections::HashMap;
use std::sync::Arc;

/// The most that one evaluation may cost.
pub const SELECTION: u64 = 1_000_000;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// A text.
    Text(String),
    /// A semantic version.
    Version(String),
}

/// An attribute that selectors cannot read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("attribute {name}: parse semantic version {text:?}")]
pub struct AttributeError {
    name: String,
    text: String,
    #[source]
    source: Arc<semver::Error>,
}

/// Why a selector has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SelectorError {
    /// It cannot be evaluated for a device.
    #[error(transparent)]
    Evaluation(#[from] Failure),
    /// Its value is no answer.
    #[error("must evaluate to bool")]
    NotBool,
}

type Domains = HashMap<String, HashMap<String, Value>>;

/// What selectors can ask about a device.
#[derive(Debug, Clone)]
pub struct DeviceFacts {
    driver: String,
    is_shared: bool,
    attributes: Domains,
    capacity: Domains,
}

impl DeviceFacts {
    /// A device of a driver, which may be given to several claims or not.
    pub fn new(driver: &str, is_shared: bool) -> Self {
        let (attributes, capacity) = (Domains::new(), Domains::new());
        Self { driver: driver.to_owned(), is_shared, attributes, capacity }
    }

    /// Adds an attribute. A name without a domain is in that of the driver.
    pub fn attribute(&mut self, name: &str, value: &Attribute) -> Result<(), AttributeError> {
        let value = match value {
            Attribute::Int(number) => Value::Int(*number),
            Attribute::Bool(is) => Value::Bool(*is),
            Attribute::Text(text) => Value::from(text.as_str()),
            Attribute::Version(text) => match semver::Version::parse(text) {
                Ok(version) => Value::Opaque(Arc::new(Semver(version))),
                Err(error) => {
                    let source = Arc::new(error);
                    return Err(AttributeError { name: name.to_owned(), text: text.clone(), source });
                }
            },
        };
        let (domain, name) = qualified(name, &self.driver);
        self.attributes.entry(domain.to_owned()).or_default().insert(name.to_owned(), value);
        Ok(())
    }

    /// Adds a capacity, by a name as those of attributes.
    pub fn capacity(&mut self, name: &str, amount: Quantity) {
        let (domain, name) = qualified(name, &self.driver);
        let amount = Value::Opaque(Arc::new(Amount(amount)));
        self.capacity.entry(domain.to_owned()).or_default().insert(name.to_owned(), amount);
    }

    /// The variable `device`. Domains that an expression names and the device does not have are empty.
    fn value(&self, domains: &[String]) -> Value {
        let of = |known: &Domains| {
            let none = || domains.iter().map(|domain| (domain.clone(), HashMap::new()));
            let mut all: Domains = none().collect();
            all.extend(known.iter().map(|(domain, values)| (domain.clone(), values.clone())));
            Value::from(all)
        };
        let fields = [
            ("driver", Value::from(self.driver.as_str())),
            ("allowMultipleAllocations", Value::Bool(self.is_shared)),
            ("attributes", of(&self.attributes)),
            ("capacity", of(&self.capacity)),
        ];
        Value::from(HashMap::from(fields))
    }
}

fn qualified<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

/// A selector that can be evaluated.
pub struct DeviceSelector {
    program: Program,
    /// Domains that it names.
    domains: Vec<String>,
}

impl std::fmt::Debug for DeviceSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSelector").field("domains", &self.domains).finish_non_exhaustive()
    }
}

impl DeviceSelector {
    /// Reads an expression.
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        let program = compile_selector(text)?;
        let domains = domains(program.expression());
        Ok(Self { program, domains })
    }

    /// Whether it selects a device, paid from the budget.
    pub fn selects(&self, device: &DeviceFacts, budget: &mut Budget) -> Result<bool, SelectorError> {
        let mut context = context();
        context.add_variable_from_value("device", device.value(&self.domains));
        match self.program.evaluate(&context, budget)? {
            Value::Bool(is) => Ok(is),
            _ => Err(SelectorError::NotBool),
        }
    }
}

/// The domains in `device.attributes['domain']` and `device.capacity['domain']`.
fn domains(expression: &IdedExpr) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![expression]);
    while let Some(node) = open.pop() {
        if let Expr::Call(call) = &node.expr
            && call.func_name == operators::INDEX
            && let [of, by] = &call.args[..]
            && let (Expr::Select(select), Expr::Literal(LiteralValue::String(domain))) = (&of.expr, &by.expr)
            && matches!(&select.operand.expr, Expr::Ident(name) if name == "device")
        {
            found.push(domain.inner().to_owned());
        }
        open.extend(children(node));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn gpu() -> DeviceFacts {
        let mut device = DeviceFacts::new("gpu.example.com", false);
        device.attribute("model", &Attribute::Text("large".into())).unwrap();
        device.attribute("cores", &Attribute::Int(8)).unwrap();
        device.attribute("pci.example.org/numa", &Attribute::Int(1)).unwrap();
        device.attribute("healthy", &Attribute::Bool(true)).unwrap();
        device.attribute("firmware", &Attribute::Version("2.10.0".into())).unwrap();
        device.capacity("memory", "40Gi".parse().unwrap());
        device
    }

    #[test]
    fn selectors_ask_for_attributes_and_capacity() {
        for (text, want) in [
            ("device.driver == 'gpu.example.com'", true),
            ("device.attributes['gpu.example.com'].model == 'large'", true),
            ("device.attributes['gpu.example.com'].cores > 8", false),
            ("device.attributes['pci.example.org'].numa == 1", true),
            ("device.attributes['gpu.example.com'].healthy && !device.allowMultipleAllocations", true),
            ("device.attributes['gpu.example.com'].firmware.isGreaterThan(semver('2.9.0'))", true),
            ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0", true),
            ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Ti'))", false),
            ("'vendor' in device.attributes['other.example.com']", false),
            ("has(device.attributes['gpu.example.com'].model)", true),
            ("cel.bind(gpu, device.attributes['gpu.example.com'], gpu.healthy && gpu.cores == 8)", true),
            ("cel.bind(other, device.attributes['other.example.com'], has(other.cores))", false),
        ] {
            let selector = DeviceSelector::compile(text).unwrap();
            let answer = selector.selects(&gpu(), &mut Budget::of(SELECTION));
            assert_eq!(answer.map_err(|error| error.to_string()), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_has_no_answer_is_an_error() {
        for (text, why) in [
            ("device.attributes['gpu.example.com'].colour == 'red'", "no such key: colour"),
            ("device.driver", "must evaluate to bool"),
        ] {
            let selector = DeviceSelector::compile(text).unwrap();
            let error = selector.selects(&gpu(), &mut Budget::of(SELECTION)).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(DeviceSelector::compile("device.driver ==").is_err());
        assert!(DeviceSelector::compile("cel.bind(1, 2, true)").is_err());
        assert!(gpu().attribute("firmware", &Attribute::Version("new".into())).is_err());
    }
}
